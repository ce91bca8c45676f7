"""What became of a run and its apps: the arbiter replayed, periods of jobs, why a job waits, results and errors."""
