"""Least attained service first (Tiresias, NSDI'19)."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from eunomia import (
    NEVER,
    Claims,
    Contract,
    Feature,
    Offer,
    PluginOptions,
    Scores,
    Seconds,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    hookimpl,
)
from eunomia.contracts import Contracts
from eunomia.units import Ints, Reals, Rows


class LasOptions(PluginOptions):
    """Options of ``las``."""

    attained: Literal["gpu_seconds", "seconds"] = "gpu_seconds"
    """What counts as service: GPUs times seconds (Tiresias' 2D-LAS), or seconds alone."""
    queues: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...] = ()
    """Ascending thresholds of service between queues; within a queue jobs go by arrival. None: no queues."""

    @field_validator("queues")
    @classmethod
    def _ascending(cls, queues: tuple[float, ...]) -> tuple[float, ...]:
        if list(queues) != sorted(set(queues)):
            raise ValueError("must be in ascending order")
        return queues


class Las:
    """The jobs that received least come first, so that short jobs finish early without knowing how long they are."""

    name = "las"
    api = 1
    options_type = LasOptions
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}

    def __init__(self, options: LasOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        """Score each candidate by service attained and arrival, or by its queue and arrival."""
        jobs = offer.candidates
        attained = self._attained(snapshot, jobs)
        claims = Claims(unit=Unit.JOB, rows=jobs)
        arrived = snapshot.jobs.arrived[jobs]
        if not self.options.queues:
            return Valuations(claims=claims, forms=(Scores(score=np.column_stack([attained, arrived])),))
        queue = np.searchsorted(np.array(self.options.queues), attained, side="right").astype(np.float64)
        return Valuations(
            claims=claims,
            forms=(Scores(score=np.column_stack([queue, arrived])),),
            wake_at=self._crossing(snapshot),
            holds=self._until_threshold(attained) / self._speed(snapshot.jobs.most[jobs]),
        )

    def _attained(self, snapshot: Snapshot, jobs: Rows) -> Reals:
        ledger = snapshot.ledger.jobs
        return ledger.received[jobs].sum(axis=1) if self.options.attained == "gpu_seconds" else ledger.attained[jobs]

    def _speed(self, gpus: Ints) -> Reals:
        """Service a second of jobs on so many GPUs."""
        return np.maximum(gpus, 1).astype(float) if self.options.attained == "gpu_seconds" else np.ones(gpus.size)

    def _until_threshold(self, attained: Reals) -> Reals:
        """Service until the next queue; inf in the last one."""
        ends = np.append(self.options.queues, np.inf)
        return np.asarray(ends[np.searchsorted(ends, attained, side="right").clip(max=ends.size - 1)] - attained)

    def _crossing(self, snapshot: Snapshot) -> Seconds:
        """When the first running job enters its next queue."""
        held = snapshot.holdings.job[snapshot.holdings.job >= 0]
        jobs, gpus = np.unique(held, return_counts=True)
        if jobs.size == 0:
            return NEVER
        wait = self._until_threshold(self._attained(snapshot, jobs)) / self._speed(gpus)
        # A job at its threshold belongs to the next queue already; rounding must not ask for this very moment again.
        return Seconds(snapshot.now + max(float(wait.min()), 1e-3))
