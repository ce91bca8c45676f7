"""Least attained service (Tiresias, NSDI'19): continuous or in discrete queues, with promotion of starved jobs."""

import bisect
import math
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field, field_validator

from eunomia import (
    NEVER,
    Claims,
    Contract,
    Explanation,
    Facts,
    Feature,
    Linear,
    Memo,
    Menus,
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
from eunomia.contract.contracts import Contracts
from eunomia.units import Bools, Ints, JobId, Reals, Rows
from eunomia_plugins.orders.crossings import SOON, Crossings
from eunomia_plugins.orders.promotions import Promotions


class LasOptions(PluginOptions):
    """Options of ``las``."""

    attained: Literal["gpu_seconds", "seconds"] = "gpu_seconds"
    """The measure of service: GPU-seconds (Tiresias' 2D-LAS), or seconds."""
    queues: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...] = ()
    """Ascending service thresholds between queues; within a queue, jobs are ordered by arrival. Empty: no queues."""
    promote: bool = False
    """Whether a job that waited too long returns to the first queue, as if it had attained no service."""
    promote_knob: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 8.0
    """A job is promoted once its waiting time is this multiple of its run time (Tiresias' PROMOTEKNOB)."""

    @field_validator("queues")
    @classmethod
    def _ascending(cls, queues: tuple[float, ...]) -> tuple[float, ...]:
        if list(queues) != sorted(set(queues)):
            raise ValueError("must be in ascending order")
        return queues


