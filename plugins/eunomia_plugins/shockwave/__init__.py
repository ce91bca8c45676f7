"""Shockwave (NSDI'23): a plan of coming rounds that maximises Nash social welfare over time."""
