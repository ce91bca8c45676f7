"""Writes files atomically, and reports a full disk as an error."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from eunomia.errors import EunomiaError
from eunomia_appmaster.csv_cells import frame_csv

if TYPE_CHECKING:
    import polars as pl


class DiskError(EunomiaError):
    """A result file cannot be written; files written earlier are complete."""


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename its file to ``target`` at the end of the block.

    Raises:
        DiskError: the file cannot be written, for example on a full disk.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(target)
    except OSError as error:
        rule = "results must fit on a disk that can be written"
        raise DiskError(rule, value=error.strerror or str(error), place=str(target)) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_parquet(frame: pl.DataFrame, target: Path) -> None:
    """Write a frame as a Parquet file, atomically; equal frames give equal bytes."""
    made = io.BytesIO()  # polars' own writer reports a full disk as a format error
    frame.write_parquet(made, compression="zstd", compression_level=1, statistics=False)
    with replacing(target) as part:
        part.write_bytes(made.getbuffer())


def write_csv(frame: pl.DataFrame, target: Path) -> None:
    """Write a frame as a CSV file, atomically, in which spreadsheets interpret no text as a formula."""
    write_text(frame_csv(frame), target)


def write_text(text: str, target: Path) -> None:
    """Write a text to a file as UTF-8, atomically."""
    with replacing(target) as part:
        part.write_text(text, encoding="utf-8")
