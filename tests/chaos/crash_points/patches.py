"""What stands in for time, threads, network and files' ends in the real modules while a run lasts."""

import contextlib
import functools
import os
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import structlog

from chaos.crash_points.network import Process
from chaos.crash_points.virtual import Crash
from eunomia.journal import journal
from eunomia.platform.profiles import Profile
from eunomia_appmaster.launcher import container as container_module
from eunomia_appmaster.launcher import containers as containers_module
from eunomia_appmaster.launcher import gangs as gangs_module
from eunomia_appmaster.master import clock as master_clock
from eunomia_appmaster.master import files, link, outbox, process
from eunomia_appmaster.runtimes import local
from eunomia_appmaster.service import apps, clock, driver, nodes, service


class _Os:
    """The module ``os``, but for the end of a process.

    Args:
        world: whose arbiter ends itself.
    """

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _exit(self, code: int) -> None:
        self._world.arbiter_ended_itself(code)
        raise Crash


@contextlib.contextmanager
def patched(world: Any) -> Iterator[None]:
    """Have the real modules use virtual time, threads and network."""
    served = (journal, clock, nodes, service, apps)
    clocked = (*served, process, master_clock, link, local, container_module, containers_module)
    changes: list[tuple[Any, str, Any]] = [(module, "time", world.time) for module in clocked]
    changes += [(module, "threading", world.threads) for module in (process, link, outbox, local)]
    changes += [(process, "queue", world.threads), (driver, "os", _Os(world))]
    changes += [(grpc, "insecure_channel", world.network.channel)]
    changes += [(grpc.aio, "insecure_channel", world.network.aio_channel)]
    changes += [(files, "write_atomically", _pointed(world, files.write_atomically))]
    changes += [(files.ActivityLog, "note", _pointed(world, files.ActivityLog.note))]
    changes += [(gangs_module, "_free_port", lambda: 1)]
    changes += [(Profile, "resolved", functools.cache(Profile.resolved))]  # it takes longer than all else together
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    state = random.getstate()
    logs = structlog.get_config()
    random.seed(1)
    keep = [lambda _, method, event: _keep(world, method, event)]
    structlog.configure(processors=keep, cache_logger_on_first_use=False)
    try:
        for owner, name, new in changes:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)
        random.setstate(state)
        structlog.configure(**logs)


def _keep(world: Any, method: str, event: Any) -> Any:
    if event.get("exc_info"):
        event["exception"] = traceback.format_exc()
    world.log.append({"t": round(world.loop.time(), 4), "level": method} | dict(event))
    raise structlog.DropEvent


def _pointed(world: Any, write: Callable[..., None]) -> Callable[..., None]:
    """A write with a point before and after it."""

    def pointed(where: Any, *args: Any, **more: Any) -> None:
        here = world.threads.owner
        what = where.name if isinstance(where, Path) else "activity.jsonl"
        if isinstance(here, Process):
            here.point(f"{what}: before the write")
        write(where, *args, **more)
        if isinstance(here, Process):
            here.point(f"{what}: after the write")

    return pointed
