"""Tools for testing built-in and third-party policies: builders, drivers, and a conformance suite."""
