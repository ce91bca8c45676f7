"""Events that would let a waiting job start, each verified on a copy of the state."""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

from eunomia.contract.verdicts import Reason
from eunomia.explain.facts import Facts, longest_release, names_of
from eunomia.explain.holders import Holders
from eunomia.explain.what_if import Start, Trials, down_machines, what_is_down
from eunomia.model.shapes import value
from eunomia.model.workload import JobState
from eunomia.round.arbiter import Arbiter
from eunomia.units import NONE, JobId

_ROOM = ("lease_end", "protection_end", "release", "gpus", "order", "cpus", "memory")
_EVENTS = ("resume", "pause_end", "offer_end", "round", "plan", "measured", "machine_back", "profile", "fallback")
REMEDIES = (*_ROOM, *_EVENTS, "division", "text", "nothing")
"""Possible values of ``Remedy.what``."""
REMEDIES_SHOWN = 3
AT_NEXT_ROUND = ", at the next round"
"""Suffix for a remedy that does not itself trigger a round."""


@value
class Remedy:
    """An event that lets a waiting job start."""

    what: str
    """The kind of event: one of ``REMEDIES``."""
    text: str
    slots: tuple[int, ...] = ()
    """GPUs that the event frees."""
    in_seconds: float | None = None
    """Seconds until the event; None: the time is not known."""


NOTHING_FREES = (Remedy(what="nothing", text="nothing: it cannot run on the nodes in service"),)


