"""Records: tables of plain values that a plugin writes to the journal, such as an auction or a plan, for reports."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

PlainColumn = list[float | None] | list[int | None] | list[str | None] | list[bool | None]


@runtime_checkable
class Record(Protocol):
    """A frozen value of a plugin that can be read as a table without the plugin."""

    @property
    def table(self) -> str:
        """Return the table's name, which matches ``[a-z][a-z0-9_]*``."""
        ...

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return columns of equal length by name; the arbiter adds the round and the time."""
        ...
