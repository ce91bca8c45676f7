"""Replays the holder of each slot from events and decisions alone, and checks the rules about holders."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eunomia_appmaster.journal_check.cluster import Cluster
from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule
from eunomia_appmaster.journal_check.reading import JournalStep, kind_of
from eunomia_appmaster.journal_check.work import Work
from eunomia_appmaster.journal_check.workers import Workers

_MACHINES = ("MachineLeft", "MachineJoined", "MachineLost", "MachineBack", "MachineDraining", "MachineKept")
"""Events about machines, in the order in which the arbiter applies those of one step; events of one kind by machine."""
_LEASES_KEPT = 32
"""Number of former leases of a slot whose late confirmations are still recognised."""


@dataclass(slots=True, kw_only=True)
class Hold:
    """A slot that a lease holds, or that is promised to it.

    Attributes:
        epoch: the epoch of the last order about the slot.
        epochs: the epochs under which a container may have started on the slot.
        since: Unix time in seconds of the step that granted the slot.
    """

    lease: int
    app: str
    job: str | None
    epoch: int
    epochs: list[int]
    since: float
    leaving: bool = False
    cpus: float = 0.0
    memory_gib: float = 0.0
    ordered: tuple[float, float] = (0.0, 0.0)
    """CPUs and memory (GiB) of the order that began the lease, or changed its slots."""
    used: tuple[float, float] = (0.0, 0.0)
    """CPUs and memory (GiB) in use by the lease's processes, as last reported."""


