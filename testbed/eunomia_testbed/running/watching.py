"""Who hears how cells go on."""

from typing import Protocol

from eunomia_testbed.running.plan import Cell
from eunomia_testbed.simulator import Progress


class Watch(Protocol):
    """Is told of each cell; nothing that it does changes a result."""

    def began(self, cell: Cell) -> None:
        """Hear that a cell runs now."""
        ...

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Hear how far it is."""
        ...

    def ended(self, cell: Cell) -> None:
        """Hear that its files are written."""
        ...


class Silent:
    """Shows nothing."""

    def began(self, cell: Cell) -> None:
        """Say nothing."""

    def moved(self, cell: Cell, progress: Progress) -> None:
        """Say nothing."""

    def ended(self, cell: Cell) -> None:
        """Say nothing."""
