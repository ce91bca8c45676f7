"""Values by GPU type in memos: a type may join the cluster after a memo was written."""

import dataclasses
from typing import Any, TypeVar

Row = tuple[float, ...]
"""Values by GPU type."""
M = TypeVar("M")


def wide(row: Row, types: int) -> Row:
    """Return a row with 0 for each GPU type that joined the cluster after the row was written."""
    return (*row, *[0.0] * (types - len(row)))


def widened(memo: M, types: int, *tables: str) -> M:
    """Return a memo of which these mappings from ids to rows have rows of so many GPU types."""
    changed: dict[str, Any] = {}
    for name in tables:
        table: dict[str, Row] = getattr(memo, name)
        if len(next(iter(table.values()), ())) < types:
            changed[name] = {key: wide(row, types) for key, row in table.items()}
    return dataclasses.replace(memo, **changed) if changed else memo  # type: ignore[type-var]
