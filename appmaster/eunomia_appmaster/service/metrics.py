"""Counters of the arbiter for Prometheus: carried-out decisions, and the time that stages take.

``gauges`` adds the values that are computed from the state.
"""

import math
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from eunomia.contract.decisions import Decision

STAGE_SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Histogram buckets in seconds: a stage of a small cluster takes 50 µs, a hard optimisation problem seconds."""


class Meters:
    """The counters of one arbiter process, which start at 0."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
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
        self.stage_seconds = Histogram("eunomia_stage_seconds", "Wall time of a stage in one step.", ["stage"],
                                       buckets=STAGE_SECONDS, registry=made)  # fmt: skip
        self.gap = Gauge("eunomia_solver_gap", "How far a plugin's last answer may be from its optimum, relative.",
                         ["plugin", "table"], registry=made)  # fmt: skip

    def note(self, decision: Decision, spent: Mapping[str, int]) -> None:
        """Count the results of a step.

        Args:
            decision: the step's decision.
            spent: nanoseconds that each stage took since the arbiter's start, by name.
        """
        for stage, total in spent.items():
            if total > self._spent.get(stage, 0):
                self.stage_seconds.labels(stage).observe((total - self._spent.get(stage, 0)) / 1e9)
        self._spent = dict(spent)
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
        """Return all metrics of the registry in Prometheus's text format; call this where the state may be read."""
        return generate_latest(self.registry)
