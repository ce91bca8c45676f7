"""The interface of a paper, which the folder of a paper implements as ``PAPER`` in its module ``paper``.

A paper has a *grid* (a frozen dataclass with the seeds, the sizes, and everything fixed before the first run),
*claims* (the paper's statements with their cells and measures), *cells* (one simulation each, with its settings as
fields) and *figures* (the results of a cell). Cells and figures are dataclasses of plain values, since they are passed
between processes and stored as JSON.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from eunomia.model.shapes import builds
from eunomia_testbed.reproduce.files import NeededFile, Reading
from eunomia_testbed.reproduce.verdicts import Measured

MEANING: Final = "meaning"
LEAST: Final = "least"
"""Metadata keys of a grid's field: its meaning in one line, and the least number that it accepts."""


class PaperCell(Protocol):
    """A cell: one simulation of a paper."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> str:
        """Return the unique name of the cell, which also names its file; see ``cell_key``."""
        ...


class PaperFigures(Protocol):
    """The results of a cell."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time of the simulation."""
        ...


class PaperGrid(Protocol):
    """The settings of a reproduction; ``--set`` changes its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that every cell runs with."""
        ...


T = TypeVar("T")
G = TypeVar("G", bound=PaperGrid)
C = TypeVar("C", bound=PaperCell)
F = TypeVar("F", bound=PaperFigures)


def setting(default: T, meaning: str, *, least: float | None = None) -> T:
    """Return a grid's field that ``--set`` can change.

    Args:
        default: its value unless ``--set`` gives another.
        meaning: its meaning in one line, for ``--help`` and the reference.
        least: the least number that ``--set`` accepts; None: any.
    """
    return dataclasses.field(default=default, metadata={MEANING: meaning, LEAST: least})


@builds
class Runs(Generic[G, C, F]):
    """A grid with its finished cells."""

    grid: G
    done: Mapping[str, F]
    """Results by the cell's key."""
    stale: frozenset[str] = frozenset()
    """Keys of cells that were run by a different version of the code."""


@builds
class Claim(Generic[G, C, F]):
    """A claim of a paper that a reproduction measures."""

    figure: str
    """The figure, table or section of the claim, by which ``--only`` selects it: ``Fig 9``, ``Table 5``, ``§6.2.3``."""
    text: str
    """The claim in a few words."""
    printed: str
    """The number or word that the paper prints."""
    measure: Callable[[Runs[G, C, F]], Measured]
    """Measures the claim from finished cells; returns ``NOT_RUN`` if its cells are missing."""
    cells: Callable[[int], Iterable[C]]
    """Returns the cells that the claim needs for a seed; none if ``measure`` needs no cells."""
    section: str = ""
    """The section of the paper that states the claim."""
    goal: bool = False
    """Whether the number is our own goal: goals are shown, but do not count among the paper's claims."""
    differs: tuple[str, ...] = ()
    """How the cells of each policy differ from shipped presets; they must not differ otherwise."""
    marked: str = ""
    """What one of the policies knows beforehand while the others do not, and why; empty: all know the same."""


Row = tuple[Claim[Any, Any, Any], Measured]


@builds
class Paper(Generic[G, C, F]):
    """A paper with the claims that a reproduction measures."""

    title: str
    """Title with venue and year, such as ``Themis (NSDI 2020)``."""
    grid: type[G]
    """The grid's dataclass: all fields have defaults, ``seeds`` is one of them, and ``--apps`` sets those that end in
    ``apps``."""
    figures: type[F]
    claims: Callable[[G], Sequence[Claim[G, C, F]]]
    """Returns all claims in the paper's order."""
    run: Callable[[C], F]
    """Simulates a cell and returns its results; a module-level function, since worker processes import it."""
    fixed: Callable[[G], Sequence[str]]
    """Returns the decisions made before the first run, one sentence each: clusters, sizes, leases, open points."""
    said: Callable[[C, F], str]
    """Returns the line that is shown when a cell has finished, such as ``themis, seed 0: worst ρ 1.75``."""
    seconds: Callable[[C], float | None] = lambda cell: None
    """Estimates the CPU seconds of a cell; None: they are unknown."""
    tables: Callable[[Runs[G, C, F]], list[dict[str, Any]]] = lambda runs: []
    """Returns tables of numbers from the finished cells, as plain values."""
    files: Callable[[C], Iterable[NeededFile | Reading]] = lambda cell: ()
    """Returns the third-party files that a cell reads, and its readings of them. A run is refused before its first
    simulation if a file is missing or has invalid content."""


def cells_of(seeds: Iterable[int], claims: Sequence[Claim[Any, C, Any]]) -> tuple[C, ...]:
    """Return the cells of some claims, each once, ordered by seed, so that an interrupted run has complete seeds."""
    return tuple(dict.fromkeys(cell for seed in seeds for claim in claims for cell in claim.cells(seed)))


def cell_key(cell: Any, version: int, *names: object) -> str:
    """Return a key that consists of the names and a hash of all fields.

    Args:
        cell: a dataclass.
        version: must be increased if results of earlier versions must not be reused.
        names: text at the start of the key, such as the policy and the seed.
    """
    text = json.dumps([version, dataclasses.asdict(cell)], sort_keys=True)
    return "-".join([*map(str, names), hashlib.sha256(text.encode()).hexdigest()[:12]])
