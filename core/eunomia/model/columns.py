"""Growable tables of numpy columns: the core writes in place, and stages see read-only views of the same memory."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

C = TypeVar("C")
_APART = 24
"""Padding in items between columns of a block, so that the cells of a row fall into different cache sets."""


def column(dtype: Any, fill: Any, *, width: str | None = None) -> Any:
    """Declare a column: its dtype, the value in empty rows, and for a matrix the name of its width."""
    return dataclasses.field(metadata={"dtype": dtype, "fill": fill, "width": width})


class Table(Generic[C]):
    """A table with one row per job, app, user or GPU; a row keeps its number until it is dropped and then reused.

    Columns of the same dtype are stored in one block, so that one assignment per block empties a row.

    Args:
        columns: a dataclass whose fields were declared with ``column``.
        widths: the number of columns of each matrix field, by the name given in its declaration.
        shown: a dataclass with the fields that stages may see; None: stages see all fields.
    """

    def __init__(
        self,
        columns: type[C],
        *,
        capacity: int = 16,
        widths: dict[str, int] | None = None,
        shown: type[Any] | None = None,
    ) -> None:
        self._type = columns
        self._widths = widths or {}
        self._fields = dataclasses.fields(columns)  # type: ignore[arg-type]
        self._free: list[int] = []
        self._layout = self._lay_out()
        self.used = 0
        self.cells: C
        """The memory of ``live`` for access by cell: items are Python numbers, at half the cost of numpy scalars."""
        self.live = self._empty(capacity)
        self.view = self._type(**self._readonly(self._fields))
        """All columns, read only."""
        self._shown = self._fields if shown is None else dataclasses.fields(shown)
        self.shown: Any = self.view if shown is None else shown(**self._readonly(self._shown))
        """The columns that stages see, read only."""

    @property
    def capacity(self) -> int:
        """Return the number of rows, whether in use or free."""
        return self._capacity

    def add(self, **values: object) -> int:
        """Allocate a row, fill it, and return its number; columns not given keep the value of an empty row."""
        row, cells = self._free.pop() if self._free else self.take(), self._cells
        for name, item in values.items():
            cells[name][row] = item
        return row

    def set(self, rows: Any, **columns: Any) -> None:
        """Set columns of one or more rows; only for columns that no index depends on."""
        for name, item in columns.items():
            getattr(self.live, name)[rows] = item

    def take(self) -> int:
        """Allocate an empty row and return its number."""
        if self._free:
            return self._free.pop()
        if self.used == self._capacity:
            self._grow()
        self.used += 1
        return self.used - 1

    def drop(self, row: int) -> None:
        """Free a row: it is emptied, and reused later."""
        for line, fill in self._lines:
            line[row :: self._step] = fill
        self._free.append(row)

    def clear(self, rows: Sequence[int]) -> None:
        """Empty rows that stay in use."""
        for row in rows:
            for line, fill in self._lines:
                line[row :: self._step] = fill

    def state(self) -> dict[str, Any]:
        """Return the content of the table as plain values, for ``restore``."""
        columns = {field.name: getattr(self.live, field.name)[: self.used].tolist() for field in self._fields}
        return {"used": self.used, "free": list(self._free), "columns": columns}

    def restore(self, state: dict[str, Any], *, rows: int = 0) -> None:
        """Replace the table's content by a value that ``state`` returned, and pad the table to ``rows`` rows.

        Columns missing in the saved state get their fill value, as do new columns of a matrix.
        """
        used = int(state["used"])
        self.used = max(used, rows)
        self.live = self._empty(max(1, self.used))  # exactly one row per GPU, where rows are GPUs
        self._free = [int(row) for row in state["free"]]
        for field in self._fields:
            if used and field.name in state["columns"]:
                made = _column(state["columns"][field.name], field.metadata)
                self.set(tuple(map(slice, made.shape)), **{field.name: made})
        self._show()

    def widen(self, widths: dict[str, int]) -> None:
        """Widen matrix fields to the given widths; the table is reallocated if one changes."""
        if widths != self._widths:
            content, self._widths = self.state(), widths
            self._layout = self._lay_out()
            self.restore(content, rows=2 * self.capacity)
            self.used = content["used"]

    def _width(self, field: "dataclasses.Field[Any]") -> int | None:
        width = field.metadata["width"]
        return None if width is None else self._widths[width]

    def _lay_out(self) -> list[tuple[Any, list[tuple[str, int, int | None]], Any]]:
        """Plan the memory layout: one block per dtype.

        Return for each block the position and width of its columns, and the values of an empty row.
        """
        by_type: dict[Any, list[Any]] = {}
        for field in self._fields:
            by_type.setdefault(np.dtype(field.metadata["dtype"]), []).append(field)
        layout = []
        for dtype, fields in by_type.items():
            lines: list[tuple[str, int, int | None]] = []
            fills: list[Any] = []
            for field in fields:
                width = self._width(field)
                lines.append((field.name, len(fills), width))
                fills += [field.metadata["fill"]] * (1 if width is None else width)
            fill = np.empty(len(fills), dtype=dtype)
            fill[:] = fills
            layout.append((dtype, lines, fill))
        return layout

    def _empty(self, capacity: int) -> C:
        self._capacity, self._step = capacity, capacity + _APART
        columns: dict[str, Any] = {}
        self._blocks: list[tuple[Any, Any]] = []
        for dtype, lines, fill in self._layout:
            block = np.empty((fill.size, self._step), dtype=dtype)
            block[:] = fill[:, None]
            self._blocks.append((block, fill))
            for name, line, width in lines:
                columns[name] = block[line, :capacity] if width is None else block[line : line + width, :capacity].T
        self._lines = [(_cells(block.reshape(-1)), _cells(fill)) for block, fill in self._blocks]
        """Each block as a flat array, in which a row is every ``_step``-th item, and the items of an empty row."""
        self.cells = self._type(**{name: _cells(made) for name, made in columns.items()})
        self._cells = {name: made if made.ndim > 1 else _cells(made) for name, made in columns.items()}
        return self._type(**columns)

    def _grow(self) -> None:
        old, rows = self._blocks, self.used
        self.live = self._empty(2 * self.capacity)
        for (block, _), (before, _) in zip(self._blocks, old, strict=True):
            block[:, :rows] = before[:, :rows]
        self._show()

    def _readonly(self, fields: Iterable[Any]) -> dict[str, Any]:
        return {field.name: _shut(getattr(self.live, field.name)) for field in fields}

    def _show(self) -> None:
        """Rebind the columns of ``view`` and ``shown`` to the new memory; both objects keep their identity."""
        for made, fields in ((self.view, self._fields), (self.shown, self._shown)):
            for name, column in self._readonly(fields).items():
                setattr(made, name, column)


def _cells(column: Any) -> Any:
    """Return a memoryview of a column, whose items are Python numbers; a column of objects is returned itself."""
    return column if column.dtype == object else memoryview(column)


def _shut(column: Any) -> Any:
    view = column.view()
    view.flags.writeable = False
    return view


def _column(items: list[Any], metadata: Any) -> Any:
    if metadata["dtype"] is object:
        made = np.empty(len(items), dtype=object)
        made[:] = items
        return made
    return np.array(items, dtype=metadata["dtype"])
