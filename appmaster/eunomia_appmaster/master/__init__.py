"""The app master: one process per app, which bids for slots and runs the tuner's trials on them."""
