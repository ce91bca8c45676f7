"""General-purpose refiners: they convert shares to whole GPUs, and grants to users and apps to grants to jobs."""
