"""Explains runs and their apps: replays the arbiter; derives periods of jobs, reasons of waits, results and errors."""
