"""The report of a run: one self-contained HTML page with its data, styles and scripts, which works offline."""

from eunomia_testbed.report.page import render, write_report

__all__ = ["render", "write_report"]
