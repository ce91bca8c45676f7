"""Compares a saved state with the checker's replay of the steps before it, for the columns that the checker replays."""

from dataclasses import dataclass
from typing import Any

from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule
from eunomia_appmaster.journal_check.reading import JournalStep, Saved
from eunomia_appmaster.journal_check.slots import Hold, Slots
from eunomia_appmaster.journal_check.work import Work

LEAVING, DOWN = 3, 4
"""Numbers of two states of a slot in a saved state."""


@dataclass(slots=True)
class Columns:
    """The columns of a saved state with one value per slot."""

    lease: list[int]
    epoch: list[int]
    state: list[int]
    successor: list[int]
    cpus: list[float]
    memory_gib: list[float]
    cpus_in_use: list[float]
    memory_gib_in_use: list[float]

    @classmethod
    def read(cls, state: dict[str, Any]) -> "Columns":
        """Read the columns from a saved state's JSON.

        Raises:
            KeyError, TypeError: the JSON is malformed.
        """
        columns = state["tables"]["holdings"]["columns"]
        lease, epoch, states, successor = (
            list(map(int, columns[name])) for name in ("lease", "epoch", "state", "successor")
        )
        names = ("cpus", "memory_gib", "cpus_in_use", "memory_gib_in_use")
        cpus, memory_gib, cpus_in_use, memory_gib_in_use = (list(map(float, columns[name])) for name in names)
        return cls(lease, epoch, states, successor, cpus, memory_gib, cpus_in_use, memory_gib_in_use)


def compare(saved: Saved, step: JournalStep, slots: Slots, work: Work, offer: int | None, note: AddFinding) -> None:
    """Compare a saved state with the replay up to its step.

    Args:
        saved: the saved state.
        step: the step after which it was saved.
        slots: the replay of the slots' holders.
        work: the replay of apps and jobs.
        offer: number of the open offer; None if none is open.
        note: called with each finding.
    """
    place = f"checkpoint after step {saved.after_step}"

    def differs(name: str, there: object, follows: object, slot: int | None = None) -> None:
        what = f"{name} is {there} there, but {follows} follows from the steps"
        note(Finding(rule=Rule.CHECKPOINT_DIFFERS, what=what, place=place, slot=slot, at=(step.at,)))

    try:
        columns, scalars = Columns.read(saved.state), saved.state["scalars"]
        opened = None if saved.state["open"] is None else int(saved.state["open"][0]["id"])
        apps = set(saved.state["maps"]["app_rows"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        note(Finding(rule=Rule.UNREADABLE, what=f"a part of the state is missing: {error!r}", place=place))
        return
    for name in ("now", "version", "round"):
        if scalars[name] != step.decision.get(name):
            differs(name, scalars[name], step.decision.get(name))
    if scalars["last_epoch"] < slots.last_epoch:
        differs("the last epoch", scalars["last_epoch"], f"{slots.last_epoch} or more")
    if opened != offer:
        differs("the open offer", opened, offer)
    if len(columns.lease) != slots.cluster.slots:
        differs("the number of slots", len(columns.lease), slots.cluster.slots)
        return
    for slot, hold, promise in slots.state():
        _compare_slot(slot, columns, hold, promise, slots.is_down(slot), differs)
    for app in sorted(set(work.live) - apps):
        differs(f"app {app}", "missing", "that it is live")


def _compare_slot(
    slot: int, columns: Columns, hold: Hold | None, promise: Hold | None, down: bool, differs: Any
) -> None:  # fmt: skip
    lease = -1 if hold is None else hold.lease
    if columns.lease[slot] != lease:
        differs(f"the lease of slot {slot}", columns.lease[slot], lease, slot)
        return
    next_lease = -1 if promise is None else promise.lease
    if columns.successor[slot] != next_lease:
        differs(f"the next lease of slot {slot}", columns.successor[slot], next_lease, slot)
    leaves = hold is not None and hold.leaving
    if (columns.state[slot] == LEAVING) != leaves:
        differs(f"slot {slot}", "leaving" if not leaves else "not leaving", "the opposite", slot)
    if (columns.state[slot] == DOWN) != down:
        differs(f"slot {slot}", "up" if down else "down", "the opposite", slot)
    if hold is not None and columns.epoch[slot] < hold.epoch:
        differs(f"the epoch of slot {slot}", columns.epoch[slot], hold.epoch, slot)


def begin_from(saved: Saved, slots: Slots, work: Work, at: float) -> None:
    """Begin the replay from a saved state.

    Raises:
        KeyError, TypeError, ValueError: a part of it is missing.
    """
    columns, state = Columns.read(saved.state), saved.state
    for row in state.get("machines", ())[len(slots.cluster.machines) :]:
        slots.cluster.join({"machine": row[0], "gpus": row[2], "cpus": row[5], "memory_gib": row[6]})
    for number in state.get("left", ()):
        slots.cluster.leave(slots.cluster.machines[number])
    slots.draining = {int(slot) for slot, _ in state.get("draining", ())}
    drained = set(state.get("drained", ()))
    apps = {int(row): str(app) for app, row in state["maps"]["app_rows"].items()}
    jobs = {int(row): str(job) for job, row in state["maps"]["job_rows"].items()}
    leases = {int(lease["id"]): lease for lease in state["leases"]}

    def hold(number: int, epoch: int, slot: int, *, leaving: bool = False) -> Hold:
        lease = leases[number]
        job = jobs.get(int(lease["job"]))
        epochs = [epoch, int(lease["epoch"])]
        return Hold(
            lease=number, app=apps.get(int(lease["app"]), ""), job=job, epoch=epoch, epochs=epochs, since=0.0,
            leaving=leaving, cpus=columns.cpus[slot], memory_gib=columns.memory_gib[slot],
            ordered=(columns.cpus[slot], columns.memory_gib[slot]),
        )  # fmt: skip

    for slot, lease in enumerate(columns.lease):
        if lease >= 0:
            holder = hold(lease, columns.epoch[slot], slot, leaving=columns.state[slot] == LEAVING)
            holder.used = columns.cpus_in_use[slot], columns.memory_gib_in_use[slot]
            slots.held[slot] = holder
        if columns.successor[slot] >= 0:
            slots.promised[slot] = hold(columns.successor[slot], int(leases[columns.successor[slot]]["epoch"]), slot)
        if columns.state[slot] == DOWN and slot not in drained:
            slots.down.add(slot)
    slots.last_epoch = int(state["scalars"]["last_epoch"])
    work.whole = False
    for app in apps.values():
        work.live[app] = at, saved.after_step
