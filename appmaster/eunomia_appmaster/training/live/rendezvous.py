"""The store outside of the workers, over which the members of each generation meet (torch's ``TCPStore``)."""

from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.training.changes import Decided, Membership

STORE_SECONDS = 5.0
"""Longest time for an answer of the store."""


class StoreLostError(EunomiaError):
    """The store of a job does not answer; its next change is by restart."""


class Rendezvous:
    """A client of a job's store.

    Args:
        address: as ``host:port``.

    Raises:
        InputError: the address is none.
        StoreLostError: nothing answers there.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError("EUNOMIA_STORE must be host:port", value=repr(address), place="environment")
        self.host, self._address = host.strip("[]"), address
        try:
            self._store = TCPStore(
                self.host,
                int(port),
                is_master=False,
                wait_for_workers=False,
                timeout=timedelta(seconds=STORE_SECONDS),
            )
        except RuntimeError as error:
            raise self._lost(error) from None

    def decided(self, generation: int) -> Decided:
        """Return what is decided of a generation."""
        return self.decide(generation, Decided.OPEN)

    def decide(self, generation: int, wanted: Decided) -> Decided:
        """Decide on a generation unless that is done already; returns what is decided."""
        try:
            return Decided(self._store.compare_set(f"g{generation}/outcome", "", wanted.value).decode())
        except RuntimeError as error:
            raise self._lost(error) from None

    def appear(self, generation: int, name: str) -> None:
        """Say that a worker is present in a generation."""
        self.put(f"g{generation}/here/{name}", "1")

    def all_present(self, change: Membership) -> bool:
        """Return whether all members of a generation are present."""
        return self.has(*(f"g{change.generation}/here/{name}" for name in change.members))

    def has(self, *keys: str) -> bool:
        """Return whether the store has all these keys."""
        try:
            return bool(self._store.check(list(keys)))
        except RuntimeError as error:
            raise self._lost(error) from None

    def put(self, key: str, text: str) -> None:
        """Set a key."""
        try:
            self._store.set(key, text)
        except RuntimeError as error:
            raise self._lost(error) from None

    def get(self, key: str) -> str | None:
        """Return a key's text; None: the store lacks it."""
        if not self.has(key):
            return None
        try:
            return str(self._store.get(key).decode())
        except RuntimeError as error:
            raise self._lost(error) from None

    def of_generation(self, generation: int, use: str = "group") -> Any:
        """Return torch's store for one use of a generation, in which its members exchange their addresses."""
        return PrefixStore(f"g{generation}/{use}", self._store)

    def _lost(self, error: Exception) -> StoreLostError:
        why = str(error).partition("\n")[0][:200]
        return StoreLostError("the store of a live job must answer", value=why, place=self._address)
