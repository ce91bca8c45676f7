"""Waits until a run's processes have finished their imports, which would slow down the first jobs."""

import time
from collections.abc import Collection
from typing import Final

import structlog

from eunomia_appmaster.launcher.processes import with_descendants
from eunomia_appmaster.node.patience import core_seconds

log = structlog.get_logger()

LOOK_SECONDS: Final = 0.5
LOOKS: Final = 2
"""Number of consecutive samples at which the processes must be idle."""
IDLE_CORES: Final = 0.25
"""Most cores that idle processes use or wait for: heartbeats take less, imports a whole core."""
LIMIT_SECONDS: Final = 120.0
"""Seconds after which a run begins even if its processes are not idle."""


def wait_until_idle(pids: Collection[int], *, limit_seconds: float = LIMIT_SECONDS) -> float:
    """Wait until processes and their descendants have been idle for a second; return the seconds waited.

    Args:
        pids: process ids; an ended process counts as idle.
        limit_seconds: the longest wait, after which a warning is logged.
    """
    began, idle = time.monotonic(), 0
    before, at = _used(pids), began
    while idle < LOOKS:
        if time.monotonic() - began > limit_seconds:
            log.warning("run.not_idle", seconds=round(time.monotonic() - began, 1), processes=sorted(before))
            break
        time.sleep(LOOK_SECONDS)
        used, now = _used(pids), time.monotonic()
        cores = sum(seconds - before.get(pid, 0.0) for pid, seconds in used.items()) / (now - at)
        idle = idle + 1 if cores <= IDLE_CORES else 0
        before, at = used, now
    return time.monotonic() - began


def _used(pids: Collection[int]) -> dict[int, float]:
    """Return, by pid, the seconds for which processes and descendants used a core or waited for one."""
    return {pid: sum(core_seconds(pid)) for pid in with_descendants(pids)}