@dataclass(slots=True)
class Slots:
    """The replay of the slots' holders.

    Attributes:
        held: the holder of each held slot.
        promised: the lease that gets a slot once its holder has left, by slot.
        down: slots of machines that do not respond, or have left.
        draining: slots on which no lease may begin.
        last_epoch: the greatest epoch of an order so far.
        begun: leases that hold slots, or to which slots are promised.
    """

    cluster: Cluster
    work: Work
    workers: Workers
    note: AddFinding
    held: dict[int, Hold] = field(default_factory=dict)
    promised: dict[int, Hold] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    draining: set[int] = field(default_factory=set)
    last_epoch: int = 0
    orders: int = 0
    machine_was_lost: bool = False
    cluster_changed: bool = False
    """Whether events of the last step closed an open offer, because a machine joined, left or was drained."""
    _taken_away: dict[int, dict[int, None]] = field(default_factory=dict)
    """The last leases that held a slot when its machine was lost, by slot; their releases may be reported later."""
    _given_back: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By slot and lease, for the last leases that released the slot: the epoch and the number of the step."""
    _tuned: dict[int, int] = field(default_factory=dict)
    """The epoch of a lease's newest confirmed order about CPUs and memory, by lease."""
    _place: str = ""
    _at: float = 0.0
    _number: int = 0

    @property
    def begun(self) -> set[int]:
        """Return the numbers of all leases that hold slots or to which slots are promised."""
        return {hold.lease for holds in (self.held, self.promised) for hold in holds.values()}

    def is_down(self, slot: int) -> bool:
        """Return whether a slot's machine does not respond or has left, or drains while the slot is free."""
        return slot in self.down or (slot in self.draining and slot not in self.held)

    def take(self, step: JournalStep) -> None:
        """Replay one step; ``work.take`` must have replayed it before."""
        self._place, self._at, self._number = f"step {step.number}", step.at, step.number
        events = step.events
        self.cluster_changed = False
        for kind in _MACHINES:
            mine = [event for event in events if event["is"] == kind]
            for event in sorted(mine, key=lambda event: str(event["machine"])):
                self._machine(event)
        for event in sorted((event for event in events if event["is"] == "Released"), key=lambda event: event["lease"]):
            self._released(event)
        for event in events:
            self._give_up(event)
        self._use(events)
        decision = step.decision
        before = self.last_epoch
        for order in decision.get("orders", ()):
            self._check_epochs(order, before)
            self._leave(order)
            if order["kind"] == "PROBE":
                self._give(order)  # after the probe, the job has its lease's former slots again
            else:
                self._stay(order)
        transitions = decision.get("transitions", ())
        leases = self.begun
        for order in transitions:
            self._check_epochs(order, before)
            self._check_order(order, leases)
        for order in transitions:
            if not kind_of(order).effect.starts:
                self._leave(order)
        for order in transitions:
            if order["kind"] == "RETUNE":
                self._retune(order)
            elif not kind_of(order).effect.ends:
                self._give(order)
        for renewal in decision.get("renewals", ()):
            if renewal["lease"] not in self.begun:
                self._find(Rule.NO_SUCH_LEASE, f"lease {renewal['lease']} is renewed, but there is none")
        if transitions:
            self._check_amounts()

    # -- events

    def _machine(self, event: dict[str, Any]) -> None:
        name, kind = event["machine"], event["is"]
        machine = self.cluster.named(name)
        if kind == "MachineJoined":
            if machine is None:
                self.cluster.join(event)
                self.cluster_changed = True
            return  # there is another machine of that name: the arbiter refuses the event
        if machine is None and any(one.name == name for one in self.cluster.machines):
            return  # it has left: the arbiter refuses the event
        if machine is None:
            self._find(Rule.NO_SUCH_SLOT, f'the cluster has no machine "{name}"')
            return
        slots = set(event.get("gpus", ())) or set(machine.slots)
        if not slots <= set(machine.slots):
            return  # the event is about a former machine of that name: the arbiter refuses it
        match kind:
            case "MachineBack":
                self.down -= slots
                return
            case "MachineDraining":
                self.cluster_changed = True
                self.draining |= slots
                for slot in sorted(slots):
                    promise = self.promised.pop(slot, None)
                    if promise is not None and promise.job is not None:
                        self._drop_promises(promise.lease)
                return
            case "MachineKept":
                self.draining -= slots
                return
            case "MachineLeft":
                if sum(not machine.left for machine in self.cluster.machines) == 1:
                    return  # the arbiter refuses it
                self.cluster.leave(machine)
                self.draining -= slots
                self.cluster_changed = True
            case _:
                pass
        self.machine_was_lost = True
        self.down |= slots
        for slot in sorted(slots):
            promise = self.promised.pop(slot, None)
            if promise is not None and promise.job is not None:
                self._drop_promises(promise.lease)
            hold = self.held.get(slot)
            if hold is not None:
                taken = self._taken_away.setdefault(slot, {})
                taken[hold.lease] = None
                if len(taken) > _LEASES_KEPT:
                    del taken[next(iter(taken))]
                if hold.job is not None and not hold.leaving:
                    self._drop_promises(hold.lease)
            self._end(slot, lost=True)

    def _released(self, event: dict[str, Any]) -> None:
        lease, epoch = int(event["lease"]), int(event["epoch"])
        for slot in event["gpus"]:
            hold = self.held.get(slot)
            if hold is None or hold.lease != lease:
                self._not_its_holder(slot, lease, epoch)
            elif epoch >= hold.epoch:
                if not hold.leaving and hold.job is not None:
                    self._drop_promises(lease)
                self._note_return(slot, lease, epoch)
                self._end(slot)

    def _note_return(self, slot: int, lease: int, epoch: int) -> None:
        known = self._given_back.setdefault(slot, {})
        known.pop(lease, None)
        known[lease] = epoch, self._number
        if len(known) > _LEASES_KEPT:
            del known[next(iter(known))]

    def _not_its_holder(self, slot: int, lease: int, epoch: int) -> None:
        """Check a release by a lease that does not hold the slot: several events of one step may repeat a release."""
        if not 0 <= slot < self.cluster.slots:
            self._find(Rule.NO_SUCH_SLOT, f"lease {lease} gives slot {slot} back, which the cluster does not have")
            return
        last = self._given_back.get(slot, {}).get(lease)
        if lease in self._taken_away.get(slot, ()) or last == (epoch, self._number):
            return
        if last is not None and epoch < last[0]:
            return  # the late answer to an order that a newer one superseded
        again = f" again after step {last[1]}" if last is not None else ", which it does not hold"
        self._find(Rule.RELEASED_TWICE, f"lease {lease} gives slot {slot} back under epoch {epoch}{again}", slot=slot)

    def _give_up(self, event: dict[str, Any]) -> None:
        """Drop the reservations of leases that end without an order, as an event reports."""
        match event["is"]:
            case "JobFinished" | "JobFailed" | "JobPaused":
                self._drop_promises(*{each.lease for each in self.promised.values() if each.job == event["job"]})
            case "AppFinished" | "AppCancelled":
                self._drop_promises(*{each.lease for each in self.promised.values() if each.app == event["app"]})
            case "GpusReturned":
                for slot in event["gpus"]:
                    promise = self.promised.get(slot)
                    if promise is not None and promise.app == event["app"]:
                        del self.promised[slot]
            case _:
                pass

    def _drop_promises(self, *leases: int) -> None:
        self.promised = {slot: each for slot, each in self.promised.items() if each.lease not in leases}

    # -- orders

    def _check_epochs(self, order: dict[str, Any], before: int) -> None:
        epoch, fence = int(order["epoch"]), int(order["fence"])
        self.orders += 1
        if order["leaving"] and fence <= before:
            self._find(Rule.EPOCH_DOWN, f"{_words(order)} has fence {fence}, after epoch {before}", order)
        if epoch <= before or (order["leaving"] and fence > epoch):
            self._find(Rule.EPOCH_DOWN, f"{_words(order)} has epoch {epoch}, after {max(before, fence)}", order)
        self.last_epoch = max(self.last_epoch, epoch, fence)

    def _check_order(self, order: dict[str, Any], leases: set[int]) -> None:
        """Check that an order is about existing slots and an existing lease, and that its gang is whole."""
        slots = order["gpus"]
        for slot in [*slots, *order["leaving"]]:
            if not 0 <= slot < self.cluster.slots:
                self._find(Rule.NO_SUCH_SLOT, f"{_words(order)} names slot {slot} of {self.cluster.slots}", order)
        for slot in slots:
            if slot in self.down:
                what = f"{_words(order)} gives slot {slot}, whose machine does not answer"
                self._find(Rule.NO_SUCH_SLOT, what, order, slot=slot)
            hold = self.held.get(slot)
            if slot in self.draining and (hold is None or hold.lease != int(order["lease"])):
                self._find(Rule.NO_SUCH_SLOT, f"{_words(order)} gives slot {slot}, which drains", order, slot=slot)
        if len(set(slots)) < len(slots):
            self._find(Rule.TOO_MUCH, f"{_words(order)} names a slot more than once", order)
        lease = int(order["lease"])
        if (lease in leases) == kind_of(order).effect.starts:
            what = "begins a lease that there is already" if lease in leases else "is about a lease that there is not"
            self._find(Rule.NO_SUCH_LEASE, f"{_words(order)} {what}", order)
        if kind_of(order).effect.starts:
            self.work.check_start(order, self._place, self._at)
        probe = order.get("probe")
        if probe is not None:
            self._check_probe(order, probe["gpus"])

    def _check_probe(self, order: dict[str, Any], slots: list[int]) -> None:
        """Check that a measurement order is about slots of the job's lease, at a size that it has."""
        if not set(slots) <= set(order["gpus"]):
            self._find(Rule.NO_SUCH_SLOT, f"{_words(order)} measures on slots {slots}, which are not its own", order)
        self.work.check_measured(order, len(slots), self._place, self._at)

    def _leave(self, order: dict[str, Any]) -> None:
        if order["kind"] == "RETUNE":
            return
        lease, keeps = int(order["lease"]), set(order["gpus"])
        for slot in [slot for slot, each in self.promised.items() if each.lease == lease and slot not in keeps]:
            del self.promised[slot]
        for slot in order["leaving"]:
            hold = self.held.get(slot)
            if hold is not None and hold.lease == lease:
                hold.leaving, hold.epoch = True, int(order["fence"])
            elif 0 <= slot < self.cluster.slots and lease not in self._taken_away.get(slot, ()):
                other = "no lease" if hold is None else f"lease {hold.lease}"
                self._find(Rule.HELD_TWICE, f"{_words(order)} takes slot {slot}, but {other} holds it", order, slot)

    def _stay(self, order: dict[str, Any]) -> None:
        """Set the epoch of the slots that a lease keeps to the order's."""
        for slot in order["gpus"]:
            hold = self.held.get(slot)
            if hold is not None and hold.lease == order["lease"]:
                hold.epochs.append(int(order["epoch"]))
                self.workers.ordered(slot, int(order["epoch"]), hold.app, self._at, self._place)

    def _give(self, order: dict[str, Any]) -> None:
        lease = int(order["lease"])
        beside = zip(order["cpus"], order["memory_gib"], strict=True)
        for slot, (cpus, memory) in zip(order["gpus"], beside, strict=False):
            if not 0 <= slot < self.cluster.slots:
                continue
            new = self._hold_of(order, cpus, memory)
            self.workers.ordered(slot, new.epoch, new.app, self._at, self._place)
            hold = self.held.get(slot)
            if hold is None:
                self.held[slot] = new
                self.promised.pop(slot, None)
            elif hold.lease == lease and not hold.leaving:
                if not kind_of(order).effect.releases or order["job"] is not None:
                    hold.epoch = new.epoch  # a gang restarts; slots that an app divides continue unchanged
                hold.cpus, hold.memory_gib = hold.ordered = cpus, memory
                hold.epochs.append(new.epoch)
            else:
                if not hold.leaving or slot not in order["after"]:
                    what = f"{_words(order)} gives slot {slot} while lease {hold.lease} of {hold.app} holds it"
                    self._find(Rule.HELD_TWICE, what, order, slot)
                if hold.leaving and new.epoch <= hold.epoch:
                    what = f"{_words(order)} gives slot {slot} under an epoch that its holder leaves under"
                    self._find(Rule.EPOCH_DOWN, what, order, slot)
                self.promised[slot] = new

    def _hold_of(self, order: dict[str, Any], cpus: float, memory_gib: float) -> Hold:
        epoch = int(order["epoch"])
        return Hold(
            lease=int(order["lease"]),
            app=str(order["app"]),
            job=None if order["job"] is None else str(order["job"]),
            epoch=epoch,
            epochs=[epoch],
            since=self._at,
            cpus=cpus,
            memory_gib=memory_gib,
            ordered=(cpus, memory_gib),
        )

    def _end(self, slot: int, *, lost: bool = False) -> None:
        hold, promise = self.held.pop(slot, None), self.promised.pop(slot, None)
        if hold is not None:
            self.workers.left(slot, hold.epochs, hold.since, None if lost else self._at, self._place)
        if promise is not None:
            promise.since = self._at
            self.held[slot] = promise

    def finish(self) -> None:
        """Check the leases that still hold slots at the journal's end."""
        for slot, hold in self.held.items():
            self.workers.left(slot, hold.epochs, hold.since, None, self._place)

    # -- amounts

    def _retune(self, order: dict[str, Any]) -> None:
        """Record an order that changes a lease's CPUs and memory; the lease keeps its slots and epoch."""
        beside = zip(order["gpus"], order["cpus"], order["memory_gib"], strict=True)
        for slot, cpus, memory in beside:
            for hold in (self.held.get(slot), self.promised.get(slot)):
                if hold is not None and hold.lease == order["lease"]:
                    hold.cpus, hold.memory_gib = cpus, memory

    def _use(self, events: list[dict[str, Any]]) -> None:
        """Record the CPUs and memory in use, which processes report at their start and at changes."""
        said = [event for event in events if event["is"] in ("Started", "Resized", "Retuned")]
        for event in sorted(said, key=lambda event: event["is"] != "Retuned"):
            lease, epoch = int(event["lease"]), int(event["epoch"])
            mine = {slot: hold for slot, hold in self.held.items() if hold.lease == lease and not hold.leaving}
            if event["is"] == "Retuned":
                if epoch < self._tuned.get(lease, 0):
                    continue
                self._tuned[lease] = epoch
                for slot, *used in zip(event["gpus"], event["cpus"], event["memory_gib"], strict=True):
                    if slot in mine:
                        mine[slot].used = used[0], used[1]
                continue
            for hold in mine.values():
                if epoch == hold.epochs[-1] and epoch > self._tuned.get(lease, 0):
                    # A pending retune may have changed either amount before the start.
                    hold.used = min(hold.cpus, hold.ordered[0]), min(hold.memory_gib, hold.ordered[1])
        if said:
            holds = [self.held.get(slot) for slot in range(self.cluster.slots)]
            self._check_sums("used", [None if hold is None else hold.used for hold in holds])

    def _check_amounts(self) -> None:
        """Check each machine's sum of CPUs and memory; for a slot in transition, the next lease counts."""
        leases = [self.promised.get(slot) or self.held.get(slot) for slot in range(self.cluster.slots)]
        self._check_sums(
            "given", [None if hold is None or hold.leaving else (hold.cpus, hold.memory_gib) for hold in leases]
        )

    def _check_sums(self, verb: str, by_slot: list[tuple[float, float] | None]) -> None:
        for machine in self.cluster.machines:
            mine = [amounts for slot in machine.slots if (amounts := by_slot[slot]) is not None]
            for which, (unit, most) in enumerate((("CPUs", machine.cpus), ("GiB of memory", machine.memory_gib))):
                total = sum(amounts[which] for amounts in mine)
                if most is not None and total > most * (1.0 + 1e-6):
                    self._find(Rule.TOO_MUCH, f"{total:g} {unit} are {verb} of {machine.name}, which has {most:g}")

    def _find(
        self, rule: Rule, what: str, order: dict[str, Any] | None = None, slot: int | None = None
    ) -> None:  # fmt: skip
        app = None if order is None else str(order["app"])
        self.note(Finding(rule=rule, what=what, place=self._place, app=app, slot=slot, at=(self._at,)))

    def state(self) -> Iterator[tuple[int, Hold | None, Hold | None]]:
        """Yield each slot with its holder and its next holder."""
        for slot in range(self.cluster.slots):
            yield slot, self.held.get(slot), self.promised.get(slot)


def _words(order: dict[str, Any]) -> str:
    whose = order["job"] or order["app"]
    return f"{str(order['kind']).lower()} of lease {order['lease']} ({whose})"
