"""Hyperparameter tuners that share an app's GPUs among its trials."""
