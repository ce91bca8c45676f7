"""The machine: its slots, locks, processes and their names, and the supervisor of arbiter and launcher."""
