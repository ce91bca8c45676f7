"""The facts behind a reason: what a waiting job requests, what is available, and its place in the order."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from eunomia.contract.decisions import Decision
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.valuations import Scores, Valuations
from eunomia.contract.verdicts import Reason
from eunomia.model.leases import GpuState
from eunomia.model.shapes import builds
from eunomia.model.workload import JobState
from eunomia.round.arbiter import Arbiter
from eunomia.round.show import make_offer
from eunomia.store.state import State
from eunomia.units import NEVER, NONE, Bools, Ints, Reals, Scope, Unit, format_duration


@builds
class GpusForJob:
    """The GPUs of the cluster for one waiting job; if the job requests a GPU type, only GPUs of that type."""

    capacity: int
    """GPUs in service."""
    down: int
    """GPUs that are down."""
    leaving: int
    """GPUs whose holders were ordered to release them and have not done so yet."""
    own_leaving: int
    """GPUs among ``leaving`` that are held by the job itself or its app."""
    free: int
    """GPUs that a round could lease now."""
    widest: int
    """Largest number of GPUs in service on one machine."""
    largest: int
    """Largest number of free GPUs on one machine."""
    cpus_left: float
    """Largest number of free CPUs on a machine with free GPUs; inf: not known."""
    memory_left: float
    """Largest amount of free memory, in GiB, on a machine with free GPUs; inf: not known."""
    offered: int
    """GPUs of the open offer; 0 if no offer is open."""
    closes_in: float


@builds
class Facts(GpusForJob):
    """The facts about one waiting job, including the GPUs that the cluster has for it."""

    reason: Reason | None
    app: str
    gpu_type: int
    type_name: str
    """GPU type that the job requests; empty if it accepts any."""
    least: int
    most: int
    cpus_asked: float
    """CPUs that the job requests at its smallest size; NaN if it requests none."""
    memory_asked: float
    others_waiting: int
    place: int | None
    """The job's place in the order of service among waiting jobs, from 1; None: there is no such order."""
    ahead_names: tuple[str, ...]
    """Ids of the jobs ahead of this job in the order of service."""
    received: float
    """GPU-seconds leased to the job's app so far."""
    planned_in: float
    """Seconds until the planned start; NaN: no start is planned for the job."""
    granted: int
    """GPUs of the job's lease; 0 without a lease."""
    pending: int
    """GPUs of the job's lease that their previous holders have not released yet."""
    again_in: float
    """Seconds until the job's back-off ends."""
    faults: int
    faults_allowed: int
    fault: str
    faulty_plugin: str

    def sentence(self, text: str) -> str:
        """Return a sentence of ``reasons.SENTENCES`` with its fields filled in."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return text.format(
            **fields
            | {
                "wanted": self.wanted,
                "in_service": self.in_service,
                "granted": f"{self.granted} {slots(self.granted)}",
                "planned": f"in {_duration(self.planned_in)}" if self.planned_in >= 0.0 else "later",
                "again_in": _duration(self.again_in),
                "round_state": self.round_state,
                "queue": self.queue,
            }
        )

    @property
    def wanted(self) -> str:
        """Return the sizes that the job requests, as text."""
        sizes = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        if self.reason is Reason.NO_SIZE_FITS:
            sizes = str(self.least)
        return f"{sizes} {self.slots_of_type(self.most)}"

    @property
    def in_service(self) -> str:
        """Return the numbers of GPUs in service and of GPUs that are down, as text."""
        total = self.capacity + self.down
        return f"{self.capacity} in service of {total} ({self.down} down)" if self.down else f"{self.capacity}"

    def slots_of_type(self, count: int) -> str:
        """Return "slot" or "slots", with the GPU type that the job requests: ``slots of V100``."""
        return slots(count) + (f" of {self.type_name}" if self.type_name else "")

    @property
    def queue(self) -> str:
        """Return the job's place among the waiting jobs, as text."""
        if self.others_waiting == 0:
            return "no other job waits"
        if self.place is None:
            return f"{self.others_waiting} {'other' if self.others_waiting == 1 else 'others'} waiting"
        behind = f", behind {names_of(self.ahead_names)}" if self.ahead_names else ""
        return f"it is number {self.place} of {self.others_waiting + 1} in the order of service{behind}"

    @property
    def round_state(self) -> str:
        """Return a sentence about the event that causes the next round, for a job that no round has considered."""
        if self.offered:
            when = f" within {_duration(self.closes_in)}" if math.isfinite(self.closes_in) else ""
            return f"An offer of {self.offered} {slots(self.offered)} is out with the apps; it is decided{when}."
        if self.own_leaving:
            theirs = f"{self.own_leaving} {slots(self.own_leaving)} that it ran on"
            return (
                f"It is being stopped: {theirs} have not been given back yet, and a worker that does not leave is "
                "killed when its grace is over; a round follows."
            )
        if self.free == 0 and self.capacity:
            held = f"no slot is free: {self.capacity} of {self.capacity} are held"
            held += f", {self.leaving} of them by jobs that are being stopped" if self.leaving else ""
            return (
                f"No round has decided about it yet; {held}, and a round follows when one is given back; {self.queue}."
            )
        return f"No round has decided about it yet; {self.free} {slots(self.free)} free now, and {self.queue}."

    def numbers(self) -> dict[str, float]:
        """Return the numbers that the job's sentence contains, by name."""
        known = {name: float(getattr(self, name)) for name in _NUMBERS.get(self.reason, ()) if self.reason is not None}
        if self.reason is Reason.OUTRANKED and self.place is not None:
            known["place"] = float(self.place)
        return {name: number for name, number in known.items() if math.isfinite(number)}