class Remedies:
    """The remedies for one job.

    Args:
        arbiter: a copy of the arbiter at the moment of the explanation, for lookups.
        trials: dry runs in which remedies are tried.
        job: id of the waiting job.
        facts: the facts about the job.
    """

    def __init__(self, arbiter: Arbiter, trials: Trials, job: JobId, facts: Facts) -> None:
        self.arbiter, self.trials, self.job, self.facts = arbiter, trials, job, facts
        self.state = arbiter.state
        self.now, self.reason = trials.now, facts.reason
        self.row = self.state.job_row(job)
        self.app_row = int(self.state.jobs.live.app[self.row])
        self.app = self.state.app_id(self.app_row)
        self.holders = Holders(self.state, trials, self.row, facts.gpu_type)
        self.kind = JobState(int(self.state.jobs.live.state[self.row]))

    @cached_property
    def ahead(self) -> Start | None:
        """Return the job's start if time passes without arrivals; None if it does not start."""
        return self.trials.ahead(self.job)

    @property
    def _ahead_in(self) -> float | None:
        return None if self.ahead is None else max(0.0, float(self.ahead.at - self.now))

    def tried(self) -> tuple[Remedy, ...]:
        """Return the remedies that let the job start earlier than it would if only time passed."""
        if self.reason is None:
            return ()
        if self.reason in (Reason.PAUSED_BY_APP, Reason.SUSPENDED):
            text = f"{self.app} {'resumes it' if self.reason is Reason.PAUSED_BY_APP else 'goes on'}"
            return (Remedy(what="resume", text=text + _then(self.trials.resumed(self.job))),)
        if self.reason in (Reason.BACKING_OFF, Reason.GPU_HOURS):
            again = float(self.state.jobs.live.ready_at[self.row]) - self.now
            text = "its pause ends"
            text += _then(self.trials.resumed(self.job)) if self.reason is Reason.BACKING_OFF else ""
            return (Remedy(what="pause_end", text=text, in_seconds=max(0.0, again)),)
        if self.reason is Reason.AWAITING_RELEASE:
            return tuple(self._releases())
        if self.reason is Reason.PLUGIN_FAULT and self.trials.now_free(self.job) is None:
            return tuple(self._repairs())
        if self.trials.alone(self.job) is None:
            return tuple(self._unfit())
        return tuple(self._chances())

    def _releases(self) -> Iterable[Remedy]:
        lease = self.state.leases[int(self.state.jobs.live.lease[self.row])]
        held = self.state.holdings.live
        latest = max(0.0, lease.granted_at + longest_release(self.arbiter) - self.now)
        for gpu in lease.gpus:
            if held.lease[gpu] != lease.id and held.app[gpu] != NONE:
                text = f"{self.state.app_id(int(held.app[gpu]))} gives it back"
                yield Remedy(what="release", slots=(gpu,), text=text, in_seconds=latest)

    def _repairs(self) -> Iterable[Remedy]:
        plugin = self.facts.faulty_plugin or "the plugin"
        yield Remedy(what="profile", text=f"another profile, or a corrected {plugin}")
        left = self.facts.faults_allowed - self.facts.faults
        if not self.state.counters.fallen_back and self.ahead is not None:
            text = f"the fallback, which serves after {left} more failures"
            yield Remedy(what="fallback", text=text, in_seconds=self._ahead_in)

    def _unfit(self) -> Iterable[Remedy]:
        """Yield the remedies for a job that would not start even if it were alone on this cluster."""
        measured = self.trials.measured(self.job)
        if measured is not None or self.reason is Reason.NOT_PROFILED:
            yield Remedy(what="measured", text="a rate of it is measured or declared" + _then(measured))
        elif self.trials.alone(self.job, machines_back=True) is not None:
            yield from self._machines_back(always=True)
        elif self.reason is Reason.PLANNED_LATER:
            yield from self._planned()
        elif self.ahead is None:
            yield from NOTHING_FREES

    def _machines_back(self, *, always: bool = False) -> Iterable[Remedy]:
        down = down_machines(self.state)
        enough = self.trials.machines_back(self.job) if down else None
        if enough is not None or always:
            yield Remedy(
                what="machine_back", text=f"{names_of(what_is_down(self.state))} back in service" + _then(enough)
            )

    def _planned(self) -> Iterable[Remedy]:
        planned = self.state.reports.starts_at.get(self.row, math.nan)
        if planned >= self.now:
            yield Remedy(what="plan", text="its turn in the plan", in_seconds=float(planned - self.now))

    def _chances(self) -> Iterable[Remedy]:
        yield from self._planned()
        divided = list(self._division())
        if divided:
            yield from divided
            return
        if self.trials.now_free(self.job) is not None:
            if self.state.open is None and self.reason is not Reason.PLANNED_LATER:
                yield Remedy(what="round", text="the next round", in_seconds=self._next_round())
            return
        yield from self._short()
        yield from self._holders_leaving()
        yield from self._machines_back()
        first = self.trials.first(self.job) if self.facts.others_waiting else None
        if first is not None:
            ahead = f": {names_of(self.facts.ahead_names)} first" if self.facts.ahead_names else ""
            yield Remedy(what="order", text=f"no other job waiting{ahead}{_then(first)}")

    def _division(self) -> Iterable[Remedy]:
        """Yield the remedy that the job's app assigns GPUs that it holds but has not assigned to a job yet."""
        held = self.state.holdings.live
        idle = [
            gpu for gpu in range(self.state.cluster.gpus) if held.app[gpu] == self.app_row and held.job[gpu] == NONE
        ]
        shared = [gpu for gpu in idle if self.state.leases[int(held.lease[gpu])].job == NONE]
        if len(shared) >= int(self.state.jobs.live.least[self.row]):
            yield Remedy(what="division", slots=tuple(shared), text=f"{self.app} puts it on a slot that it holds")

    def _next_round(self) -> float | None:
        """Return the seconds until the next round; None: not known."""
        decision = self.trials.copy().step(self.now)
        if decision.causes:
            return 0.0
        soon = float(decision.wake_at) - float(self.now)
        return soon if math.isfinite(soon) else None

    def _short(self) -> Iterable[Remedy]:
        if self.reason is Reason.CPUS_SHORT and self.facts.cpus_asked > self.facts.cpus_left:
            yield Remedy(
                what="cpus", text=f"{self.facts.cpus_asked - self.facts.cpus_left:g} more CPUs with free slots"
            )
        if self.reason is Reason.MEMORY_SHORT and self.facts.memory_asked > self.facts.memory_left:
            yield Remedy(
                what="memory",
                text=f"{self.facts.memory_asked - self.facts.memory_left:g} GiB more memory with free slots",
            )

    def _holders_leaving(self) -> Iterable[Remedy]:
        """Yield the ends of leases that let the job start: single leases, soonest first, else a smallest set."""
        leases = self.holders.usable()
        alone = [lease for lease in leases if self.trials.released(self.job, [lease]) is not None][:REMEDIES_SHOWN]
        for lease in alone:
            yield self._done([lease], self.holders.over_in([lease]))
        together = [] if alone else self.holders.needed_together(leases)
        if together:
            yield self._done(together, self.holders.over_in(together))
        enough = [[lease] for lease in alone] or ([together] if together else [])
        if enough:
            yield self._fewest(min(enough, key=self.holders.gpus_gained))

    def _fewest(self, leases: Sequence[int]) -> Remedy:
        """Return the remedy with the smallest number of these leases' GPUs that lets the job start."""
        most = self.holders.gpus_gained(leases)
        tried = (many for many in range(1, most) if self.trials.released(self.job, leases, only=many) is not None)
        count = next(tried, most)
        where = " on one machine" if self.reason is Reason.FRAGMENTED else ""
        return Remedy(what="gpus", text=f"{count} more free {self.facts.slots_of_type(count)}{where}")

    def _done(self, leases: Sequence[int], seconds: float | None) -> Remedy:
        """Return the remedy that all these leases finish their work."""
        gpus = tuple(sorted(gpu for one in leases for gpu in self.state.leases[one].gpus))
        text = f"{names_of([self.holders.name(one) for one in leases])} done"
        return Remedy(what="release", slots=gpus, text=text, in_seconds=seconds)

    def listed(self, texts: Sequence[str]) -> tuple[Remedy, ...]:
        """Return all remedies: those that need only time, then those that were tried, then the plugins' texts."""
        if self.reason is None:
            return ()
        tried = self.tried()
        timely = [] if tried[:1] == NOTHING_FREES else [*self._offer_end(), *self._timely(tried)]
        known = {remedy.slots for remedy in timely if remedy.what == "release"}
        rest = (remedy for remedy in tried if remedy.what != "release" or remedy.slots not in known)
        return (*timely, *rest, *(Remedy(what="text", text=text) for text in texts))

    def _offer_end(self) -> Iterable[Remedy]:
        if self.state.open is not None and self.kind is JobState.WAITING:
            closes = self.state.open.offer.closes_at
            seconds = None if closes is None else max(0.0, float(closes - self.now))
            yield Remedy(what="offer_end", text="the open offer is decided", in_seconds=seconds)

    def _timely(self, tried: Sequence[Remedy]) -> Iterable[Remedy]:
        """Yield the remedies that need only time to pass, without arrivals."""
        ahead = None if _SETTLED & {remedy.what for remedy in tried} else self.ahead
        if ahead is None or self.reason in (Reason.AWAITING_RELEASE, Reason.PAUSED_BY_APP, Reason.SUSPENDED):
            return
        if self.state.open is not None and ahead.at <= (self.state.open.offer.closes_at or ahead.at):
            return  # the end of the offer is listed already
        held = self.state.holdings.live
        numbers = sorted({int(held.lease[gpu]) for gpu in ahead.gpus.tolist() if held.app[gpu] != NONE})
        if not numbers:
            yield Remedy(what="round", text="a later round", in_seconds=self._ahead_in)
            return
        ended = all(self.state.leases[number].ends_at <= ahead.at for number in numbers)
        if ended:
            mine = tuple(gpu for gpu in ahead.gpus.tolist() if held.app[gpu] != NONE)
            names = names_of([str(self.state.app_id(self.state.leases[number].app)) for number in numbers])
            text = f"lease of {names} ends" if len(numbers) == 1 else f"leases of {names} end"
            yield Remedy(what="lease_end", slots=mine, text=text, in_seconds=self._ahead_in)
        elif ahead.preempted & set(numbers):
            yield self._preemption(ahead, [number for number in numbers if number in ahead.preempted])
        elif self.trials.released(self.job, numbers) is not None:
            yield self._done(numbers, self._ahead_in)
        else:
            yield Remedy(what="round", text="its turn, as running jobs end", in_seconds=self._ahead_in)

    def _preemption(self, start: Start, numbers: Sequence[int]) -> Remedy:
        """Return the end of these leases' protected times, or the round that preempts them if none is protected."""
        until = max(float(self.state.leases[number].protected_until) for number in numbers)
        names = names_of([self.holders.name(number) for number in numbers])
        if not self.now < until <= start.at:
            return Remedy(what="round", text=f"its turn before {names}", in_seconds=self._ahead_in)
        slots = tuple(sorted(gpu for number in numbers for gpu in self.state.leases[number].gpus))
        ends = f"protected part of the lease of {names} ends"
        if len(numbers) > 1:
            ends = f"protected parts of the leases of {names} end"
        text = ends + ("" if start.at <= until else AT_NEXT_ROUND)
        return Remedy(what="protection_end", slots=slots, text=text, in_seconds=until - self.now)


_SETTLED = {"round", "pause_end", "plan", "resume", "division", "fallback"}
"""Remedies that already give the time at which the job starts."""


def _then(start: Start | None) -> str:
    """Return the further event that the job's start needs after the remedy, as text; empty if none is needed."""
    if start is None:
        return "; then it waits for slots"
    return "" if start.prompt else AT_NEXT_ROUND
