"""Explains runs and apps: replays the arbiter; derives periods of jobs, reasons for waits, results and errors."""
