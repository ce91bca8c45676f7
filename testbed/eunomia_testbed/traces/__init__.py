"""Traces of other projects and Eunomia's own, read into workloads: exact about what was left out, and why.

Readers are found by format name; strangers name theirs by the hook ``eunomia_trace_readers``.
"""

from eunomia_testbed.traces.formats import TraceReader, reader_formats
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.reading import read_trace
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.traces.writing import write_trace

__all__ = [
    "ReadOptions",
    "TraceReader",
    "TraceSource",
    "read_trace",
    "reader_formats",
    "write_trace",
]
