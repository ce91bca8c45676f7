"""Divides a global batch into the pieces that each worker computes (docs/decisions/0010-global-batch.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Index = TypeVar("Index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the batches of a run are divided.

    Attributes:
        rank: rank of this worker, from 0.
        workers: number of workers.
        micro_batches: least number of passes into which each worker's part is divided.
        micro_batch_size: most samples of one pass; None if memory sets no limit.
    """

    rank: int = 0
    workers: int = 1
    micro_batches: int = 1
    micro_batch_size: int | None = None

    @property
    def whole(self) -> bool:
        """Whether one worker takes every global batch in one piece."""
        return self.workers == 1 and not self.accumulates

    @property
    def accumulates(self) -> bool:
        """Whether gradients of several pieces may have to add up before a step."""
        return self.micro_batches > 1 or self.micro_batch_size is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The samples of one worker's forward and backward pass.

    Attributes:
        indices: samples of the data set. A worker whose part is empty gets the first sample of the batch with weight 0,
            since it must take part in the reduction of gradients.
        samples: number of samples that count.
        weight: factor of the gradient of the samples' mean loss, chosen so that DDP's average over workers and the sum
            over pieces give the gradient of the mean loss over the global batch.
        first: whether this is the first piece of its global batch.
        last: whether this is the last piece of its global batch, after which the optimizer steps.
    """

    indices: list[object]
    samples: int
    weight: float
    first: bool
    last: bool


def divide(batch: Sequence[Index], division: Division) -> list[Piece]:
    """Divide a global batch and return the pieces of one worker; every worker gets the same number of pieces."""
    count = _pieces_per_worker(len(batch), division)
    part = _part(batch, division.rank, division.workers)
    return [_piece(batch, _part(part, number, count), division.workers, number, count) for number in range(count)]


def _pieces_per_worker(samples: int, division: Division) -> int:
    largest = -(-samples // division.workers)
    wanted = division.micro_batches
    if division.micro_batch_size is not None:
        wanted = max(wanted, -(-largest // division.micro_batch_size))
    return min(wanted, largest)


def _part(sequence: Sequence[Index], number: int, count: int) -> Sequence[Index]:
    # Bounds are rounded up: with fewer samples than workers, rank 0 still has one, since its buffers are the ones used.
    start, end = (-(-len(sequence) * bound // count) for bound in (number, number + 1))
    return sequence[start:end]


def _piece(batch: Sequence[Index], part: Sequence[Index], workers: int, number: int, count: int) -> Piece:
    return Piece(
        indices=list(part or batch[:1]),
        samples=len(part),
        weight=len(part) * workers / len(batch),
        first=number == 0,
        last=number == count - 1,
    )
