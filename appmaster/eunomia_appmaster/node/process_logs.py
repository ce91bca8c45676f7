"""The log of a process: readable lines on a terminal, else one JSON object per line; only commands configure it."""

import contextlib
import io
import logging
import os
import sys
from typing import Any, TextIO, cast


def configure_logs(*, level: str | None = None, stream: TextIO | None = None) -> None:
    """Send structlog's events to ``stream``, stderr by default.

    Args:
        level: debug, info, warning or error; None: ``EUNOMIA_LOG``, else info.
        stream: target; a terminal gets readable lines, any other stream JSON.
    """
    import structlog

    out = sys.stderr if stream is None else stream
    chosen = (level or os.environ.get("EUNOMIA_LOG", "") or "info").lower()
    threshold = logging.getLevelNamesMapping().get(chosen.upper(), logging.INFO)
    people = out.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if people else "iso", utc=not people, key="time"),
            *_renderers(people),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Unbroken(out))),
        cache_logger_on_first_use=False,
    )


class _Unbroken(io.TextIOBase):
    """A stream without errors: if its reader is gone or its disk is full, log lines are dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or drop it if the stream fails."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, or do nothing if it fails."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _renderers(people: bool) -> list[Any]:
    import structlog

    if people:
        return [structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ, timestamp_key="time")]
    return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
