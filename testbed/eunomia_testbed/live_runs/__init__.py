"""Reads a live run from its state folder: the arbiter is replayed from the journal; activities and trials are read."""
