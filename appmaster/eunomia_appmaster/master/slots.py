"""The slots that an app master may use: its leases, as last received from the arbiter."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from eunomia.model.shapes import value


@value
class Slot:
    """A leased slot, on which the app may start one worker process."""

    gpu: int
    """Number of the GPU in the cluster."""
    node: str
    slot: int
    """Number of the slot on its node."""
    gpu_type: str
    lease: int
    epoch: int
    token: str
    job: int | None
    """The job that the lease names; None: the tuner assigns the slot."""
    cpus: float = 0.0
    """CPUs of the slot; 0: not known."""
    memory_gib: float = 0.0


@value
class HeldLease:
    """A lease on slots; ``slots`` is by GPU."""

    id: int
    epoch: int
    job: int | None
    slots: Mapping[int, Slot]
    ends_at: float | None
    """End of the lease in seconds on the arbiter's clock; None: unlimited."""
    probe_iterations: int | None = None
    """Iterations of the measurement run that the job makes on these slots; None: no measurement."""
    causes: tuple[str, ...] = ()
    """Causes of the round in which the arbiter decided this epoch of the lease; empty: not known, or there was none."""
    was_measured: bool = False
    """Whether the lease ordered a measurement before this epoch."""


class SlotBook:
    """All leases of the app. A later message about a lease replaces an earlier one; older epochs are ignored."""

    def __init__(self) -> None:
        self.clock_ahead = 0.0
        """Seconds by which the app master's clock is ahead of the arbiter's, as of the last answer."""
        self._leases: dict[int, HeldLease] = {}
        self._gone: dict[int, int] = {}
        """The last epoch under which the app lost a slot (revoked or given back), by GPU."""
        self._gone_for: dict[int, tuple[str, ...]] = {}
        """Causes of the round in which the arbiter revoked a slot, by GPU."""

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases.values())

    def replace_all(self, leases: Iterable[HeldLease]) -> None:
        """Replace all leases, after a registration."""
        self._leases = {lease.id: lease for lease in leases}
        self._gone = {}

    def grant(self, lease: HeldLease) -> None:
        """Add a new lease, or replace a changed one."""
        known = self._leases.get(lease.id)
        if known is None or lease.epoch >= known.epoch:
            was = known is not None and known.epoch < lease.epoch and known.probe_iterations is not None
            self._leases[lease.id] = dataclasses.replace(lease, was_measured=was)

    def renew(self, lease: int, ends_at: float | None, amounts: tuple[float, float] | None = None) -> None:
        """Extend a lease, and set the CPUs and memory (GiB) of all its slots together."""
        known = self._leases.get(lease)
        if known is None:
            return
        slots = known.slots
        if amounts is not None and slots:
            each = amounts[0] / len(slots), amounts[1] / len(slots)
            slots = {gpu: dataclasses.replace(slot, cpus=each[0], memory_gib=each[1]) for gpu, slot in slots.items()}
        self._leases[lease] = dataclasses.replace(known, slots=slots, ends_at=ends_at)

    def probe_of(self, job: int, gpus: Iterable[int]) -> int | None:
        """Return the iterations of the job's measurement on these GPUs; None: no measurement is ordered there."""
        leases = [lease for lease in self._leases.values() if lease.job == job and set(lease.slots) == set(gpus)]
        return leases[-1].probe_iterations if leases else None

    def is_measured(self, job: int) -> bool:
        """Return whether a job's own lease orders a measurement, during which the job keeps its other slots."""
        return any(lease.job == job and lease.probe_iterations is not None for lease in self._leases.values())

    def of_job(self, job: int) -> HeldLease | None:
        """Return a job's own lease; None: it has none."""
        return next((lease for lease in self._leases.values() if lease.job == job), None)

    def lose(self, gpus: Iterable[int], epoch: int, causes: Iterable[str] = ()) -> None:
        """Record that the app has lost slots under leases of ``epoch`` or an older one.

        Args:
            gpus: the slots.
            epoch: the epoch.
            causes: causes of the round in which the arbiter revoked them; empty: not known, or it did not.
        """
        for gpu in gpus:
            if epoch >= self._gone.get(gpu, -1):
                self._gone[gpu], self._gone_for[gpu] = epoch, tuple(causes)

    def gone_for(self, gpus: Iterable[int]) -> tuple[str, ...]:
        """Return the causes of the round in which the arbiter revoked one of these slots; empty: not known, or none."""
        slots = self.slots()
        return next((causes for gpu in gpus if gpu not in slots and (causes := self._gone_for.get(gpu, ()))), ())

    def end(self, lease: int) -> None:
        """Drop a lease whose slots were all given back."""
        self._leases.pop(lease, None)

    def slots(self) -> dict[int, Slot]:
        """Return all usable slots, by GPU."""
        return {
            gpu: slot
            for lease in self._leases.values()
            for gpu, slot in lease.slots.items()
            if slot.epoch > self._gone.get(gpu, -1)
        }

    def lasting(self, gpus: Iterable[int], until: float) -> tuple[int, ...]:
        """Return those of the GPUs whose lease ends after ``until``, in seconds on the app master's clock, or never."""
        until -= self.clock_ahead
        ending = {lease.id for lease in self if lease.ends_at is not None and lease.ends_at <= until}
        slots = self.slots()
        return tuple(gpu for gpu in gpus if gpu in slots and slots[gpu].lease not in ending)
