"""Log every call of a stage if ``--trace-plugins`` or ``EUNOMIA_TRACE_PLUGINS=1`` is given."""

import os
import time
from collections.abc import Callable
from typing import Any


def is_tracing() -> bool:
    """Return whether calls of stages are traced."""
    return os.environ.get("EUNOMIA_TRACE_PLUGINS", "") not in ("", "0")


def traced(plugin: str, hook: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a hook so that each call is logged as ``hook.called``, with its milliseconds and the type of its answer."""
    import structlog

    log = structlog.get_logger()

    def logged(*arguments: object, **named: object) -> Any:
        start = time.perf_counter()
        try:
            answer = call(*arguments, **named)
        except Exception as error:
            log.warning("hook.raised", plugin=plugin, hook=hook, error=repr(error))
            raise
        milliseconds = round(1000.0 * (time.perf_counter() - start), 3)
        log.info("hook.called", plugin=plugin, hook=hook, milliseconds=milliseconds, answer=type(answer).__name__)
        return answer

    return logged
