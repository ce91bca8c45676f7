"""Trace formats by name: the protocol of a reader, and the readers that are built in or added by plugins."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import ClassVar, Final, Protocol, runtime_checkable

from eunomia.errors import InputError
from eunomia.platform.checking import hooks_of
from eunomia.platform.registry import Registry
from eunomia_testbed.traces.options import ReadOptions
from eunomia_testbed.traces.source import TraceSource
from eunomia_testbed.workload import Workload

READERS: Final[Mapping[str, str]] = {
    "eunomia": "eunomia_testbed.traces.own:OwnReader",
    "philly": "eunomia_testbed.traces.philly:PhillyReader",
    "philly_json": "eunomia_testbed.traces.philly_json:PhillyJsonReader",
    "openb": "eunomia_testbed.traces.openb:OpenbReader",
    "gavel": "eunomia_testbed.traces.gavel:GavelReader",
    "shockwave": "eunomia_testbed.traces.gavel:ShockwaveReader",
    "synergy": "eunomia_testbed.traces.synergy:SynergyReader",
    "helios": "eunomia_testbed.traces.helios:HeliosReader",
    "pai": "eunomia_testbed.traces.pai:PaiReader",
    "pollux_philly": "eunomia_testbed.traces.pollux:PolluxPhillyReader",
    "pollux": "eunomia_testbed.traces.pollux:PolluxReader",
    "columns": "eunomia_testbed.traces.mapped:MappedReader",
    "swf": "eunomia_testbed.traces.swf:SwfReader",
}
"""Built-in readers as ``module:class`` by format; plugins add theirs by ``eunomia_trace_readers``."""


@runtime_checkable
class TraceReader(Protocol):
    """A reader of one format; it is created without arguments for each trace."""

    format: ClassVar[str]

    def matches(self, name: str, head: str) -> bool:
        """Return whether a trace has this format; the first reader that returns True reads the trace.

        Args:
            name: the file's name, or ``stdin``.
            head: the file's first 64 KiB, decompressed, as text; ``PAR1`` for a Parquet file.
        """
        ...

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        """Read a trace.

        Args:
            source: the decompressed bytes of the trace.
            options: the user's options.

        Returns:
            The workload; its ``dropped`` has every dropped row with the rule that the row breaks.

        Raises:
            InputError: the trace has another format, no job is left, or, if strict, a row would be dropped.
        """
        ...


def reader_formats(registry: Registry) -> dict[str, str]:
    """Return ``module:class`` of each format's reader, built-in or added by a plugin.

    A plugin that fails is skipped, and a built-in format cannot be replaced.
    """
    import structlog

    log = structlog.get_logger()
    formats: dict[str, str] = {}
    for item in registry.all():
        if item.plugin is None or "eunomia_trace_readers" not in hooks_of(item.plugin):
            continue
        try:
            made = registry.make(item.found.name, {}, alias=item.found.name, place=".".join)
            formats |= {str(kind): str(target) for kind, target in made.eunomia_trace_readers().items()}
        except Exception as error:
            log.warning("plugin.failed", plugin=item.found.name, hook="eunomia_trace_readers", why=str(error))
    return dict(READERS) | {kind: target for kind, target in formats.items() if kind not in READERS}


def load_reader(name: str, formats: Mapping[str, str]) -> TraceReader:
    """Create the reader of a format.

    Raises:
        InputError: the format is unknown, or its reader's package cannot be imported.
    """
    if name not in formats:
        close = get_close_matches(name, formats, n=1)
        meant = f'; did you mean "{close[0]}"?' if close else ""
        rule = "format must be one of " + ", ".join(formats)
        raise InputError(rule, value=f'"{name}"{meant}', place="--format")
    module, _, attribute = formats[name].partition(":")
    try:
        made: TraceReader = getattr(import_module(module), attribute)()
    except Exception as error:
        rule = f'the reader of format "{name}" must be importable from {formats[name]}'
        raise InputError(rule, value=str(error)) from error
    return made
