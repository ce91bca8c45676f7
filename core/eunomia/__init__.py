"""Eunomia: fair, efficient and elastic sharing of GPU clusters among machine-learning applications."""

__version__ = "0.1.0"
