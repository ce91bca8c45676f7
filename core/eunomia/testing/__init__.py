"""Tools for testing policies, built-in or not: builders, drivers, a conformance suite."""
