"""Measures the claims of papers and compares them with the published values; each paper is a folder (see ``paper``)."""
