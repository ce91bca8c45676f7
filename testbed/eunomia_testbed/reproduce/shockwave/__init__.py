"""The claims of Shockwave (NSDI'23)."""
