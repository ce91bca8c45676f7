"""Reads a live run from its state folder: the arbiter replayed from the journal, activities, trials and event files."""
