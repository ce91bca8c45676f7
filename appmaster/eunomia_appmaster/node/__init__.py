"""The machine: its slots and locks, processes and their names, and the supervisor of arbiter and launcher."""
