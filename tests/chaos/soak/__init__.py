"""A service under arrivals, ends, kills and cancels for hours, and whether anything of it grows: ``chaos.soak``."""
