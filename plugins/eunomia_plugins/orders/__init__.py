"""Orders of service: valuations that give each job a score; jobs with lower scores are served first."""
