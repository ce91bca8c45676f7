"""General-purpose allocations that any profile can use."""
