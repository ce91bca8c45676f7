"""What became of a run, read from its journal: the arbiter after each step, periods of jobs, and why a job waits."""
