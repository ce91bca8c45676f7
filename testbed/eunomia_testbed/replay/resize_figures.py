"""The number and cost of size changes of a run's jobs: the rows of ``resizes.csv``."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from eunomia.model.shapes import value
from eunomia_testbed.metrics.size_changes import changes_of, micro
from eunomia_testbed.replay.causes import Cause, Decisions, SlotTime
from eunomia_testbed.results.run_data import RunData

HEADINGS: Final = (
    *("policy", "side", "repeat", "way", "jobs", "resizes", "resizes_a_job"),
    *("still_seconds", "still_seconds_a_resize", "lost_slot_seconds", "lost_share"),
)


@value
class ResizeFigures:
    """The changes of size of one run.

    Attributes:
        jobs: number of jobs.
        resizes: number of changes of a running job's slots.
        still_seconds: seconds in which jobs made no steps because of changes, summed over the jobs.
        lost_slot_seconds: slot time lost by changes.
        lost_share: slot time lost by changes as a fraction of the run's slot time.
    """

    jobs: int
    resizes: int
    still_seconds: float
    lost_slot_seconds: float
    lost_share: float

    def row(self) -> tuple[object, ...]:
        """Return the figures in the order of ``HEADINGS``, from ``jobs`` on."""
        each = self.still_seconds / self.resizes if self.resizes else None
        a_job = self.resizes / self.jobs if self.jobs else None
        return self.jobs, self.resizes, a_job, self.still_seconds, each, self.lost_slot_seconds, self.lost_share

    def words(self) -> str:
        """Return the figures as text."""
        if not self.resizes:
            return "no job changed its size"
        each = f"{self.still_seconds / self.resizes:.2f} s each"
        jobs = f"{self.resizes} resizes, {self.resizes / self.jobs:.1f} a job"
        return (
            f"{jobs}; jobs stood still for {self.still_seconds:.1f} s, {each}; {self.lost_slot_seconds:.1f} slot s lost"
        )


def resize_figures(data: RunData, policy: str, seed: int, decisions: Decisions, time: SlotTime) -> ResizeFigures:
    """Return the size changes of one run, with their costs.

    Args:
        data: tables of a real or a simulated run.
        policy: the policy of the run.
        seed: the seed of the run.
        decisions: pauses of live changes in a real run, which are missing from its tables.
        time: slot time of the run.
    """
    segments, leases, jobs = (
        frame.filter((pl.col("policy") == policy) & (pl.col("seed") == seed))
        for frame in (data.segments, data.leases, data.jobs)
    )
    changes = changes_of(segments, leases, end=micro(float(segments["end_seconds"].max() or 0.0)))  # type: ignore[arg-type]
    pauses = [end - start for spans in decisions.resizes.values() for start, end in spans]
    stood = [(each.still[1] - each.still[0]) / 1e6 for each in changes]
    return ResizeFigures(
        jobs=jobs.height,
        resizes=len(changes),
        still_seconds=math.fsum([*stood, *pauses]),
        lost_slot_seconds=time.seconds(Cause.RESIZE),
        lost_share=time.share(Cause.RESIZE),
    )
