"""Reads a live run from its state folder: replays the arbiter from the journal, and reads activities and trials."""
