"""The holder of each slot over time, derived only from a journal's events and decisions.

The module uses neither the arbiter's state nor its code, so that it checks independently that no slot has two holders.
"""

import dataclasses
import math

from eunomia.contract.decisions import Decision, Transition
from eunomia.contract.events import (
    AppCancelled,
    AppFinished,
    Event,
    GpusReturned,
    JobFailed,
    JobFinished,
    JobPaused,
    MachineLost,
    Released,
    in_order,
)
from eunomia.journal.journal import Step


@dataclasses.dataclass(slots=True, kw_only=True)
class Hold:
    """A period in which a lease held a slot.

    Attributes:
        gpu: number of the slot in the cluster.
        epoch: epoch of the last order that concerns it.
        start: Unix time of the step that granted the slot.
        end: Unix time at which the slot was free again; None: not yet.
        ended_by: expired, preempted, released or lost.
    """

    gpu: int
    lease: int
    app: str
    job: str | None
    epoch: int
    start: float
    end: float | None = None
    ended_by: str = ""
    leaving: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    lease: int
    app: str
    job: str | None
    epoch: int


class Holdings:
    """Derives holds from the steps of a journal.

    Args:
        gpus_of: numbers of the slots of each machine, for machines that are lost.
    """

    def __init__(self, gpus_of: dict[str, list[int]]) -> None:
        self.holds: list[Hold] = []
        self.twice: list[str] = []
        """Slots that were given to a lease while another lease held them; always empty without defects."""
        self._gpus_of = gpus_of
        self._now: dict[int, Hold] = {}
        self._promised: dict[int, _Promise] = {}
        self._ends_at: dict[int, float] = {}

    @property
    def current(self) -> dict[int, Hold]:
        """Return the present holder of each slot."""
        return dict(self._now)

    def take(self, step: Step) -> None:
        """Apply one step."""
        for event in in_order(list(step.events)):
            if isinstance(event, Released):
                for gpu in event.gpus:
                    self._released(gpu, int(event.lease), int(event.epoch), step.at)
            elif isinstance(event, MachineLost):
                for gpu in event.gpus or self._gpus_of.get(event.machine, ()):
                    self._lost(gpu, step.at)
        for event in step.events:
            self._give_up(event)
        self._decide(step.decision, step.at)

    def _give_up(self, event: Event) -> None:
        """Drop the promised slots of leases that end with their job or app, for which no order is needed."""
        match event:
            case JobFinished(job=job) | JobFailed(job=job) | JobPaused(job=job):
                self._drop({each.lease for each in self._promised.values() if each.job == str(job)})
            case AppFinished(app=app) | AppCancelled(app=app):
                self._drop({each.lease for each in self._promised.values() if each.app == str(app)})
            case GpusReturned(app=app, gpus=gpus):
                for gpu in gpus:
                    if gpu in self._promised and self._promised[gpu].app == str(app):
                        del self._promised[gpu]
            case _:
                pass

    def _drop(self, leases: set[int]) -> None:
        self._promised = {gpu: promise for gpu, promise in self._promised.items() if promise.lease not in leases}

    def _lost(self, gpu: int, at: float) -> None:
        """Process a lost machine: a gang that loses a part also loses its promised slots on other machines."""
        promise, hold = self._promised.pop(gpu, None), self._now.get(gpu)
        if promise is not None and promise.job is not None:
            self._drop({promise.lease})
        if hold is not None and hold.job is not None and not hold.leaving:
            self._drop({hold.lease})
        self._end(gpu, at, "lost")

    def _decide(self, decision: Decision, at: float) -> None:
        for order in decision.orders:
            self._leave(order, "released")
        leavers = [order for order in decision.transitions if order.leaving.size or order.kind.effect.releases]
        for order in leavers:
            expired = self._ends_at.get(int(order.lease), math.inf) <= float(decision.now)
            self._leave(order, "expired" if expired else "preempted")
        for order in decision.transitions:
            self._give(order, at)
        for renewal in decision.renewals:
            self._ends_at[int(renewal.lease)] = float(renewal.ends_at)

    def _leave(self, order: Transition, why: str) -> None:
        lease, keeps = int(order.lease), set(order.gpus.tolist())
        for gpu in [gpu for gpu, promise in self._promised.items() if promise.lease == lease and gpu not in keeps]:
            del self._promised[gpu]
        for gpu in order.leaving.tolist():
            hold = self._now.get(gpu)
            if hold is not None and hold.lease == lease:
                hold.leaving, hold.epoch, hold.ended_by = True, int(order.fence), why

    def _give(self, order: Transition, at: float) -> None:
        if order.kind.effect.ends:
            return
        lease, after = int(order.lease), set(order.after.tolist())
        self._ends_at[lease] = float(order.ends_at)
        job = None if order.job is None else str(order.job)
        promise = _Promise(lease=lease, app=str(order.app), job=job, epoch=int(order.epoch))
        for gpu in order.gpus.tolist():
            hold = self._now.get(gpu)
            if hold is None:
                self._begin(gpu, promise, at)
            elif hold.lease == lease and not hold.leaving:
                hold.epoch = promise.epoch
            else:
                if gpu not in after and not hold.leaving:
                    self.twice.append(f"slot {gpu}: lease {lease} while lease {hold.lease} held it")
                self._promised[gpu] = promise

    def _released(self, gpu: int, lease: int, epoch: int, at: float) -> None:
        hold = self._now.get(gpu)
        if hold is not None and hold.lease == lease and epoch >= hold.epoch:
            if hold.job is not None and not hold.leaving:
                self._drop({lease})
            self._end(gpu, at, hold.ended_by or "released")

    def _end(self, gpu: int, at: float, why: str) -> None:
        hold = self._now.pop(gpu, None)
        if hold is not None:
            hold.end, hold.ended_by = at, why
        promise = self._promised.pop(gpu, None)
        if promise is not None:
            self._begin(gpu, promise, at)

    def _begin(self, gpu: int, promise: _Promise, at: float) -> None:
        hold = Hold(
            gpu=gpu, lease=promise.lease, app=promise.app, job=promise.job, epoch=promise.epoch, start=at
        )  # fmt: skip
        self._now[gpu] = hold
        self.holds.append(hold)
