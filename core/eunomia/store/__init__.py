"""The store: what the arbiter knows of users, apps and jobs, each fact in one column of one table."""
