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
"""Metadata of a grid's field: one line that says what it means, and its least number."""


class PaperCell(Protocol):
    """One simulation of a paper."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> str:
        """Unique name of the cell, also of its file; see ``cell_key``."""
        ...


class PaperFigures(Protocol):
    """The figures that a cell measures."""

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
    """Return a field of a grid that ``--set`` changes.

    Args:
        default: its value where ``--set`` gives none.
        meaning: one line, which ``--help`` and the reference show.
        least: the least number that ``--set`` takes; None: any.
    """
    return dataclasses.field(default=default, metadata={MEANING: meaning, LEAST: least})


@builds
class Runs(Generic[G, C, F]):
    """The finished cells of a grid."""

    grid: G
    done: Mapping[str, F]
    """Figures by key of the cell."""
    stale: frozenset[str] = frozenset()
    """Keys of cells that other code than this has run."""


@builds
class Claim(Generic[G, C, F]):
    """A claim of a paper that a reproduction measures."""

    figure: str
    """The figure, table or section of the claim, which ``--only`` selects: ``Fig 9``, ``Table 5``, ``§6.2.3``."""
    text: str
    """The claim in a few words."""
    printed: str
    """The number or word that the paper prints."""
    measure: Callable[[Runs[G, C, F]], Measured]
    """Measures the claim; returns ``NOT_RUN`` if its cells are missing."""
    cells: Callable[[int], Iterable[C]]
    """Returns the cells that the claim needs for a seed; none if ``measure`` needs no cells."""
    section: str = ""
    """The section of the paper that states it."""
    goal: bool = False
    """Whether the number is ours: goals are shown, and not counted among the paper's claims."""
    differs: tuple[str, ...] = ()
    """By policy, how its cells differ from shipped presets: nothing else may differ."""
    marked: str = ""
    """What one of its policies knows beforehand and the others do not, and why; empty: all know the same."""


Row = tuple[Claim[Any, Any, Any], Measured]


@builds
class Paper(Generic[G, C, F]):
    """A paper with the claims that a reproduction measures."""

    title: str
    """Title with venue and year, such as ``Themis (NSDI 2020)``."""
    grid: type[G]
    """Its fields have defaults; ``seeds`` is one of them, and ``--apps`` sets those that end in ``apps``."""
    figures: type[F]
    claims: Callable[[G], Sequence[Claim[G, C, F]]]
    """Returns all claims in the paper's order."""
    run: Callable[[C], F]
    """Simulates a cell; a function of a module, since worker processes import it."""
    fixed: Callable[[G], Sequence[str]]
    """Returns the decisions made before the first run, one sentence each: clusters, sizes, leases, open points."""
    said: Callable[[C, F], str]
    """Returns the line shown when a cell is done, such as ``themis, seed 0: worst ρ 1.75``."""
    seconds: Callable[[C], float | None] = lambda cell: None
    """Estimates the CPU seconds of a cell; None: they are not known beforehand."""
    tables: Callable[[Runs[G, C, F]], list[dict[str, Any]]] = lambda runs: []
    """Returns tables of levels from the finished cells, as plain values."""
    files: Callable[[C], Iterable[NeededFile | Reading]] = lambda cell: ()
    """Returns the files of others that a cell reads, and what it makes of them first: a run that lacks a file, or whose
    files have wrong content, is refused before its first simulation."""


def cells_of(seeds: Iterable[int], claims: Sequence[Claim[Any, C, Any]]) -> tuple[C, ...]:
    """Return the cells of some claims, each once, in order of seeds, so that an interrupted run has whole seeds."""
    return tuple(dict.fromkeys(cell for seed in seeds for claim in claims for cell in claim.cells(seed)))


def cell_key(cell: Any, version: int, *names: object) -> str:
    """Return a key made from the names and a hash of all fields.

    Args:
        cell: a dataclass.
        version: increased when figures of earlier versions must not be used again.
        names: text at the start of the key, such as the policy and the seed.
    """
    text = json.dumps([version, dataclasses.asdict(cell)], sort_keys=True)
    return "-".join([*map(str, names), hashlib.sha256(text.encode()).hexdigest()[:12]])
