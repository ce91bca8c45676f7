"""The arbiter's process: a gRPC server and a driver in real time around ``eunomia.round.arbiter.Arbiter``."""
