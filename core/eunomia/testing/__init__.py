"""Shipped for tests of policies, ours and strangers': builders, drivers, a conformance suite."""
