"""The report of a run: one HTML page with its data, styles and scripts inside, which opens without a network."""

from eunomia_testbed.report.page import render, write_report

__all__ = ["render", "write_report"]
