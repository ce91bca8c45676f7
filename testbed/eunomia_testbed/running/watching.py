"""Observers of the progress of a plan's cells."""

from typing import Protocol

from eunomia_testbed.running.plan import Cell
from eunomia_testbed.simulator import Progress


class Watch(Protocol):
    """An observer of the progress of cells, which must not change any result."""

    def began(self, cell: Cell) -> None:
        """Observe that a cell begins to run."""
        ...

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Observe that a cell has made progress."""
        ...

    def ended(self, cell: Cell) -> None:
        """Observe that a cell's files have been written."""
        ...


class Silent:
    """An observer that ignores all progress."""

    def began(self, cell: Cell) -> None:
        """Ignore that a cell begins to run."""

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Ignore that a cell has made progress."""

    def ended(self, cell: Cell) -> None:
        """Ignore that a cell's files have been written."""
