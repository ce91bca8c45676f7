"""The memo of ``shockwave``: the plan by job id, and the row that is next."""

import dataclasses
import json
import math
from typing import ClassVar, Self

import numpy as np

from eunomia.units import Bools

Spans = tuple[int, ...]
"""Rounds of a job as first and end of each stretch: (0, 3, 5, 6) is the rounds 0, 1, 2 and 5."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rounds by id of job, in a window whose first round is row 0."""

    version: ClassVar[int] = 1
    row: int
    """The row that the next round serves."""
    due: float
    """When that round begins, in seconds since the start."""
    window: int
    seconds: float
    """Length of a round."""
    capacity: tuple[int, ...]
    """GPUs by type."""
    jobs: dict[str, int]
    """All jobs that were present, with the number of their adaptations so far."""
    rounds: dict[str, Spans]
    """Jobs with at least one round."""

    def starts_at(self, job: str) -> float:
        """When the job's first round from the next row on begins, in seconds since the start; NaN: it has none."""
        spans = self.rounds.get(job, ())
        for start, end in zip(spans[::2], spans[1::2], strict=True):
            if end > self.row:
                return self.due + max(start - self.row, 0) * self.seconds
        return math.nan

    def to_bytes(self) -> bytes:
        """As JSON, sorted by id."""
        parts = [self.row, self.due, self.window, self.seconds, self.capacity, self.jobs, self.rounds]
        return json.dumps(parts, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode; only version 1 exists."""
        row, due, window, seconds, capacity, jobs, rounds = json.loads(data)
        return cls(
            row=row,
            due=due,
            window=window,
            seconds=seconds,
            capacity=tuple(capacity),
            jobs=jobs,
            rounds={job: tuple(spans) for job, spans in rounds.items()},
        )


def spans_of(names: list[str], rounds: Bools) -> dict[str, Spans]:
    """Stretches of the jobs that run in the window.

    Args:
        names: ids of jobs.
        rounds: [job, round] whether the job runs.
    """
    border = np.zeros((len(names), 1), dtype=bool)
    job, edge = np.nonzero(np.diff(np.hstack([border, rounds, border]), axis=1))
    own = np.searchsorted(job, np.arange(len(names) + 1)).tolist()
    edges = edge.tolist()
    return {
        name: tuple(edges[start:end]) for name, start, end in zip(names, own[:-1], own[1:], strict=True) if end > start
    }
