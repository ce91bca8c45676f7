"""Memos: the state of a plugin between rounds, which the arbiter stores, journals and passes back to the plugin."""

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, runtime_checkable

from eunomia.units import Stage


@runtime_checkable
class Memo(Protocol):
    """The state of a stage between rounds: a frozen, versioned, serializable value that refers to jobs by id."""

    version: ClassVar[int]

    def to_bytes(self) -> bytes:
        """Serialize the memo for the journal."""
        ...

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize a memo written by version ``version`` of its type; raise any exception if that fails."""
        ...


def read_memo(kind: type[Memo], version: int, data: bytes) -> Memo | None:
    """Deserialize a memo; return None if its type cannot read the bytes, so that the stage starts without a memo."""
    try:
        memo = kind.from_bytes(version, data)
    except Exception:
        return None
    return memo if isinstance(memo, Memo) else None


class Memos:
    """The current memos by plugin and stage; a stage finds its own memo by the name of its plugin."""

    def __init__(self, memos: Mapping[tuple[str, Stage], Memo]) -> None:
        self._memos = memos

    def of(self, plugin: str, stage: Stage) -> Memo | None:
        """Return the memo that this plugin's stage returned last, or None."""
        return self._memos.get((plugin, stage))

    def items(self) -> tuple[tuple[tuple[str, Stage], Memo], ...]:
        """Return all memos with their plugin and stage."""
        return tuple(self._memos.items())
