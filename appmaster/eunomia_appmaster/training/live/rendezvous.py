"""The key-value store (torch's ``TCPStore``), outside of the workers, in which members of a generation meet."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.training.changes import Decided, Membership
from eunomia_appmaster.training.live.bounded import BoundedCalls, NoAnswerError

STORE_SECONDS = 5.0
"""Longest time in seconds for an answer of the store."""
START_SECONDS = 300.0
"""Longest time in seconds until a job's store listens: it starts with the workers, and also imports torch."""
T = TypeVar("T")


class StoreLostError(EunomiaError):
    """The store of a job does not answer, so that the job's next change is by a restart."""


class Rendezvous:
    """A client of a job's store.

    Once a call has not been answered in time, such as by a store whose process is stopped, the store counts as lost:
    all later calls fail at once. Every call of a method may raise ``StoreLostError``.

    Args:
        address: the store's address, as ``host:port``.
        start_seconds: longest time in seconds until the store listens.

    Raises:
        InputError: the address is malformed.
        StoreLostError: no store answers at the address.
    """

    def __init__(self, address: str, start_seconds: float) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError("EUNOMIA_STORE must be host:port", value=repr(address), place="environment")
        self.host, self._address = host.strip("[]"), address
        self._calls = BoundedCalls("ask-store")
        wait = timedelta(seconds=start_seconds)
        self._store = self._asked(
            lambda: TCPStore(self.host, int(port), is_master=False, wait_for_workers=False, timeout=wait),
            start_seconds + STORE_SECONDS,
        )
        self._asked(lambda: self._store.set_timeout(timedelta(seconds=STORE_SECONDS)))

    def close(self) -> None:
        """Make no more calls to the store."""
        self._calls.close()

    def decided(self, generation: int) -> Decided:
        """Return the outcome of a generation."""
        return self.decide(generation, Decided.OPEN)

    def decide(self, generation: int, wanted: Decided) -> Decided:
        """Set the outcome of a generation unless it is set already; returns the outcome."""
        key = f"g{generation}/outcome"
        return Decided(self._asked(lambda: self._store.compare_set(key, "", wanted.value)).decode())

    def appear(self, generation: int, name: str) -> None:
        """Mark a worker as present in a generation."""
        self.put(f"g{generation}/here/{name}", "1")

    def all_present(self, change: Membership) -> bool:
        """Return whether all members of a generation are present."""
        return self.has(*(f"g{change.generation}/here/{name}" for name in change.members))

    def has(self, *keys: str) -> bool:
        """Return whether the store has all these keys."""
        return bool(self._asked(lambda: self._store.check(list(keys))))

    def put(self, key: str, text: str | bytes) -> None:
        """Set a key."""
        self._asked(lambda: self._store.set(key, text))  # type: ignore[arg-type]  # bytes are taken, too

    def get(self, key: str) -> str | None:
        """Return a key's text; None: the store lacks it."""
        data = self.data(key)
        return None if data is None else data.decode()

    def data(self, key: str) -> bytes | None:
        """Return a key's bytes; None: the store lacks it."""
        return bytes(self._asked(lambda: self._store.get(key))) if self.has(key) else None

    def why_lost(self) -> str:
        """Return why the store does not answer; empty: it does."""
        try:
            self.has("fingerprint")
        except StoreLostError as error:
            return str(error)
        return ""

    def made_with(self, make: Callable[[Any], T], generation: int, seconds: float, use: str = "group") -> T:
        """Return the result of ``make``, called with a part of the store in which members can exchange addresses.

        Args:
            make: called with that part of the store, in another thread.
            generation: the generation whose members exchange addresses.
            seconds: longest time in seconds that ``make`` may take with a store that answers.
            use: name that distinguishes several such parts of one generation.

        Raises:
            StoreLostError: the store does not answer.
        """
        store = PrefixStore(f"g{generation}/{use}", self._store)
        return self._asked(lambda: make(store), seconds + STORE_SECONDS)

    def calls_for(self, generation: int) -> None:
        """Request that the members of a generation build its group while they wait or train."""
        self.put(f"g{generation}/builds", "1")

    def is_called_for(self, generation: int) -> bool:
        """Return whether a member has begun to build the group of a generation."""
        return self.has(f"g{generation}/builds")

    def has_built(self, generation: int, name: str) -> None:
        """Record that a worker has built the group of a generation."""
        self.put(f"g{generation}/built/{name}", "1")

    def all_built(self, change: Membership) -> bool:
        """Return whether all members use the group that they have built early; decided once, by the first caller."""
        built = self.has(*(f"g{change.generation}/built/{name}" for name in change.members))
        key = f"g{change.generation}/early"
        return bool(self._asked(lambda: self._store.compare_set(key, "", "1" if built else "0")) == b"1")

    def _asked(self, call: Callable[[], T], seconds: float = STORE_SECONDS) -> T:
        try:
            return self._calls.make(call, seconds)
        except (RuntimeError, NoAnswerError) as error:
            why = str(error).partition("\n")[0][:200]
            raise StoreLostError("the store of a live job must answer", value=why, place=self._address) from None
