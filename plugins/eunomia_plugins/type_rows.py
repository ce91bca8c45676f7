"""Values by GPU type in memos, padded when a type joins the cluster after a memo was written."""

import dataclasses
from typing import Any, TypeVar

Row = tuple[float, ...]
"""One value per GPU type."""
M = TypeVar("M")


def wide(row: Row, types: int) -> Row:
    """Return a row padded with 0 to ``types`` entries."""
    return (*row, *[0.0] * (types - len(row)))


def widened(memo: M, types: int, *tables: str) -> M:
    """Return a memo in which the rows of the mappings named ``tables`` are padded with 0 to ``types`` entries."""
    changed: dict[str, Any] = {}
    for name in tables:
        table: dict[str, Row] = getattr(memo, name)
        if len(next(iter(table.values()), ())) < types:
            changed[name] = {key: wide(row, types) for key, row in table.items()}
    return dataclasses.replace(memo, **changed) if changed else memo  # type: ignore[type-var]
