"""Programs that classify the word spoken in a short sound."""
