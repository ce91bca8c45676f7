"""Reads a trace: detects its format, parses it, and rejects files without a workload."""

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from eunomia.errors import InputError
from eunomia.platform.registry import Registry, default_registry
from eunomia.words import shown
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.performance.reading import plain
from eunomia_testbed.traces.formats import READERS, TraceReader, load_reader, reader_formats
from eunomia_testbed.traces.guessing import mapping_command
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.source import TraceSource, open_source
from eunomia_testbed.workload import Workload

OLD_NAME: Final = ("gavel", "shockwave")
"""Formats that accept ``gpu_type``, the old name of ``reference_type``."""


class ReadKeywords(TypedDict, total=False):
    """Keywords of ``read_trace`` for the reader, with the defaults and meanings of ``ReadOptions``."""

    throughputs: str | Path | GavelThroughputs | None
    """Measured rates by job type, for Gavel's and Shockwave's traces."""
    reference_type: str | None
    """The GPU type on which the trace's times were measured, for rows without one; see ``ReadOptions``."""
    gpu_type: str | None
    """The old name of ``reference_type`` for Gavel's and Shockwave's traces."""
    strict: bool
    """Whether the first row that would be dropped is an error."""
    models: Sequence[str]
    """Models from which one is drawn, by a hash of id and seed, for each job without a model in the trace."""
    drawn_models: bool
    """Whether to use the models drawn by the authors of the file; see ``ReadOptions``."""
    seed: int
    """Seed for drawing models."""
    by_group: bool
    """Whether the trace's groups (virtual clusters, queues) serve as the workload's users."""
    users: Sequence[str]
    """Users whose jobs are read; empty: all users."""
    first_jobs: int | None
    """Number of jobs to read, the first ones by arrival; None: all."""
    columns: Mapping[str, str]
    """The names of a table's columns, with units (see ``ReadOptions``); they imply the format ``columns``."""


def read_trace(
    path: str | Path, *, format: str | None = None, registry: Registry | None = None, **options: Unpack[ReadKeywords]
) -> Workload:
    """Read a trace, gzipped or not; ``-`` is stdin.

    Args:
        path: path of the trace.
        format: a key of ``reader_formats``; None: detected from the first 64 KiB.
        registry: the plugins that may add readers; None: the installed plugins.
        options: see ``ReadKeywords``.

    Raises:
        InputError: the file is unreadable, its format is unknown, no job is left, or, if strict, a row would be
            dropped.
        TypeError: a keyword is not an option.
    """
    first_jobs = options.get("first_jobs")
    if first_jobs is not None and first_jobs < 1:
        raise InputError("first_jobs must be at least 1", value=str(first_jobs))
    if options.get("columns") and format not in (None, "columns"):
        raise InputError("columns must stand without a format, or with the format columns", value=shown(format or ""))
    source = open_source(path)
    reader = _reader(source, "columns" if options.get("columns") else format, registry)
    made = _options(options)
    _check_types(made, reader.format)
    return _of_type(reader.read(source, made), made.reference_type)


def _check_types(options: ReadOptions, format: str) -> None:
    """Check that the format accepts ``gpu_type``, if given, and that it does not contradict ``reference_type``."""
    if options.gpu_type is None:
        return
    if format not in OLD_NAME:
        rule = f"gpu_type must stand with a trace of format {' or '.join(OLD_NAME)}; other traces read reference_type"
        raise InputError(rule, value=f"{shown(options.gpu_type)} with format {format}", place="trace.gpu_type")
    if options.reference_type is not None and options.reference_type != options.gpu_type:
        rule = "reference_type must be given once; gpu_type is its old name"
        raise InputError(rule, value=f"{shown(options.reference_type)} and {shown(options.gpu_type)}")


def _of_type(workload: Workload, given: str | None) -> Workload:
    """Return the workload with ``given`` as the GPU type of its times, for jobs without one in the trace.

    Raises:
        InputError: the trace states another type for every job.
    """
    if given is None:
        return workload
    columns = workload.jobs.measured_on
    if workload.reference_type is None and (columns is None or not all(columns)):
        return dataclasses.replace(workload, reference_type=given)
    known = set(filter(None, columns or ())) or {workload.reference_type or ""}
    if {plain(name) for name in known} != {plain(given)}:
        rule = "reference_type must be that of the trace, which gives one for every job"
        value = f"{shown(given)} where the trace has {', '.join(sorted(known))}"
        raise InputError(rule, value=value, place="trace.reference_type")
    return workload


def _options(given: ReadKeywords) -> ReadOptions:
    plain: dict[str, Any] = dict(given)
    rates = plain.get("throughputs")
    if isinstance(rates, str | Path):
        plain["throughputs"] = GavelThroughputs.read(rates)
    return ReadOptions(**plain | {name: tuple(plain[name]) for name in ("models", "users") if name in plain})


def _reader(source: TraceSource, wanted: str | None, registry: Registry | None) -> TraceReader:
    if wanted is not None:
        known = READERS if wanted in READERS else reader_formats(registry or default_registry())
        return load_reader(wanted, known)
    if not source.is_parquet:
        _ = source.text  # bytes that are not text match no format
    for reader in _all(registry):
        if reader.matches(source.name, source.head):
            return reader
    command = None if source.is_parquet else mapping_command(source.head)
    if command is not None:
        path = shlex.quote(str(source.path or "-"))
        rule = "a table of no known format must have its columns mapped, as far as its header shows by"
        check = "; check the units, and replace words in capitals"
        command = f"eunomia simulate {path} --cluster CLUSTER {command}{check}"
        raise InputError(f"{rule}: {command}", place=f"{source.name}, line 1")
    first = source.head.lstrip().split("\n", 1)[0].rstrip()
    first = first if len(first) <= 80 else first[:77] + "..."
    rule = "a trace must be of a known format (" + ", ".join(reader_formats(registry or default_registry())) + ")"
    raise InputError(rule, value=shown(first), place=f"{source.name}, line 1")


def _all(registry: Registry | None) -> Iterator[TraceReader]:
    """Yield all readers, built-in ones first, so that plugins are loaded only if no built-in reader matches."""
    for name in READERS:
        yield load_reader(name, READERS)
    more: Mapping[str, str] = reader_formats(registry or default_registry())
    for name in more:
        if name not in READERS:
            yield load_reader(name, more)
