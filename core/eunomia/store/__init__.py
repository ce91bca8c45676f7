"""The store: the arbiter's state of users, apps and jobs, with each fact in one column of one table."""
