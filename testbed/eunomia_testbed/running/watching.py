"""Observers of the progress of cells."""

from typing import Protocol

from eunomia_testbed.running.plan import Cell
from eunomia_testbed.simulator import Progress


class Watch(Protocol):
    """Observes the progress of each cell, and never changes a result."""

    def began(self, cell: Cell) -> None:
        """Note that a cell begins to run."""
        ...

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Note that a cell has made progress."""
        ...

    def ended(self, cell: Cell) -> None:
        """Note that a cell's files are written."""
        ...


class Silent:
    """An observer that does nothing."""

    def began(self, cell: Cell) -> None:
        """Do nothing."""

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Do nothing."""

    def ended(self, cell: Cell) -> None:
        """Do nothing."""
