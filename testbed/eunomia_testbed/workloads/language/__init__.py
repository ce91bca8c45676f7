"""Programs that learn a synthetic language: to predict the next word, or to translate sentences."""
