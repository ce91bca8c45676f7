"""The app master: one process an app, that wins slots through its agent and runs its tuner's trials on them."""