class Las:
    """Least attained service first, so that short jobs finish early although lengths are unknown."""

    name = "las"
    api = 1
    options_type = LasOptions
    contracts: ClassVar[Contracts] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES, Feature.JOB_CLAIMS}))}
    memo_types: ClassVar[dict[Stage, type[Memo]]] = {Stage.VALUATION: Promotions}

    def __init__(self, options: LasOptions) -> None:
        self.options = options
        self._ends: Reals = np.append(np.array(options.queues, dtype=np.float64), np.inf)
        self._by_gpus = options.attained == "gpu_seconds"
        self._crossings = Crossings()

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Valuations:
        """Score each candidate by its attained service and arrival, or by its queue and arrival."""
        if self.options.promote:
            return self._with_promotions(snapshot, offer)

        if not self.options.queues or not offer.contended:  # else all waiting jobs are served, and no rank matters
            return Valuations.by_job(snapshot, menus, offer, self._key)

        def holds(jobs: Rows) -> Reals:
            return self._holds(snapshot, jobs)

        crossings = self._crossings if snapshot.index.kept else Crossings()
        wake_at = crossings.first(snapshot, snapshot.index.facts(menus), self._key)
        return Valuations.by_job(snapshot, menus, offer, self._key, wake_at=wake_at, holds=holds)

    def _with_promotions(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        jobs = offer.candidates
        memo, wake_at = self._promoted(snapshot, offer)
        attained = self._attained(snapshot, jobs, memo)
        claims = Claims(unit=Unit.JOB, rows=jobs)
        arrived = snapshot.jobs.arrived[jobs]
        if not self.options.queues:
            score = np.column_stack([attained, arrived])
            return Valuations(claims=claims, forms=(Scores(score=score),), memo=memo, wake_at=wake_at)
        queue = np.searchsorted(self._ends[:-1], _reached(attained), side="right").astype(np.float64)
        return Valuations(
            claims=claims,
            forms=(Scores(score=np.column_stack([queue, arrived])),),
            memo=memo,
            wake_at=min(wake_at, self._crossing(snapshot, memo)),
            holds=self._until_threshold(attained) / self._speed(snapshot.jobs.most[jobs]),
        )

    def _key(self, facts: Facts, job: int) -> Linear:
        """Return the attained service as the key, or the queue, valid until the job enters the next queue."""
        attained, each = facts.gpu_seconds(job) if self._by_gpus else facts.seconds(job)
        if not self.options.queues:
            return Linear(attained, each)
        queue = bisect.bisect_right(self.options.queues, _reached(attained + each * facts.now))
        end = self.options.queues[queue] if queue < len(self.options.queues) else math.inf
        return Linear(float(queue), 0.0, (end - attained) / each if each > 0.0 else math.inf)

    def _holds(self, snapshot: Snapshot, jobs: Rows) -> Reals:
        """Return for how many seconds each job stays in its queue once it runs on all its GPUs."""
        attained, each = snapshot.service(jobs, by_gpus=self.options.attained == "gpu_seconds")
        left = self._until_threshold(attained + each * snapshot.now)
        return np.asarray(left / self._speed(snapshot.jobs.most[jobs]))

    @hookimpl
    def eunomia_explain(self, snapshot: Snapshot, job: JobId) -> Explanation:
        """Explain the job's place by its attained service: jobs with less come first."""
        row = np.flatnonzero(snapshot.jobs.id == job).astype(np.int32)
        memo = snapshot.memos.of(self.name, Stage.VALUATION)
        attained = float(self._attained(snapshot, row, memo if isinstance(memo, Promotions) else None)[0])
        unit = self.options.attained.replace("_", "-")
        text = f"It has received {attained:.0f} {unit}; jobs that received less come first."
        return Explanation(text=text, numbers={"attained": attained})

    def _attained(self, snapshot: Snapshot, jobs: Rows, memo: Promotions | None) -> Reals:
        """Return the service of each job since its arrival or last promotion."""
        ledger = snapshot.ledger.jobs
        by_gpus = self.options.attained == "gpu_seconds"
        attained: Reals = ledger.received[jobs].sum(axis=1) if by_gpus else ledger.attained[jobs]
        if memo is None or not memo.jobs:
            return attained
        before = memo.columns(snapshot, jobs)
        return np.maximum(attained - (before.received if by_gpus else before.seconds), 0.0)

    def _speed(self, gpus: Ints) -> Reals:
        """Return the service per second of jobs with these numbers of GPUs."""
        return np.maximum(gpus, 1).astype(float) if self.options.attained == "gpu_seconds" else np.ones(gpus.size)

    def _until_threshold(self, attained: Reals) -> Reals:
        """Return the service until the next queue; inf in the last queue."""
        next_end = np.searchsorted(self._ends, _reached(attained), side="right").clip(max=self._ends.size - 1)
        return np.asarray(self._ends[next_end] - attained)

    def _crossing(self, snapshot: Snapshot, memo: Promotions | None) -> Seconds:
        """Return the time in seconds at which the first running job enters its next queue."""
        held = snapshot.holdings.job[snapshot.holdings.job >= 0]
        jobs, gpus = np.unique(held, return_counts=True)
        if jobs.size == 0:
            return NEVER
        wait = self._until_threshold(self._attained(snapshot, jobs, memo)) / self._speed(gpus)
        # A job at its threshold is already in the next queue.
        return Seconds(snapshot.now + max(float(wait.min()), SOON))

    # --- starvation ------------------------------------------------------------------------------------------------

    def _promoted(self, snapshot: Snapshot, offer: Offer) -> tuple[Promotions, Seconds]:
        """Return the promotions up to and including now, and when the next one is due."""
        old = snapshot.memos.of(self.name, Stage.VALUATION)
        memo = old if isinstance(old, Promotions) else Promotions.none()
        jobs = offer.candidates[~np.isin(offer.candidates, snapshot.holdings.job)]
        before = memo.columns(snapshot, jobs)
        ledger = snapshot.ledger.jobs
        ran = ledger.attained[jobs] - before.seconds
        since = np.fmax(np.nan_to_num(ledger.last_ran[jobs], nan=0.0), before.at)
        limit = self.options.promote_knob * ran
        first = self.options.queues[0] if self.options.queues else SOON
        behind: Bools = self._attained(snapshot, jobs, memo) >= first
        starved: Bools = behind & (snapshot.now >= since + limit)
        due = (since + limit)[behind & ~starved]
        wake_at = Seconds(max(float(due.min()), float(snapshot.now) + SOON)) if due.size else NEVER
        return memo.with_promoted(snapshot, jobs[starved]), wake_at


S = TypeVar("S", float, Reals)


def _reached(attained: S) -> S:
    """Return attained service plus a rounding margin, so that a job at a threshold stays in one queue.

    The service of a running job is a linear function of time, that of a waiting job a sum; they differ in the last
    digit. Without the margin, a job could enter the next queue when it runs and leave it when it waits, endlessly.
    """
    return attained * (1.0 + 1e-9)
