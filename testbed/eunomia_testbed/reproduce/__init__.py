"""Measures the claims of papers and compares them with the printed values; each paper is a folder (see ``paper``)."""
