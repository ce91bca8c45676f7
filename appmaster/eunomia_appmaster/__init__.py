"""The live system: protocol, arbiter service, app masters, launcher, profiler, checkpoints, training helper."""
