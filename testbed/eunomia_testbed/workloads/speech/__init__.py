"""Programs that name the word in a short sound."""
