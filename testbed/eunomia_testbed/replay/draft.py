"""Drafts the jobs of a replay from a trace: their programs, gangs and lengths, before any rate is measured."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import builds, value
from eunomia.units import Bools
from eunomia_testbed.replay.measuring.setting import RateSetting
from eunomia_testbed.replay.scaling import Factors
from eunomia_testbed.replay.slots import ReplaySlots
from eunomia_testbed.running.plan import Plan as TracePlan
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.selecting import without_jobs
from eunomia_testbed.workloads.matching import Match, programs_of
from eunomia_testbed.workloads.programs import Program

LONGEST_NAME: Final = 64
"""Longest name of an app in characters."""
NO_LENGTH: Final = "a job's length alone must be known, from the trace or from --speeds"
TOO_WIDE: Final = "a job's gang must fit the slots (--gangs makes gangs smaller)"
NONE_LIVE: Final = "at least one job that is no trial of a search must have several sizes (--elastic 1..4 gives them)"
NO_BATCH: Final = "a job's batch size must have a sample for each slot of its largest gang"


@value
class DraftRegime:
    """A part of a job with one batch size, with its run time alone."""

    batch_size: int
    alone_seconds: float
    """Run time alone in seconds at the job's own size, before scaling."""


@value
class DraftJob:
    """A job of the trace, with the program that is trained in its place."""

    row: int
    """Row in the draft's workload."""
    app: str
    user: str
    least: int
    most: int
    model: str
    program: Program
    regimes: tuple[DraftRegime, ...]
    mode: str
    """How the program adapts its batch size: one of the program's modes, or ``static``."""
    why_stand_in: str
    """Why the program stands in for the model; empty: it has the model's architecture."""

    @property
    def alone_seconds(self) -> float:
        """Return the job's run time alone at its own size in seconds, before scaling."""
        return math.fsum(regime.alone_seconds for regime in self.regimes)

    @property
    def batch_size(self) -> int:
        """Return the first batch size."""
        return self.regimes[0].batch_size

    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of slots at which the job's rate is measured: least, most, and doublings of least."""
        doublings = (self.least * 2**power for power in range(1, 1 + max(1, self.most // self.least).bit_length()))
        return tuple(sorted({self.least, self.most, *(size for size in doublings if size < self.most)}))


@builds
class Draft:
    """The jobs of a trace on the slots of a replay, without rates.

    Attributes:
        trace: the trace as ``eunomia simulate`` reads it, with its policies.
        workload: the trace's jobs that can run, and a list of the dropped ones.
        live: whether jobs of several sizes change their size live.
    """

    trace: TracePlan
    workload: Workload
    jobs: tuple[DraftJob, ...]
    slots: ReplaySlots
    gangs: int
    live: bool = False

    def needed(self) -> tuple[RateSetting, ...]:
        """Return the settings whose rates must be measured, without duplicates."""
        counts = self.slots.counts
        settings = (
            RateSetting(
                program=job.program.name,
                command=job.program.command(batch_size=regime.batch_size),
                batch_size=regime.batch_size,
                slots=size,
                slot_type=slot_type,
            )
            for job in self.jobs
            for regime in job.regimes
            for size in job.sizes()
            for slot_type in counts
            if size <= counts[slot_type]
        )
        return tuple(dict.fromkeys(settings))

    def is_live(self, job: DraftJob) -> bool:
        """Return whether a job changes its size live; trials of a search never do."""
        app = int(self.workload.jobs.app[job.row])
        return self.live and job.least < job.most and app not in self.workload.searches

    def needed_changes(self) -> tuple[RateSetting, ...]:
        """Return the largest setting of each program with live changes on each slot type."""
        largest: dict[tuple[str, str], RateSetting] = {}
        mine = {(job.program.name, job.batch_size) for job in self.jobs if self.is_live(job)}
        for setting in self.needed():
            key = setting.program, setting.slot_type
            wider = key not in largest or largest[key].slots < setting.slots
            if (setting.program, setting.batch_size) in mine and setting.slots > 1 and wider:
                largest[key] = setting
        return tuple(largest.values())


def draft_of(
    trace: TracePlan,
    slots: ReplaySlots,
    *,
    gangs: int = 1,
    stand_ins: bool = True,
    live: bool = False,
    owner: str = "",
) -> Draft:
    """Choose a program for each job of a trace, and drop the jobs that cannot run.

    Args:
        trace: the trace as ``eunomia simulate`` reads it.
        slots: the slots of the replay.
        gangs: number of the trace's GPUs that one slot represents.
        stand_ins: whether a program may stand in for a model whose architecture it lacks.
        live: whether jobs of several sizes change their size live.
        owner: the user that owns all jobs; empty: each job's user in the trace owns it.

    Raises:
        InputError: no job can run, a model has no program although stand-ins are forbidden, or no job can change live.
    """
    before = trace.workloads[trace.seeds[0]]
    factors = Factors(time=1.0, gangs=gangs)
    kept = _that_fit(before, trace, slots, factors)
    lengths = _lengths(kept, trace)
    matches = {each.model: each for each in programs_of(_models(kept), stand_ins=stand_ins, place=kept.name)}
    names = _Names(kept.apps.id)
    jobs = [_job(kept, row, matches, lengths[row], names, factors) for row in range(kept.size)]
    small = np.array([min(part.batch_size for part in job.regimes) < job.most for job in jobs])
    if owner:
        jobs = [dataclasses.replace(job, user=owner) for job in jobs]
    last = dropped(kept, {NO_BATCH: (small, [f"{job.batch_size} samples for {job.most} slots" for job in jobs])})
    place = {name: row for row, name in enumerate(last.jobs.id)}
    left = [job for job in jobs if kept.jobs.id[job.row] in place]
    renumbered = tuple(dataclasses.replace(job, row=place[kept.jobs.id[job.row]]) for job in left)
    draft = Draft(trace=trace, workload=last, jobs=renumbered, slots=slots, gangs=gangs, live=live)
    if live and not any(draft.is_live(job) for job in draft.jobs):
        raise InputError(NONE_LIVE, value="none", place="--resizes live")
    return draft


def _that_fit(workload: Workload, trace: TracePlan, slots: ReplaySlots, factors: Factors) -> Workload:
    """Return the workload without jobs that are too wide for the slots, or whose length is unknown."""
    count = slots.size
    sizes = [factors.gang(most) for most in workload.jobs.most.tolist()]
    wide = np.array(sizes) > count
    if bool(wide.all()):
        least = min(math.ceil(most / count) for most in workload.jobs.most.tolist())
        found = f"gangs of at least {min(sizes)} for {count} slot{'s' * (count != 1)}; --gangs {least} would do"
        raise InputError("a workload must fit the slots at some scale", value=found, place=workload.name)
    unknown = np.array([not (math.isfinite(math.fsum(parts)) and parts) for parts in _lengths(workload, trace)])
    widths, lacks = [f"{size} slots" for size in sizes], ["none"] * workload.size
    return dropped(workload, {TOO_WIDE: (wide, widths), NO_LENGTH: (unknown, lacks)})


def _models(workload: Workload) -> list[str]:
    """Return the distinct models of the jobs; the empty name stands for jobs without a model."""
    rows = dict.fromkeys(workload.jobs.model.tolist())
    return [workload.models[row] if row >= 0 else "" for row in rows]


def _job(
    workload: Workload,
    row: int,
    matches: Mapping[str, Match],
    lengths: Sequence[float],
    names: "_Names",
    factors: Factors,
) -> DraftJob:
    kind = int(workload.jobs.model[row])
    match = matches[workload.models[kind] if kind >= 0 else ""]
    given = workload.jobs.batch_size
    own = None if given is None or math.isnan(given[row]) else float(given[row])
    batches: list[float | None] = [part.batch_size for part in workload.regimes.get(row, ())] or [own]
    most = factors.gang(int(workload.jobs.most[row]))
    return DraftJob(
        row=row,
        app=names.of_job(workload, row),
        user=plain_name(workload.users.id[int(workload.apps.user[int(workload.jobs.app[row])])]),
        least=min(most, factors.gang(int(workload.jobs.least[row]))),
        most=most,
        model=match.model,
        program=match.program,
        regimes=tuple(
            DraftRegime(batch_size=match.batch(batch).size, alone_seconds=seconds)
            for batch, seconds in zip(batches, lengths, strict=True)
        ),
        mode=_mode(workload, row, match.program),
        why_stand_in=match.why,
    )


def dropped(workload: Workload, rules: Mapping[str, tuple[Bools, Sequence[str]]]) -> Workload:
    """Return a workload without the jobs that break a rule, each listed with the first rule that it breaks.

    Args:
        workload: the workload.
        rules: by rule, the jobs that break it, and each job's value.

    Raises:
        InputError: no job is left.
    """
    broken: dict[str, str] = {}
    values: dict[str, str] = {}
    for rule, (jobs, found) in rules.items():
        for row in np.flatnonzero(jobs).tolist():
            name = workload.jobs.id[row]
            if name not in broken:
                broken[name], values[name] = rule, found[row]
    if len(broken) == workload.size:
        first = workload.jobs.id[0]
        reason = f"none of {workload.size} jobs does; the first: {broken[first]}, but got {values[first]}"
        raise InputError("a workload must fit the slots at some scale", value=reason, place=workload.name)
    for rule in rules:
        out = np.array([broken.get(name) == rule for name in workload.jobs.id])
        if bool(out.any()):
            workload = without_jobs(workload, out, rule, [values.get(name, "") for name in workload.jobs.id])
    return workload


def _lengths(workload: Workload, trace: TracePlan) -> list[list[float]]:
    """Return each job's seconds alone on its own gang by regime; NaN or inf: the length is unknown."""
    speeds = Speeds(workload, trace.cluster, trace.models)
    found: list[list[float]] = []
    for job in range(workload.size):
        gang = GangShape(int(workload.jobs.most[job]), speeds.own_type(job))
        regimes = speeds.regimes(job)
        whole: list[tuple[float, Regime | None]] = [(float(workload.jobs.iterations[job]), None)]
        parts = [(one.iterations, one) for one in regimes] or whole
        found.append([work * speeds.at(job, gang, regime=regime) for work, regime in parts])
    return found


def _mode(workload: Workload, row: int, program: Program) -> str:
    declared = "" if workload.jobs.adaptation is None else workload.jobs.adaptation[row]
    return declared if declared in program.modes and row in workload.regimes else "static"


# -- names


def plain_name(text: str) -> str:
    """Return a valid name of an app or user: other characters become ``-``, and long names are cut."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:LONGEST_NAME]
    return name if name[:1].isalnum() else f"a{name}"[:LONGEST_NAME]


class _Names:
    """Unique names of a replay's apps: those of the trace if valid, or else similar ones."""

    def __init__(self, apps: Iterable[str]) -> None:
        self._taken: set[str] = set()
        self._plain = {app: plain_name(app) for app in apps}

    def of_job(self, workload: Workload, row: int) -> str:
        """Return the name of a job's app; each job of an app that is not a search becomes an app of its own."""
        app = int(workload.jobs.app[row])
        name = self._plain[workload.apps.id[app]]
        if app in workload.searches:
            return name
        number = workload.jobs.id[row].rpartition("/")[2]
        several = int((workload.jobs.app == app).sum()) > 1
        name = plain_name(f"{name[: LONGEST_NAME - 1 - len(number)]}-{number}") if several else name
        while name in self._taken:
            name = plain_name(f"{name[: LONGEST_NAME - 2]}-x")
        self._taken.add(name)
        return name
