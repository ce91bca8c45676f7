"""The memo of ``shockwave``: the plan by job id, and the row that is next."""

import dataclasses
import json
import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from eunomia.units import Bools

Spans = tuple[int, ...]
"""Rounds of a job as start and end of each stretch: (0, 3, 5, 6) is the rounds 0, 1, 2 and 5."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The rounds of jobs, by id, in a window whose first round is row 0."""

    rounds: int
    seconds: float
    """Length of a round."""
    capacity: tuple[int, ...]
    """GPUs by type."""
    present: dict[str, int]
    """All jobs that were present, with the number of their adaptations by then."""
    turns: dict[str, Spans]
    """Rounds of jobs with at least one round."""

    @cached_property
    def encoded(self) -> str:
        """Return the window as JSON, sorted by id; it stays the same while its rows are served."""
        return json.dumps([self.rounds, self.seconds, self.capacity, self.present, self.turns], sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """A window, and how far it has been served."""

    version: ClassVar[int] = 1
    row: int
    """The row that the next round serves."""
    due: float
    """When that round begins, in seconds since the start."""
    window: Window

    def starts_at(self, job: str) -> float:
        """When the job's first round from the next row on begins, in seconds since the start; NaN: it has none."""
        spans = self.window.turns.get(job, ())
        for start, end in zip(spans[::2], spans[1::2], strict=True):
            if end > self.row:
                return self.due + max(start - self.row, 0) * self.window.seconds
        return math.nan

    def rounds_left(self, job: str) -> int:
        """Return the rounds of the job from the next row on."""
        spans = self.window.turns.get(job, ())
        return sum(max(end - max(start, self.row), 0) for start, end in zip(spans[::2], spans[1::2], strict=True))

    def to_bytes(self) -> bytes:
        """Return the memo as JSON."""
        return f"[{self.row}, {json.dumps(self.due)}, {self.window.encoded}]".encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode; only version 1 exists."""
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