_NUMBERS: Mapping[Reason | None, tuple[str, ...]] = {
    Reason.NO_SIZE_FITS: ("least", "capacity", "widest"),
    Reason.NO_GPU_OF_TYPE: ("least", "free", "capacity"),
    Reason.FRAGMENTED: ("least", "free", "largest"),
    Reason.CPUS_SHORT: ("least", "cpus_asked", "cpus_left"),
    Reason.MEMORY_SHORT: ("least", "memory_asked", "memory_left"),
    Reason.OUTRANKED: ("least", "free", "others_waiting"),
    Reason.NOT_OFFERED: ("least", "free"),
    Reason.OUTBID: ("least", "free"),
    Reason.HELD_BACK: ("least", "free"),
    Reason.SHARE_USED_UP: ("least", "received"),
    Reason.PLANNED_LATER: ("least", "planned_in"),
    Reason.AWAITING_RELEASE: ("granted", "pending"),
    Reason.NOT_PROFILED: ("least",),
    Reason.BACKING_OFF: ("again_in",),
    Reason.GPU_HOURS: ("again_in",),
    Reason.AWAITING_ROUND: ("least", "free", "offered", "closes_in"),
    Reason.PLUGIN_FAULT: ("faults", "faults_allowed"),
}


def facts_of(arbiter: Arbiter, row: int, reason: Reason | None, decision: Decision | None) -> Facts:
    """Collect the facts about one job.

    Args:
        arbiter: a copy of the arbiter; see ``Trials``.
        row: the job's row.
        reason: why the job waits; None if it does not wait.
        decision: the decision of the round that gave the job no GPUs; None: no longer known.
    """
    state = arbiter.state
    jobs, held, cluster = state.jobs.live, state.holdings.live, state.cluster
    kind = int(jobs.gpu_type[row])
    least, most = int(jobs.least[row]), int(jobs.most[row])
    usable = np.ones(cluster.gpus, dtype=bool) if kind == NONE else cluster.gpu_type == kind
    up = usable_gpus(state, kind)
    leaving = held.state[: cluster.gpus] == GpuState.LEAVING
    own = (held.job == row) | ((held.job == NONE) & (held.app == jobs.app[row]))
    offer = make_offer(state, Scope.FREE, NEVER)
    free = offer.gpus[usable[offer.gpus] & (held.lease[offer.gpus] == NONE)]
    machines = len(cluster.machines)
    room = np.bincount(cluster.machine[free], minlength=machines)
    place, ahead = order_of_service(arbiter, row, offer)
    lease = state.leases.get(int(state.jobs.live.lease[row]))
    pending = 0 if lease is None else int((held.lease[lease.gpus] != lease.id).sum())
    waiting = np.flatnonzero(jobs.state[: state.jobs.used] == JobState.WAITING)
    fault = next((one for one in decision.faults if one.stage is not None), None) if decision is not None else None
    opened, stage = state.open, "" if fault is None or fault.stage is None else fault.stage.value
    return Facts(
        reason=reason,
        app=str(state.app_id(int(jobs.app[row]))),
        gpu_type=kind,
        type_name="" if kind == NONE else (cluster.gpu_types[kind] if kind >= 0 else "an unknown type"),
        least=least,
        most=most,
        capacity=int(up.sum()),
        down=int((usable & ~np.isin(cluster.machine, [*cluster.left])).sum() - up.sum()),
        leaving=int((usable & leaving).sum()),
        own_leaving=int((own[: cluster.gpus] & leaving).sum()),
        free=int(free.size),
        widest=int(np.bincount(cluster.machine[up], minlength=1).max()),
        largest=int(room.max(initial=0)),
        cpus_asked=float(jobs.cpus[row]) * least,
        cpus_left=_most_left(cluster.machine_cpus, state, held.cpus, room),
        memory_asked=float(jobs.memory_gib[row]) * least,
        memory_left=_most_left(cluster.machine_memory_gib, state, held.memory_gib, room),
        others_waiting=int(np.count_nonzero(waiting != row)),
        place=place,
        ahead_names=ahead,
        received=float(state.app_ledger.gpu_seconds[jobs.app[row]]),
        planned_in=float(state.reports.starts_at.get(row, math.nan)) - float(state.now),
        granted=0 if lease is None else len(lease.gpus),
        pending=pending,
        again_in=max(0.0, float(state.jobs.live.ready_at[row]) - float(state.now)),
        offered=0 if opened is None else int(opened.offer.gpus.size),
        closes_in=math.inf if opened is None else max(0.0, float(opened.offer.closes_at or NEVER) - float(state.now)),
        faults=state.counters.faults_in_row,
        faults_allowed=arbiter.serving.rounds.faults_allowed,
        fault="no longer known" if fault is None else f"{fault.plugin} ({stage}): {fault.what}",
        faulty_plugin="" if fault is None else fault.plugin,
    )


