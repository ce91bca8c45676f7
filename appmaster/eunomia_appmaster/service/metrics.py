"""The arbiter's metrics for Prometheus: slots by app, waiting jobs by reason, and the time of decisions.

Counters follow from decisions, as they are carried out; gauges are computed from the state at each scrape. No label has
free text of users, except app, user and plugin names.
"""

import math
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from eunomia import __version__
from eunomia.contract.clocked import clocked
from eunomia.contract.decisions import Decision
from eunomia.contract.stages import Stages
from eunomia.contract.verdicts import Reason
from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.state.state import State
from eunomia.units import AppId

if TYPE_CHECKING:
    from eunomia_appmaster.service.service import Service

STAGE_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Histogram buckets: a stage of a small cluster takes 50 µs, a hard programme seconds."""
_WAITING: Final = (int(JobState.WAITING), int(JobState.PAUSED))


class Meters:
    """The counters of one arbiter's process; they begin at 0 when it starts.

    Args:
        service: provides the state of the gauges; None: counters alone.
    """

    def __init__(self, service: "Service | None" = None) -> None:
        self.registry = CollectorRegistry()
        made = self.registry
        self.steps = Counter("eunomia_steps", "Steps of the arbiter.", registry=made)
        self.rounds = Counter("eunomia_rounds", "Steps that made a round, by cause; one of two causes counts in both.",
                              ["cause"], registry=made)  # fmt: skip
        self.transitions = Counter("eunomia_transitions", "Orders about leases, by kind.", ["kind"], registry=made)
        self.offers = Counter("eunomia_offers", "Offers made to app masters.", registry=made)
        self.faults = Counter("eunomia_faults", "Calls of plugins that broke the rules.", ["plugin", "stage"],
                              registry=made)  # fmt: skip
        self.refused = Counter("eunomia_events_refused", "Reports that could not be true.", registry=made)
        self.stage_seconds = Histogram("eunomia_stage_seconds", "Wall time of one call of a stage.", ["stage"],
                                       buckets=STAGE_SECONDS, registry=made)  # fmt: skip
        self.gap = Gauge("eunomia_solver_gap", "How far a plugin's last answer may be from its optimum, relative.",
                         ["plugin", "table"], registry=made)  # fmt: skip
        if service is not None:
            self.registry.register(_StateGauges(service))

    def around(self, stages: Stages) -> Stages:
        """Returns the same stages with each call timed."""
        return clocked(stages, lambda name, spent: self.stage_seconds.labels(name).observe(spent / 1e9))

    def note(self, decision: Decision) -> None:
        """Count the results of a step."""
        self.steps.inc()
        for cause in decision.causes:
            self.rounds.labels(cause.value).inc()
        for order in (*decision.orders, *decision.transitions):
            self.transitions.labels(order.kind.value).inc()
        self.offers.inc(len(decision.offers))
        for fault in decision.faults:
            if fault.stage is None:
                self.refused.inc()
            else:
                self.faults.labels(fault.plugin, fault.stage.value).inc()
        for record in decision.records:
            gaps = [gap for gap in record.columns.get("gap", ()) if isinstance(gap, float) and math.isfinite(gap)]
            if gaps:
                self.gap.labels(record.plugin, record.table).set(max(gaps))

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format; to be called where the state may be read."""
        return generate_latest(self.registry)


class _StateGauges:
    """Gauges that are computed from the state at each scrape."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Returns no metrics: there is no state yet when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the present values of all gauges."""
        service = self._service
        ready = service.ready.is_set()
        yield _labelled("eunomia_build", "What serves.", [((__version__, service.profile.name), 1.0)],
                        "version", "profile")  # fmt: skip
        yield _one("eunomia_ready", "1: the arbiter has its machines and makes steps.", float(ready))
        if not ready:
            return
        state = service.state
        yield _one("eunomia_fallen_back", "1: the fallback serves, for the profile failed too often.",
                   float(state.fallen_back))  # fmt: skip
        yield _one("eunomia_journal_step", "The last step in the journal.", float(service.journal.last_step))
        up = [((node.name,), float(node.registered and not node.lost)) for node in service.nodes]
        yield _labelled("eunomia_machine_up", "1: its launcher answers.", up, "machine")
        yield from _slots(state)
        yield from _jobs(state)
        yield from self._apps(state)

    def _apps(self, state: State) -> Iterator[Metric]:
        service = self._service
        live = [(app, row) for app in service.apps.live if (row := state.app_row(AppId(app.name))) >= 0]
        held = Tally(state.holdings.live.app.tolist())
        states = Tally(app.state if app.over else "live" for app in service.apps)
        yield _labelled("eunomia_apps", "Apps by state.", [((name,), float(n)) for name, n in states.items()], "state")
        slots = {(app.name, app.user): float(held[row]) for app, row in live}
        yield _labelled("eunomia_app_slots", "Slots that a live app holds.", slots.items(), "app", "user")
        rhos = {(app.name, app.user): service.standings.rho(app) for app, _ in live}
        known = {labels: rho for labels, rho in rhos.items() if rho is not None and math.isfinite(rho)}
        yield _labelled("eunomia_app_rho", "Finish-time fairness: time in the shared cluster over time alone on 1/N.",
                        known.items(), "app", "user")  # fmt: skip


def _slots(state: State) -> Iterator[Metric]:
    counts = np.bincount(state.holdings.live.state, minlength=len(GpuState)).tolist()
    counted = {(one.name.lower(),): float(counts[int(one)]) for one in GpuState}
    yield _labelled("eunomia_slots", "Slots by state.", counted.items(), "state")


def _jobs(state: State) -> Iterator[Metric]:
    rows = np.flatnonzero(state.jobs.live.state[: state.jobs.used] != int(JobState.EMPTY))
    states = state.jobs.live.state[rows].tolist()
    counts = Tally(states)
    counted = {(one.name.lower(),): float(counts[int(one)]) for one in JobState if one is not JobState.EMPTY}
    yield _labelled("eunomia_jobs", "Jobs that are not over, by state.", counted.items(), "state")
    waiting = [row for row, one in zip(rows.tolist(), states, strict=True) if one in _WAITING]
    reasons = Tally(reason.word for row in waiting if (reason := state.reason(row)) is not None)
    queue = {(reason.word,): float(reasons[reason.word]) for reason in Reason}
    yield _labelled("eunomia_queue", "Waiting jobs by reason; see the reference of reasons.", queue.items(), "reason")


def _one(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_, value=value)


def _labelled(name: str, help_: str, values: Iterable[tuple[tuple[str, ...], float]], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, help_, labels=labels)
    for named, value in values:
        family.add_metric(named, value)
    return family
