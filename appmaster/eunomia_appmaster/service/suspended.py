"""Suspended apps: workers keep training; slots without workers go to other apps until the app master is back."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import structlog

from eunomia.arbiter import ClusterView
from eunomia.contract.events import GpusReturned, JobPaused
from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.units import NONE, AppId
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.app_record import LIVE, SUSPENDED, App
from eunomia_appmaster.service.nodes import Nodes
from eunomia_appmaster.service.sessions import Session

log = structlog.get_logger()

_ON_GPUS = (JobState.STARTING, JobState.RUNNING)


def judged(apps: Iterable[App], nodes: Nodes, sessions: Mapping[str, Session]) -> Iterator[App]:
    """Suspend apps whose app master exited on its own too often, resume those whose app master is back; yield both."""
    for app in apps:
        node = nodes.get(app.node)
        status = None if node is None else node.app_masters.get(app.name)
        if node is None or status is None:
            continue
        session = sessions.get(app.name)
        registered = (0, 0) if session is None else (session.attempt, session.part)
        reported = status.attempt, status.part
        waits = status.state == pb.APP_MASTER_SUSPENDED
        waits &= reported >= max(registered, (node.asked.get(app.name, 0), 0))
        if waits and app.state == LIVE:
            app.suspend(f"its app master {status.diagnostics}")
        elif not waits and app.state == SUSPENDED and registered >= reported:
            app.go_on()
        else:
            continue
        log.warning("app.suspended" if waits else "app.goes_on", app=app.name, why=app.why or None)
        yield app


def unused(apps: Iterable[App], view: ClusterView, nodes: Nodes) -> Iterator[GpusReturned | JobPaused]:
    """Yield the events by which suspended apps give back slots without a worker and request no others.

    A paused job keeps its progress; its app master resumes it after registering.
    """
    for app in apps:
        row = view.app_row(AppId(app.name)) if app.state == SUSPENDED else NONE
        if row == NONE:
            continue
        busy = _busy(row, view, nodes)
        for job in view.jobs_of(row).tolist():
            waits = view.jobs.state[job] == JobState.WAITING
            if waits or (view.jobs.state[job] in _ON_GPUS and not busy.get(job, True)):
                yield JobPaused(job=view.job_id(job), suspended=app.why or SUSPENDED)
        idle = _idle(row, view, nodes)
        if idle:
            yield GpusReturned(app=AppId(app.name), gpus=idle)


def _busy(row: int, view: ClusterView, nodes: Nodes) -> dict[int, bool]:
    """Return, by job with slots, whether a process is left on one of its slots; ``row``: the app's row."""
    held, busy = view.gpus, dict[int, bool]()
    for gpu in np.flatnonzero((held.app == row) & (held.job != NONE)).tolist():
        job = int(held.job[gpu])
        busy[job] = busy.get(job, False) or not _is_empty(gpu, nodes)
    return busy


def _idle(row: int, view: ClusterView, nodes: Nodes) -> tuple[int, ...]:
    """Return an app's slots without a job and without processes, except leaving ones; ``row``: the app's row."""
    held = view.gpus
    mine = np.flatnonzero((held.app == row) & (held.job == NONE) & (held.state != GpuState.LEAVING)).tolist()
    return tuple(gpu for gpu in mine if _is_empty(gpu, nodes))


def _is_empty(gpu: int, nodes: Nodes) -> bool:
    if nodes.layout is None:
        return False
    place = nodes.layout.places[gpu]
    return nodes.is_empty(place.node, place.slot)
