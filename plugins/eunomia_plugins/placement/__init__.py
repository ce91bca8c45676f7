"""General-purpose placements that any profile can use."""
