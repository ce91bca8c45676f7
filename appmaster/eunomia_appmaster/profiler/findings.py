"""The kinds of defects that the reader of a log folder reports, each with rule, value and place."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class FindingKind(StrEnum):
    """The kinds of findings, a closed set."""

    CORRUPT_RECORD = "corrupt_record"
    MALFORMED_EVENT = "malformed_event"
    STEPS_BACKWARDS = "steps_backwards"
    NOT_FINITE = "not_finite"
    FILE_SHRANK = "file_shrank"
    FILE_REPLACED = "file_replaced"
    FILE_GONE = "file_gone"
    FILE_UNREADABLE = "file_unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding: the ``rule`` that did not hold, the ``value`` found instead, and where.

    offset: byte in the file, for findings about records; tag: for findings about values and steps; otherwise they are
    None.
    """

    kind: FindingKind
    rule: str
    value: str
    path: Path
    offset: int | None = None
    tag: str | None = None

    @property
    def place(self) -> str:
        """Return file, byte and tag as text."""
        byte = "" if self.offset is None else f", byte {self.offset}"
        tag = "" if self.tag is None else f", tag {self.tag}"
        return f"{self.path}{byte}{tag}"

    def __str__(self) -> str:
        return f"{self.rule}, but got {self.value} ({self.place})"
