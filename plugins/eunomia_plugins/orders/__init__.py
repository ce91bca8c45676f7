"""Orders of service: valuations that give each job one number; lower numbers are served first."""
