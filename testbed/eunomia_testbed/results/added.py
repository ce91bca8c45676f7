"""Columns that plugins added to a run's tables; their declarations are stored in the folder as ``columns.json``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from eunomia_testbed.results.columns import ColumnSpec, Figure
from eunomia_testbed.results.writing import write_text

Added = Mapping[str, Mapping[str, ColumnSpec]]
"""Declarations of columns, by table and column."""

NO_COLUMNS: Final[Added] = MappingProxyType({})
FILE: Final = "columns.json"


def read_added(folder: Path) -> Added:
    """Return the declarations of plugins' columns stored in a folder; empty: none are stored."""
    path = folder / FILE
    if not path.is_file():
        return NO_COLUMNS
    found = json.loads(path.read_text(encoding="utf-8"))
    return {table: {name: _spec(spec) for name, spec in columns.items()} for table, columns in found.items()}


def write_added(added: Added, folder: Path) -> None:
    """Write the declarations of plugins' columns to a folder; without declarations, no file is written."""
    if added:
        plain = {
            table: {name: dataclasses.asdict(spec) for name, spec in each.items()} for table, each in added.items()
        }
        write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", folder / FILE)


def _spec(plain: dict[str, Any]) -> ColumnSpec:
    figures = [Figure(**each) for each in plain.pop("summary")]
    return ColumnSpec(summary=tuple(figures), **plain)
