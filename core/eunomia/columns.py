"""Growable tables of numpy columns: the core writes them in place, stages see read-only views of the same memory."""

import dataclasses
from typing import Any, Generic, TypeVar

import numpy as np

C = TypeVar("C")


def column(dtype: Any, fill: Any, *, width: str | None = None) -> Any:
    """Declare a column of a table: its dtype, what an empty row holds, and for a matrix the name of its width."""
    return dataclasses.field(metadata={"dtype": dtype, "fill": fill, "width": width})


class Table(Generic[C]):
    """Columns with a row for each living thing; a row is stable while the thing lives and is then used again.

    Args:
        columns: a dataclass whose fields were declared with ``column``.
        widths: the number of columns of each matrix field, by the name given in its declaration.
    """

    def __init__(self, columns: type[C], *, capacity: int = 16, widths: dict[str, int] | None = None) -> None:
        self._type = columns
        self._widths = widths or {}
        self._fields = dataclasses.fields(columns)  # type: ignore[arg-type]
        self._free: list[int] = []
        self.used = 0
        self.live = self._empty(capacity)
        self.view = self._readonly()

    @property
    def capacity(self) -> int:
        """Rows that exist, in use or not."""
        return int(getattr(self.live, self._fields[0].name).shape[0])

    def add(self, **values: object) -> int:
        """Take a row, fill it, and return its number; columns that are not named hold what an empty row holds."""
        if self._free:
            row = self._free.pop()
        else:
            if self.used == self.capacity:
                self._grow()
            row = self.used
            self.used += 1
        for name, item in values.items():
            getattr(self.live, name)[row] = item
        return row

    def copy_row(self, source: "Table[C]", row: int, **changed: object) -> int:
        """Take a row and fill it with another table's, but for the columns given; return its number."""
        held = {field.name: getattr(source.live, field.name)[row] for field in self._fields}
        return self.add(**(held | changed))

    def drop(self, row: int) -> None:
        """Give a row back: it is emptied, and used again later."""
        for field in self._fields:
            getattr(self.live, field.name)[row] = field.metadata["fill"]
        self._free.append(row)

    def state(self) -> dict[str, Any]:
        """Everything that ``restore`` needs, as plain values."""
        columns = {field.name: getattr(self.live, field.name)[: self.used].tolist() for field in self._fields}
        return {"used": self.used, "free": list(self._free), "columns": columns}

    def restore(self, state: dict[str, Any]) -> None:
        """Hold what ``state`` said."""
        self.used = 0
        self.live = self._empty(max(1, int(state["used"])))  # as many rows as GPUs, where rows are GPUs
        self.used = int(state["used"])
        self._free = [int(row) for row in state["free"]]
        for field in self._fields:
            if self.used:
                getattr(self.live, field.name)[: self.used] = _column(state["columns"][field.name], field.metadata)
        self._show()

    def _shape(self, field: "dataclasses.Field[Any]", capacity: int) -> tuple[int, ...]:
        width = field.metadata["width"]
        return (capacity,) if width is None else (capacity, self._widths[width])

    def _empty(self, capacity: int) -> C:
        return self._type(
            **{
                field.name: np.full(self._shape(field, capacity), field.metadata["fill"], dtype=field.metadata["dtype"])
                for field in self._fields
            }
        )

    def _grow(self) -> None:
        old, rows = self.live, self.used
        self.live = self._empty(2 * self.capacity)
        for field in self._fields:
            getattr(self.live, field.name)[:rows] = getattr(old, field.name)[:rows]
        self._show()

    def _readonly(self) -> C:
        views = {}
        for field in self._fields:
            views[field.name] = getattr(self.live, field.name).view()
            views[field.name].flags.writeable = False
        return self._type(**views)

    def _show(self) -> None:
        """Point the views at the new memory; whoever holds ``view`` sees it."""
        for field in self._fields:
            fresh = getattr(self.live, field.name).view()
            fresh.flags.writeable = False
            setattr(self.view, field.name, fresh)


def _column(items: list[Any], metadata: Any) -> Any:
    if metadata["dtype"] is object:
        made = np.empty(len(items), dtype=object)
        made[:] = items
        return made
    return np.array(items, dtype=metadata["dtype"])
