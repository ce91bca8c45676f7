"""Reads Eunomia's and other projects' traces into workloads, and lists each dropped row with its reason.

Readers are found by format name; plugins add readers with the hook ``eunomia_trace_readers``.
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
