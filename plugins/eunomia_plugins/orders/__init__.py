"""Orders of service: valuations that give one number a job, lower served first."""
