"""Records: what an auction, a plan or a trade journals, as a table of plain values that reports read directly."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

PlainColumn = list[float | None] | list[int | None] | list[str | None] | list[bool | None]


@runtime_checkable
class Record(Protocol):
    """A frozen type of a plugin whose table can be read without the plugin."""

    @property
    def table(self) -> str:
        """The table's name, ``[a-z][a-z0-9_]*``."""
        ...

    def columns(self) -> Mapping[str, PlainColumn]:
        """Columns of equal length by name; the arbiter adds round and time."""
        ...
