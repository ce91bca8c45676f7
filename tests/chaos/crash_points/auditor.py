"""Rules that hold in a run wherever a process was stopped; checked as it happens, and once it is over."""

from collections.abc import Callable, Iterable
from typing import Any

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import Event, Released
from eunomia.journal.journal import JournalReader
from eunomia.journal.recovery import recover
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb


class Auditor:
    """Notes what breaks a rule."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.apps: set[str] = set()
        """Apps that are journaled."""
        self._leases: set[tuple[int, int]] = set()
        self._fences: set[int] = {0}
        self._slots: dict[int, list[tuple[str, int]]] = {}
        self._holders: dict[tuple[int, int], tuple[str, frozenset[int]]] = {}
        self.live: Callable[[], Iterable[tuple[int | None, Any]]] = tuple
        """Returns all containers, each with the number of its GPU in the cluster."""

    # --- as it happens ---------------------------------------------------------------------------------------------

    def journaled(self, events: Iterable[Event], decision: Decision, apps: Iterable[str]) -> None:
        """A step is on the disk."""
        self.apps.update(apps)
        for order in (*decision.orders, *decision.transitions):
            self._leases.add((int(order.lease), int(order.epoch)))
            self._fences |= {int(order.fence), int(order.epoch)}
            gpus = frozenset(order.gpus.tolist())
            self._holders[int(order.lease), int(order.epoch)] = (str(order.app), gpus)
        for event in events:
            if isinstance(event, Released):
                self._released(event)

    def _released(self, event: Released) -> None:
        for gpu, container in self.live():
            status = container.status
            if gpu in event.gpus and status.epoch <= event.epoch and not container.completed:
                self.broken.append(f"GPU {gpu} was released while {status.container_id} was on it")

    def answered(self, method: str, answer: Any) -> None:
        """The arbiter is about to answer."""
        if isinstance(answer, pb.AllocateResponse):
            leases = answer.allocated_leases
        elif isinstance(answer, pb.RegisterApplicationMasterResponse):
            leases = answer.leases
        elif isinstance(answer, lpb.NodeHeartbeatResponse):
            self._answered_node(answer)
            return
        else:
            return
        for lease in leases:
            if (lease.id, lease.epoch) not in self._leases:
                self.broken.append(f"{method} named lease {lease.id} in epoch {lease.epoch} before it was journaled")

    def _answered_node(self, answer: lpb.NodeHeartbeatResponse) -> None:
        for start in answer.start_app_masters:
            if start.app not in self.apps:
                self.broken.append(f"the master of {start.app} was started before the app was journaled")
        for order in answer.revocations:
            if order.epoch not in self._fences:
                self.broken.append(f"slot {order.slot} was revoked in epoch {order.epoch} before that was journaled")

    def started(self, status: lpb.ContainerStatus, gpu: int) -> None:
        """A worker starts."""
        before = self._slots.setdefault(gpu, [])
        if before and before[-1][1] > status.epoch:
            self.broken.append(f"{status.container_id} started on GPU {gpu} in an older epoch than before")
        before.append((status.container_id, status.epoch))
        holders = [
            app
            for (_, epoch), (app, gpus) in self._holders.items()
            if epoch == status.epoch and gpu in gpus and app == status.app
        ]
        if not holders:
            self.broken.append(f"{status.container_id} started on GPU {gpu} without a journaled lease")

    # --- at the end ------------------------------------------------------------------------------------------------

    def over(self, journal: JournalReader, live: Arbiter, recovered: Arbiter, folded: Arbiter) -> None:
        """Hold the journal against the live state.

        Args:
            journal: to be read.
            live: the arbiter at the end.
            recovered: a new one, to be recovered from the newest checkpoint.
            folded: a new one, to fold every step.
        """
        recover(recovered, journal)
        last_epoch = last = 0
        for step in journal.steps():
            if step.number != last + 1:
                self.broken.append(f"step {step.number} follows step {last}")
            last = step.number
            folded.replay(step.now, step.events, step.decision)
            last_epoch = self._check_epochs(step.decision, last_epoch)
        for name, arbiter in (("the newest checkpoint and what follows", recovered), ("all steps", folded)):
            if arbiter.save() != live.save():
                self.broken.append(f"{name} do not fold to the live state")

    def _check_epochs(self, decision: Decision, last: int) -> int:
        begun = [int(order.epoch) for order in decision.transitions if order.kind is TransitionKind.START]
        if begun and min(begun) <= last:
            self.broken.append(f"epoch {min(begun)} was given after epoch {last}")
        named = [int(epoch) for order in decision.transitions for epoch in (order.epoch, order.fence)]
        return max([last, *named])
