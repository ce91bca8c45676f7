"""The workers of one incarnation: this worker's rank, and the workers' collective operations."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from eunomia.errors import EunomiaError
from eunomia_appmaster.training.environment import Environment

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Gang:
    """One worker's view of its gang; a gang of one never communicates.

    If the script has initialised ``torch.distributed`` itself, its process group is used.

    Attributes:
        live: whether the gang may change while the script runs; see ``LiveGang``.
        newcomer: whether this worker waits for its first generation.
        torn: whether the gradient of the present batch is lost, because a peer was lost.
        catches_up: whether this newcomer skips collective operations up to the point at which its peers wait for it.
    """

    live = False
    newcomer = False
    torn = False
    catches_up = False
    on_wait: Callable[[bool], None] = staticmethod(lambda for_peers: None)
    """Called with True when a worker of a live gang begins to wait unusually long for its peers, and False after it."""

    def __init__(self, environment: Environment) -> None:
        self.device = device_of(environment.local_rank)
        if environment.world_size > 1 and not dist.is_initialized():
            _join(environment, self.device)
        grouped = dist.is_initialized()
        self.rank = dist.get_rank() if grouped else environment.rank
        self.size = dist.get_world_size() if grouped else 1

    @property
    def alone(self) -> bool:
        """Whether the gang has only this worker."""
        return self.size == 1

    @property
    def broken(self) -> bool:
        """Whether a peer was lost; always False in a gang of fixed size, which ends with the loss of a peer."""
        return False

    @property
    def generation(self) -> int:
        """Number of the present generation."""
        return 0

    @property
    def newest(self) -> int:
        """Number of the newest generation that this worker knows."""
        return 0

    def highest(self, values: list[int]) -> list[int]:
        """Return the maximum over workers at each position; a collective call of all workers."""
        if self.alone:
            return values
        tensor = torch.tensor(values, dtype=torch.int64, device=self._wire)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return [int(value) for value in tensor.tolist()]

    def share(self, value: Any) -> Any:
        """Return rank 0's value on every worker; a collective call of all workers."""
        if self.alone:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self._wire)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return every worker's value, in order of ranks; a collective call of all workers."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def peers_state(self) -> dict[str, Any]:
        """Return a recent ``run.state`` of rank 0 for a newcomer before its first loop; else an empty mapping."""
        return {}

    def uncount(self) -> None:
        """Undo the count of the last operation, which failed and will be repeated in the next generation."""

    def agreed_on_entry(self) -> bool:
        """Return, once per generation, whether all members entered it at a boundary on which they had agreed.

        Then they need no further agreement there.
        """
        return False

    def has_caught_up(self) -> None:
        """Take part in collective operations from the next one on, as a newcomer that has skipped earlier ones."""

    def pin(self, why: str) -> None:
        """Keep this gang in its present generation from now on, for the reason ``why``."""

    def check_same_place(self, place: int, highest: int, lowest: int) -> None:
        """Check that all workers are at the same point of the script, so that their collective calls match."""
        if highest != lowest:
            raise EunomiaError(
                "all workers must run the same batches and evaluations; one worker alone evaluates model.module",
                value=f"places {lowest} to {highest}, this worker at {place}",
                place=f"rank {self.rank} of {self.size}",
            )

    @property
    def _wire(self) -> torch.device:
        backend = dist.get_backend_config().lower() if hasattr(dist, "get_backend_config") else str(dist.get_backend())
        return torch.device("cpu") if "gloo" in backend else self.device


def device_of(local_rank: int) -> torch.device:
    """Return the device of a worker, and make it torch's current device."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # A worker sees the GPUs of the workers started with it; a newcomer of a live gang sees only its own, at index 0.
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _join(environment: Environment, device: torch.device) -> None:
    if os.environ.get("MASTER_ADDR", "127.0.0.1") in _LOOPBACK:
        # Without this, gloo resolves this machine's name, which may fail.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    wait = None if environment.peers_seconds is None else timedelta(seconds=environment.peers_seconds)
    dist.init_process_group(backend, rank=environment.rank, world_size=environment.world_size, timeout=wait)
