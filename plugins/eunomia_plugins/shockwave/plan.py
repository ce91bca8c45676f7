"""The memo of ``shockwave``: the plan by job id, and the next round to serve."""

import dataclasses
import json
import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from eunomia.units import Bools

Spans = tuple[int, ...]
"""Rounds of a job as start and end (exclusive) of each span: (0, 3, 5, 6) means the rounds 0, 1, 2 and 5."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The planned rounds of jobs, by job id, in a window whose first round has index 0."""

    rounds: int
    seconds: float
    """Length of a round in seconds."""
    capacity: tuple[int, ...]
    """Number of GPUs by type."""
    present: dict[str, int]
    """All jobs present at planning, with their number of adaptations at that time."""
    turns: dict[str, Spans]
    """Spans of the jobs with at least one round."""

    @cached_property
    def encoded(self) -> str:
        """Return the window as JSON, sorted by id, which does not change while its rounds are served."""
        return json.dumps([self.rounds, self.seconds, self.capacity, self.present, self.turns], sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """The memo: a planned window, and the next of its rounds to serve."""

    version: ClassVar[int] = 1
    row: int
    """Index of the next round to serve."""
    due: float
    """Start of that round, in seconds since the start."""
    window: Window

    def starts_at(self, job: str) -> float:
        """Return the start of the job's next planned round, in seconds since the start; NaN if it has none."""
        spans = self.window.turns.get(job, ())
        for start, end in zip(spans[::2], spans[1::2], strict=True):
            if end > self.row:
                return self.due + max(start - self.row, 0) * self.window.seconds
        return math.nan

    def rounds_left(self, job: str) -> int:
        """Return the number of the job's rounds that are still to be served."""
        spans = self.window.turns.get(job, ())
        return sum(max(end - max(start, self.row), 0) for start, end in zip(spans[::2], spans[1::2], strict=True))

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON."""
        return f"[{self.row}, {json.dumps(self.due)}, {self.window.encoded}]".encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        row, due, (rounds, seconds, capacity, present, turns) = json.loads(data)
        window = Window(
            rounds=rounds,
            seconds=seconds,
            capacity=tuple(capacity),
            present=present,
            turns={job: tuple(spans) for job, spans in turns.items()},
        )
        return cls(row=row, due=due, window=window)


def spans_of(names: list[str], rounds: Bools) -> dict[str, Spans]:
    """Return the spans of the jobs that run in the window, by job id.

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
