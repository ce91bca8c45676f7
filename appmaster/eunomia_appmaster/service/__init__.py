"""The arbiter's process: a gRPC server, and a driver that runs ``eunomia.round.arbiter.Arbiter`` in real time."""
