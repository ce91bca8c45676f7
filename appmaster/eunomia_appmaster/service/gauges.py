"""Gauges of the arbiter for Prometheus: slots by app, machines, waiting jobs by reason.

The gauges are computed from the state at each scrape. Labels contain no text of users except names of apps, users and
plugins.
"""

import math
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric

from eunomia import __version__
from eunomia.arbiter import ClusterView
from eunomia.contract.verdicts import Reason
from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.units import AppId
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.service import Service

_WAITING: Final = (int(JobState.WAITING), int(JobState.PAUSED))


class StateGauges:
    """Gauges that are computed from the state at each scrape.

    Args:
        service: the service, whose state is read under the driver's lock.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return no metrics, since there is no state yet when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the present values of all gauges."""
        service = self._service
        ready = service.ready.is_set()
        yield _labelled("eunomia_build", "What serves.", [((__version__, service.profile.name), 1.0)],
                        "version", "profile")  # fmt: skip
        yield _one("eunomia_ready", "1: the arbiter has its machines and makes steps.",
                   float(ready and service.decides))  # fmt: skip
        if not ready:
            return
        view = service.view
        yield _one("eunomia_fallen_back", "1: the fallback serves, for the profile failed too often.",
                   float(view.fallen_back))  # fmt: skip
        yield _one("eunomia_journal_step", "The last step in the journal.", float(service.journal.last_step))
        draining = [((node.name,), float(node.draining or node.drains)) for node in service.nodes]
        yield _labelled(
            "eunomia_machine_draining",
            "1: no lease begins there.",
            draining,
            "machine",
        )
        hangs = [((node.name,), float(node.hangs)) for node in service.nodes]
        yield _labelled("eunomia_machine_hangs", "Launchers that were killed since their loop hung.", hangs, "machine")
        up = [((node.name,), float(node.registered and not node.lost)) for node in service.nodes]
        yield _labelled("eunomia_machine_up", "1: its launcher answers.", up, "machine")
        yield from _slots(view)
        yield from _jobs(view)
        yield from self._apps(view)

    def _apps(self, view: ClusterView) -> Iterator[Metric]:
        service = self._service
        live = [(app, row) for app in service.apps.live if (row := view.app_row(AppId(app.name))) >= 0]
        held = Tally(view.gpus.app.tolist())
        states = Tally(app.state for app in service.apps)
        yield _labelled("eunomia_apps", "Apps by state.", [((name,), float(n)) for name, n in states.items()], "state")
        slots = {(app.name, app.user): float(held[row]) for app, row in live}
        yield _labelled("eunomia_app_slots", "Slots that a live app holds.", slots.items(), "app", "user")
        stalls = self._stalls()
        yield _labelled("eunomia_app_stalls", "Gangs and app masters of a live app that were ended since they hung.",
                        stalls.items(), "app", "user", "what")  # fmt: skip
        rhos = {(app.name, app.user): service.standings.rho(app) for app, _ in live}
        known = {labels: rho for labels, rho in rhos.items() if rho is not None and math.isfinite(rho)}
        yield _labelled("eunomia_app_rho", "Expected finish-time fairness: time in the cluster over time on 1/N.",
                        known.items(), "app", "user")  # fmt: skip

    def _stalls(self) -> dict[tuple[str, ...], float]:
        """Return the number of stalls of each live app's jobs and app masters."""
        found: dict[tuple[str, ...], float] = {}
        for app, of_jobs, of_master in stalls_of(self._service):
            found[app.name, app.user, "job"] = float(of_jobs)
            found[app.name, app.user, "app_master"] = float(of_master)
        return found


def stalls_of(service: Service) -> Iterator[tuple[App, int, int]]:
    """Yield each live app with the number of gangs, and of app masters, that were ended because they hung."""
    for app in service.apps.live:
        node = service.nodes.get(app.node)
        status = None if node is None else node.app_masters.get(app.name)
        yield app, int(app.standing.get("stalls") or 0), 0 if status is None else status.stalls


def _slots(view: ClusterView) -> Iterator[Metric]:
    counts = np.bincount(view.gpus.state[view.cluster.present()], minlength=len(GpuState)).tolist()
    counted = {(one.name.lower(),): float(counts[int(one)]) for one in GpuState}
    yield _labelled("eunomia_slots", "Slots by state.", counted.items(), "state")


def _jobs(view: ClusterView) -> Iterator[Metric]:
    rows = np.flatnonzero(view.jobs.state != int(JobState.EMPTY))
    states = view.jobs.state[rows].tolist()
    counts = Tally(states)
    counted = {(one.name.lower(),): float(counts[int(one)]) for one in JobState if one is not JobState.EMPTY}
    yield _labelled("eunomia_jobs", "Jobs that are not over, by state.", counted.items(), "state")
    waiting = [row for row, one in zip(rows.tolist(), states, strict=True) if one in _WAITING]
    reasons = Tally(reason.word for row in waiting if (reason := view.verdict(row).reason) is not None)
    queue = {(reason.word,): float(reasons[reason.word]) for reason in Reason}
    yield _labelled("eunomia_queue", "Waiting jobs by reason; see the reference of reasons.", queue.items(), "reason")


def _one(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _labelled(name: str, help_: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for named, value in values:
        family.add_metric(named, value)
    return family
