"""The claims of AFS (NSDI'21)."""