def usable_gpus(state: State, kind: int) -> Bools:
    """Return the mask of the GPUs of a type on which leases may begin or go on: those in service that do not drain.

    Args:
        state: the arbiter's state.
        kind: number of the GPU type; -1: any.
    """
    cluster = state.cluster
    usable: Bools = np.asarray(state.holdings.live.state[: cluster.gpus] != GpuState.DOWN)
    usable[list(state.capacity.draining)] = False
    return usable if kind == NONE else usable & (cluster.gpu_type == kind)


def longest_release(arbiter: Arbiter) -> float:
    """Return the seconds that a job has to release its GPUs: the profile's grace, or the menus' if longer.

    Args:
        arbiter: a copy of the arbiter, as this calls the elasticity.
    """
    grace = float(arbiter.serving.rounds.suspend_grace)
    try:
        menus = arbiter.serving.elasticity(arbiter.snapshot())
    except Exception:  # a plugin's fault must not prevent the explanation
        return grace
    return max(grace, float(menus.change.release)) if isinstance(menus, Menus) else grace


def order_of_service(arbiter: Arbiter, row: int, offer: Offer) -> tuple[int | None, tuple[str, ...]]:
    """Return a job's place among the waiting jobs, by the valuation's scores, and the jobs ahead of it.

    Args:
        arbiter: a copy of the arbiter, as this calls the valuation.
        row: the job's row.
        offer: the free GPUs.

    Returns:
        The place from 1 (None: the valuation gives no scores, fails or omits the job), and the ids of jobs ahead.
    """
    try:
        snapshot = arbiter.snapshot()
        menus = arbiter.serving.elasticity(snapshot)
        scored = _ranked(snapshot, menus, offer, arbiter.serving.valuation(snapshot, menus, offer))
    except Exception:  # a plugin's fault must not prevent the explanation
        return None, ()
    if row not in scored:
        return None, ()
    waits = arbiter.state.jobs.live.state
    ahead = [other for other in scored[: scored.index(row)] if waits[other] == JobState.WAITING]
    return len(ahead) + 1, tuple(str(arbiter.state.job_id(other)) for other in ahead)


def _ranked(snapshot: Snapshot, menus: Menus, offer: Offer, valuations: Valuations) -> list[int]:
    """Return the rows of the candidates by score, or an empty list if the valuation gives no scores."""
    forms = [form for form in valuations.forms if isinstance(form, Scores)]
    if not forms or not isinstance(menus, Menus):
        return []
    rows = valuations.claims.rows[forms[0].ranking()].tolist()
    if valuations.claims.unit is Unit.JOB:
        return [int(row) for row in rows]
    owner = snapshot.jobs.app[offer.candidates]
    if valuations.claims.unit is not Unit.APP:
        owner = snapshot.apps.user[owner]
    place = {int(row): index for index, row in reversed(list(enumerate(rows)))}
    order = np.lexsort((np.arange(owner.size), [place.get(int(row), len(rows)) for row in owner]))
    return [int(row) for row in offer.candidates[order]]


def _most_left(total: Reals, state: State, used: Reals, room: Ints) -> float:
    """Return the largest unused amount of a resource on a machine with free GPUs; inf: not known."""
    cluster = state.cluster
    spent = np.bincount(cluster.machine, weights=np.nan_to_num(used[: cluster.gpus]), minlength=total.size)
    left = np.where(np.isnan(total), np.inf, total - spent)[room > 0]
    return float(left.max(initial=0.0))


def names_of(names: Sequence[str]) -> str:
    """Return names for a sentence: the first two, and the number of further ones."""
    different = list(dict.fromkeys(names))
    shown, more = different[:2], len(different) - 2
    return f"{', '.join(shown)} and {more} more" if more > 0 else " and ".join(shown)


def slots(count: int) -> str:
    """Return ``slot`` or ``slots``, depending on the count."""
    return "slot" if count == 1 else "slots"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else format_duration(seconds)
