"""Process groups of one generation, and all uses of torch's private interfaces in ``live``.

A group is neither torch's default group, which can be destroyed only as a whole, nor part of
``DistributedDataParallel``, whose destructor can deadlock with gloo's threads while a loss tensor is alive.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from eunomia_appmaster.training.misuse import MisuseError

SEEN_WITH = ("2.13",)
"""Versions of torch with which the tests of live changes were run."""
CONNECT_SECONDS = 10.0
"""Seconds within which all members of a formed generation must have connected to each other."""
LOOK_SECONDS = 1.0
"""Seconds between two checks by a waiting worker of whether its peers are still alive."""
TRANSFER_SECONDS = 300.0
"""Longest time in seconds for which one tensor is sent or received."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class PeerLostError(Exception):
    """A collective operation has failed: a peer has died, or has closed its connections."""


class NoDefaultGroupError(MisuseError, ValueError):
    """A script uses torch's default process group, which a live gang does not have; torch raises a ``ValueError``."""


class InFlight(Protocol):
    """An operation in flight; a protocol."""

    def wait(self) -> None:
        """Wait until the operation has ended.

        Raises:
            PeerLostError: the operation has failed.
        """
        ...


class Peers(Protocol):
    """Reports to a waiting worker whether a peer is gone, and receives its waits; a protocol."""

    def gone(self) -> str:
        """Return why an operation must be given up, since a peer is gone; empty: no peer is gone."""
        ...

    def waits(self, for_peers: bool) -> None:
        """Process the beginning (True) or end (False) of an unusually long wait of this worker for its peers."""
        ...


class PeerGroup:
    """The connections of one generation's members.

    Args:
        store: torch's store, with the generation's prefix.
        rank: rank of this worker.
        size: number of members.
        host: the store's host; if it is loopback, the group uses loopback, too.
        timeout_seconds: longest time in seconds for which an operation waits for a peer.
        peers: polled every second while an operation waits.

    Raises:
        PeerLostError: a member has not connected in time.
    """

    def __init__(self, store: Any, rank: int, size: int, *, host: str, timeout_seconds: float, peers: Peers) -> None:
        self.rank, self.size, self._peers = rank, size, peers
        if host in _LOOPBACK:
            # Without this, gloo resolves this machine's name, which may fail.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._store, self._timeout = store, timedelta(seconds=timeout_seconds)
        self._backends: dict[str, Any] = {"cpu": self._made("cpu")}

    def total(self, tensor: torch.Tensor) -> InFlight:
        """Begin to replace a tensor by the sum over members."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def highest(self, tensor: torch.Tensor) -> None:
        """Replace a tensor by the maximum over members."""
        self._reduced(tensor, dist.ReduceOp.MAX).wait()

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Replace a tensor by that of one member."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        self._begun(lambda: self._of(tensor).broadcast([tensor], options)).wait()

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all members, which have the same shape."""
        rows = [torch.empty_like(tensor) for _ in range(self.size)]
        self._begun(lambda: self._of(tensor).allgather([rows], [tensor])).wait()
        return rows

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> InFlight:
        """Begin to send a tensor to a member; transfers in flight at the same time must have different tags."""
        return self._begun(lambda: self._of(tensor).send([tensor], to, tag), transfer=True)

    def receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> InFlight:
        """Begin to receive the tensor that a member sends with the same tag."""
        return self._begun(lambda: self._of(tensor).recv([tensor], source, tag), transfer=True)

    def warm_up(self) -> None:
        """Make each kind of operation once; a process's first one takes milliseconds, for which its peers would wait.

        All members must call this, before any other operation. It polls no peers, so a thread may call it.

        Raises:
            PeerLostError: a member has not answered within ``CONNECT_SECONDS``.
        """
        backend, limit = self._backends["cpu"], timedelta(seconds=CONNECT_SECONDS)
        whole, row = torch.zeros(2, dtype=torch.int64), torch.zeros(1, dtype=torch.uint8)
        rows = [torch.empty_like(whole) for _ in range(self.size)]
        above, below = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        try:
            backend.allgather([rows], [whole]).wait(limit)
            backend.allreduce([whole], _reducing(dist.ReduceOp.MAX)).wait(limit)
            sent = backend.send([row], above, 0)
            backend.recv([torch.empty_like(row)], below, 0).wait(limit)
            sent.wait(limit)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None

    def close(self) -> None:
        """Close the connections, so that no peer waits for this worker; returns at once.

        A thread closes them, since gloo then waits for operations in flight, which may wait for a peer that is gone.
        """
        backends, self._backends = self._backends, {}
        threading.Thread(target=_close, args=(backends,), daemon=True, name="close-group").start()

    def _reduced(self, tensor: torch.Tensor, operation: Any) -> InFlight:
        return self._begun(lambda: self._of(tensor).allreduce([tensor], _reducing(operation)))

    def _begun(self, begin: Callable[[], Any], *, transfer: bool = False) -> InFlight:
        try:
            return _Transfer(begin()) if transfer else _Work(begin(), self._peers)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None

    def _of(self, tensor: torch.Tensor) -> Any:
        kind = tensor.device.type
        if kind not in self._backends:
            self._backends[kind] = self._made(kind)
        return self._backends[kind]

    def _made(self, kind: str) -> Any:
        store = PrefixStore(kind, self._store)
        try:
            if kind == "cuda":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = self._timeout
                return dist.ProcessGroupNCCL(store, self.rank, self.size, options)
            made = dist.ProcessGroupGloo(store, self.rank, self.size, timedelta(seconds=CONNECT_SECONDS))
            made._set_default_timeout(self._timeout)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None
        return made


def _reducing(operation: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = operation
    return options


def _close(backends: dict[str, Any]) -> None:
    for backend in backends.values():
        with contextlib.suppress(RuntimeError):
            backend.abort()  # of NCCL; gloo's destructor closes
    backends.clear()


class _Work:
    """A collective operation, given up once a peer is known to be gone."""

    def __init__(self, work: Any, peers: Peers) -> None:
        self._work, self._peers = work, peers

    def wait(self) -> None:
        if self._ends():
            return
        self._peers.waits(True)
        try:
            while not (why := self._peers.gone()):
                if self._ends():
                    return
        finally:
            self._peers.waits(False)
        raise PeerLostError(why)

    def _ends(self) -> bool:
        """Wait for a second; returns whether the operation has ended."""
        try:
            self._work.wait(timedelta(seconds=LOOK_SECONDS))
        except RuntimeError:
            if not self._work.is_completed():
                return False
            self._check()  # it may have succeeded just after that second
        return True

    def _check(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None


class _Transfer:
    """One message between two members; gloo closes a connection on which a message takes too long."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self) -> None:
        try:
            self._work.wait(timedelta(seconds=TRANSFER_SECONDS))
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None


def refuse_default_group(is_live: Callable[[], bool]) -> None:
    """Refuse each use of torch's default process group while there is none and the gang is live.

    Torch's own error does not name the remedy, which is to start the script with ``elastic = "restart"``.
    """
    given = dist.distributed_c10d._get_default_group

    def default_group() -> Any:
        if is_live() and not dist.is_initialized():
            rule = 'a script that uses torch\'s default process group must be started with elastic = "restart"'
            raise NoDefaultGroupError(rule, value="a live gang, which has none", place="torch.distributed")
        return given()

    dist.distributed_c10d._get_default_group = default_group


def after_backward(call: Callable[[], None]) -> None:
    """Register a function to be called at the end of the running backward pass, before ``backward()`` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
