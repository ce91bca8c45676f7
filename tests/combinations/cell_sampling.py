"""Selects the cells of the combination table that run if there are too many to run all of them."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

C = TypeVar("C")
Choices = tuple[object, ...]


def sampled(
    cells: Sequence[C], most: int, choices: Callable[[C], Choices], neighbours: Callable[[C], Iterable[C]]
) -> list[C]:
    """Choose cells so that the chosen ones contain each pair of choices that some cell has.

    The order does not depend on that of the cells. After the pairs, neighbours of chosen cells are added: a cell can
    only be compared with neighbours that run.

    Args:
        cells: the cells that can run.
        most: number of cells to choose; more are chosen if the pairs need more.
        choices: returns the choice of a cell on each axis.
        neighbours: returns the cells that differ from a cell on one axis.

    Returns:
        All cells if there are at most ``most``.
    """
    if len(cells) <= most:
        return list(cells)
    order = sorted(cells, key=lambda cell: hashlib.blake2b(repr(choices(cell)).encode(), digest_size=8).digest())
    covered: set[object] = set()
    chosen: dict[C, None] = {}
    for cell in order:
        pairs = set(pairs_of(choices(cell)))
        if not pairs <= covered:
            covered |= pairs
            chosen[cell] = None
    there = set(cells)
    near = [[other for other in neighbours(cell) if other in there] for cell in chosen]
    for cell in itertools.chain(_in_turn(near), order):
        if len(chosen) >= most:
            break
        chosen[cell] = None
    return list(chosen)


def _in_turn(parts: Sequence[Sequence[C]]) -> Iterator[C]:
    """Yield the first of each part, then the second of each, and so on."""
    for turn in range(max((len(part) for part in parts), default=0)):
        yield from (part[turn] for part in parts if turn < len(part))


def pairs_of(choices: Choices) -> Iterator[object]:
    """Yield each two choices of a cell, with their axes."""
    return itertools.combinations(enumerate(choices), 2)
