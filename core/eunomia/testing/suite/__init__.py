"""The tests of ``PolicyConformance``, by subject."""
