"""Tools for testing engines, also those of plugins: a conformance suite, and an engine in memory."""
