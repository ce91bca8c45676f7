"""A plugin's memory from round to round: a value that the arbiter keeps, journals and hands back."""

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, runtime_checkable

from eunomia.units import Stage


@runtime_checkable
class Memo(Protocol):
    """What a stage must remember: frozen, with a version, readable from its own bytes; it names jobs by id."""

    version: ClassVar[int]

    def to_bytes(self) -> bytes:
        """The memo as bytes, for the journal."""
        ...

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """The memo from its bytes; ``version`` is the one that wrote them."""
        ...


def read_memo(kind: type[Memo], version: int, data: bytes) -> Memo | None:
    """Read a memo; one that its own plugin cannot read is dropped, and the stage starts anew."""
    try:
        memo = kind.from_bytes(version, data)
    except Exception:
        return None
    return memo if isinstance(memo, Memo) else None


class Memos:
    """The memos of one moment by plugin and stage; a stage finds its own under its name."""

    def __init__(self, memos: Mapping[tuple[str, Stage], Memo]) -> None:
        self._memos = memos

    def of(self, plugin: str, stage: Stage) -> Memo | None:
        """The memo that this plugin's stage returned last, or None."""
        return self._memos.get((plugin, stage))

    def items(self) -> tuple[tuple[tuple[str, Stage], Memo], ...]:
        """All of them, by plugin and stage."""
        return tuple(self._memos.items())
