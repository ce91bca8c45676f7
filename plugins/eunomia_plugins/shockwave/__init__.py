"""Shockwave (NSDI'23): plan the coming rounds to maximise Nash social welfare over time."""
