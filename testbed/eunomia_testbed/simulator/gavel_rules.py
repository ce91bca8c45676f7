"""The round rules of the public simulators of Gavel and of Shockwave, which is derived from it (``--rules gavel``).

A round ends when its last job does, and a job that ends early leaves its GPUs idle until then. A job does as many whole
steps as fit in a round. Arrivals wait for the next boundary. With a restart cost, a job that did not run in the
previous round makes no step for that time, unless its round is short. Jobs that adapt their batch size request the
change at a boundary, get it at the end of their next round, and keep their number of epochs.

Sources: the public repositories ``stanford-futuredata/gavel`` (OSDI'20) and ``uw-mad-dash/shockwave`` (NSDI'23). Two of
their rules are left out: a job that runs 1.5 times as long as its profile says is ended; and after a time without jobs,
the first round counts from the end of the last one.
"""

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.units import Bools, Ints, Locality, Reals
from eunomia.words import exact_duration
from eunomia_testbed.performance import PerformanceModel, Setting
from eunomia_testbed.simulator.rules import Change, RoundJobs, Worked
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.adaptation import LARGEST_BATCH, growth_of, named_model, split_model, steps_per_epoch

SHORT_SECONDS: Final = 5.0
"""Seconds by which a job's last round must be shorter than the others for its restart to be free."""
_LITTLE: Final = 0.5
"""Iterations reported as left for a job that has no work left but has not ended."""
_ADAPTING: Final = frozenset({"accordion", "gns"})
"""Adaptation modes for which the peers' simulators have rules; other jobs keep their batch size."""
_SMALL_PART: Final = 1e-9
"""Smaller fractions of an epoch count as zero."""
_WHOLE: Final = 1e-9
"""Tolerance in steps for rounding errors, since rates are given as their inverse."""


@value
class GavelRuleOptions:
    """Options of the round rules, with the values of Shockwave's simulator as defaults."""

    round_seconds: float = 120.0
    """Length of a round in seconds: 120 in Shockwave's simulator, 360 in Gavel's."""
    restart_seconds: float = 20.0
    """Seconds that a restart takes; 0 in Gavel's simulator."""
    least_between_seconds: float = 1000.0
    """Least seconds between two solutions of a policy; Gavel's simulator has 1920."""
    credit: float = 0.5
    """Fraction of a round with which every job is credited at each solution."""
    failures: int = 5
    """Number of rounds without a step after which a job ends. A job that has no work left after a change of its batch
    size ends only then, and holds its GPUs until then."""
    gpu_type: str = "V100"
    """The GPU type for the speeds of adapting jobs, which are equally fast on every type after their first change."""

    def check(self) -> None:
        """Check that the options are valid.

        Raises:
            InputError: a time, the credit or ``failures`` is out of its range, or a restart takes as long as a round.
        """
        if not 0.0 < self.round_seconds < math.inf:
            raise InputError("a round must take time", value=f"{self.round_seconds:g} s")
        if not 0.0 <= self.restart_seconds < self.round_seconds:
            raise InputError("a restart must be shorter than a round", value=f"{self.restart_seconds} s")
        if not 0.0 <= self.least_between_seconds < math.inf:
            raise InputError("the time between two solutions must be at least 0", value=f"{self.least_between_seconds}")
        if not 0.0 <= self.credit <= 1.0:
            raise InputError("the credit must be a part of a round", value=str(self.credit))
        if self.failures < 1:
            raise InputError("a job must be given up after at least 1 round", value=str(self.failures))


SHOCKWAVE: Final = GavelRuleOptions()
GAVEL: Final = GavelRuleOptions(round_seconds=360.0, restart_seconds=0.0, least_between_seconds=1920.0)


def under_rules(profile: Profile, options: GavelRuleOptions = SHOCKWAVE) -> Profile:
    """Return a profile adapted to the rules: only the executor ends rounds, and each round may reassign every GPU.

    Plugins of the profile that have the options ``round_length``, ``least_between``, ``credit`` or ``ends`` (of rounds)
    get the rules' values.

    Raises:
        InputErrors: a plugin rejects the value of such an option.
    """
    length, between = exact_duration(options.round_seconds), exact_duration(options.least_between_seconds)
    wanted: dict[str, object] = {
        "round_length": length,
        "least_between": between,
        "ends": "executor",
        "credit": options.credit,
    }
    settings: dict[str, object] = {
        "rounds.on": [],
        "rounds.every": "none",
        "rounds.scope": "all",
        "rounds.lease": "unlimited",
    }
    for name, known in _options_by_plugin(profile).items():
        settings |= {f"plugins.{name}.{key}": item for key, item in wanted.items() if key in known}
    return profile.replace(settings=settings)


GIVEN: Final = ("round_length", "least_between", "ends", "credit")
"""Plugin options whose values the rules set."""
OTHERS: Final[Mapping[str, str]] = {
    "gandiva_fair": "gives tickets to users, who trade GPU types (EuroSys'20)",
    "isolated": "cuts the cluster into parts that keep their GPUs",
}
"""Allocations that share a name with a different policy of the peer, each with what the allocation does here."""


def rule_notes(profiles: Mapping[str, Profile]) -> list[str]:
    """Return sentences on policies that differ from the peer's under the rules."""
    notes = [
        f"{name} is not the peer's policy of that name: here it {OTHERS[plugin]}"
        for name, profile in profiles.items()
        for plugin in profile.plugins.values()
        if plugin in OTHERS
    ]
    names = [name for name, profile in profiles.items() if not _solves_at_times(profile)]
    if not names:
        return notes
    own = "its allocation has" if len(names) == 1 else "their allocations have"
    each = "decides" if len(names) == 1 else "decide"
    every = f"{', '.join(names)} {each} in every round: {own} no least_between, which the peer's policies have"
    return [*notes, every]


def _solves_at_times(profile: Profile) -> bool:
    """Return whether a plugin of the profile has a least time between two solutions."""
    return any("least_between" in known for known in _options_by_plugin(profile).values())


def _options_by_plugin(profile: Profile) -> dict[str, frozenset[str]]:
    """Return the names of the options of each plugin in the profile."""
    names = (*profile.plugins.values(), *map(str, profile.merged.tree["stages"].get("refiners", [])))
    types = {name: getattr(profile.registry.load(name), "options_type", None) for name in dict.fromkeys(names)}
    return {name: frozenset(() if kind is None else kind.model_fields) for name, kind in types.items()}


class _Adapting:
    """A job that changes its batch size; all its step counts are in steps of the current batch size."""

    __slots__ = ("asks", "batch", "epoch_steps", "family", "first", "growth", "mode", "run", "total")

    def __init__(self, family: str, first: int, gpus: int, mode: str, total: int) -> None:
        self.family, self.first, self.mode = family, first, mode
        self.growth = growth_of(family, first, gpus)
        self.epoch_steps = steps_per_epoch(family, first)
        """Steps per epoch at the current batch size."""
        self.batch, self.total, self.run = first, total, 0
        self.asks = False
        """Whether a requested change takes effect at the end of the job's next round."""

    def wants(self) -> bool:
        """Return whether the job requests another batch size at its current epoch."""
        epoch = math.ceil(self.run / self.epoch_steps)
        largest = LARGEST_BATCH.get(self.family)
        if largest is None:
            return False
        if self.mode == "gns":
            return self.batch != largest and _grown(self.growth, self.first, epoch + 1) > self.batch
        critical = _is_critical(self.family, self.first, epoch)
        return critical if self.batch != self.first else not critical and self.batch != largest

    def stretches(self) -> list[tuple[int, float]]:
        """Return batch size and epochs of each future regime, if each request is granted at its epoch's end."""
        later = copy.copy(self)
        left = (self.total - self.run) / self.epoch_steps
        found = [(later.batch, 0.0)]
        while left > _SMALL_PART:
            part = min(left, 1.0)
            left -= part
            found[-1] = (found[-1][0], found[-1][1] + part)
            later.run += later.epoch_steps
            if left > _SMALL_PART and later.wants():
                later.take(later.next_batch())
                found.append((later.batch, 0.0))
        return found

    def next_batch(self) -> int:
        """Return the next batch size: doubled under GNS; under Accordion, the largest, or then the first again."""
        if self.mode == "gns":
            return 2 * self.batch
        return LARGEST_BATCH[self.family] if self.batch == self.first else self.first

    def take(self, batch: int) -> None:
        """Set the batch size and keep the number of epochs; an epoch that has begun counts as finished."""
        old, new = self.epoch_steps, steps_per_epoch(self.family, batch)
        epochs = math.ceil(self.total / old)
        total = math.ceil(self.total * (1 / (batch / self.batch)))
        self.total = total if math.ceil(total / new) == epochs else epochs * new
        self.run = math.ceil(self.run / old) * new
        self.batch, self.epoch_steps = batch, new


def _grown(growth: Mapping[int, int], first: int, epoch: int) -> int:
    return max([first, *[size for since, size in growth.items() if since <= epoch]])


def _is_critical(family: str, batch: int, epoch: int) -> bool:
    """Return whether an epoch is critical in the peer's simulation of Accordion (stricter than its profiles)."""
    if family == "LM":
        return epoch < 10
    if family == "Recommendation":
        return epoch < {512: 30, 1024: 30, 2048: 40}.get(batch, 10)
    if family == "ResNet-50":
        return epoch % 30 < 10
    return epoch < (20 if batch == LARGEST_BATCH[family] else 10) or 150 <= epoch < 160 or 250 <= epoch < 260


class GavelRules:
    """The peer's round rules for one workload.

    Args:
        workload: the workload, whose jobs may adapt (``jobs.adaptation``).
        models: speeds at other batch sizes; None: those of the workload's regimes.
        options: lengths, costs and limits of the rules.

    Raises:
        InputError: the options are invalid.
    """

    def __init__(
        self,
        workload: Workload,
        models: PerformanceModel | None = None,
        options: GavelRuleOptions = SHOCKWAVE,
    ) -> None:
        options.check()
        self.options = options
        self._workload, self._models = workload, models
        self._adapting: dict[int, _Adapting] = {}
        self._first_round = True
        self._empty: set[int] = set()
        """Jobs that have no work left after a change of their batch size."""
        self._failed: dict[int, int] = {}
        """Number of rounds for which each job without work left has held its GPUs."""

    def begin(self, jobs: int, seed: int) -> None:
        """Reset the rules for a new run."""
        self._adapting = {}
        self._first_round = True
        self._empty, self._failed = set(), {}

    def admitted(self, job: int, now: float) -> Change | None:
        """Return an adapting job's work as the trace's steps at its first batch size; None: it does not adapt."""
        jobs = self._workload.jobs
        if jobs.adaptation is None or jobs.adaptation[job] not in _ADAPTING or jobs.first_batch_iterations is None:
            return None
        family, batch = split_model(self._workload.models[int(jobs.model[job])])
        if batch is None:
            return None
        total = int(jobs.first_batch_iterations[job])
        self._adapting[job] = _Adapting(family, batch, int(jobs.most[job]), jobs.adaptation[job], total)
        pace = self._pace(job, batch)
        return None if pace is None else _change(job, batch, total, pace)

    def coming(self, job: int) -> list[Regime]:
        """Return the future regimes, if the job gets each batch size at the end of the epoch that requests it."""
        life = self._adapting.get(job)
        if life is None or life.first == LARGEST_BATCH.get(life.family):
            return []
        found: list[Regime] = []
        for batch, epochs in life.stretches()[1:]:
            pace, steps = self._pace(job, batch), epochs * life.epoch_steps
            if pace is None:  # the batch size then stays as it is
                if found:
                    found[-1] = dataclasses.replace(found[-1], iterations=found[-1].iterations + steps)
                continue
            seconds = pace * steps_per_epoch(life.family, batch) / life.epoch_steps
            found.append(Regime(iterations=steps, batch_size=float(batch), seconds_per_iteration=seconds))
        return found

    def work(self, running: RoundJobs) -> Worked:
        """Return the steps of a round: as many whole steps as fit, or all that are left; fewer after a restart."""
        length, restart = self.options.round_seconds, self.options.restart_seconds
        fit = np.floor(length / running.seconds_per_iteration + _WHOLE)
        steps = np.where(self._has_nothing(running.job), 0.0, np.minimum(fit, running.iterations_left))
        nothing = np.zeros_like(
            steps
        )  # also for jobs that cannot run on the type that they hold: 0 steps of infinite time
        seconds = np.multiply(steps, running.seconds_per_iteration, out=nothing, where=steps > 0.0)
        costs = running.fresh & (seconds > length - SHORT_SECONDS) & (restart > 0.0) & (not self._first_round)
        self._first_round = False
        part = np.divide(seconds - restart, seconds, out=np.ones_like(seconds), where=costs)
        return Worked(
            iterations=np.where(costs, np.floor(steps * part + _WHOLE), steps),
            seconds=seconds,
            busy_seconds=np.where(costs, seconds - restart, seconds),
            ends=self._over(running, steps, costs),
        )

    def _has_nothing(self, jobs: Ints) -> Bools:
        """Return a mask of the jobs that have no work left after a change of their batch size."""
        return np.array([job in self._empty for job in jobs.tolist()], dtype=bool)

    def _over(self, running: RoundJobs, steps: Reals, costs: Bools) -> Bools:
        """Return a mask of the jobs that end: all work done, or idle for the maximum number of rounds."""
        over: Bools = (steps >= running.iterations_left) & ~costs
        for index in np.flatnonzero(steps <= 0.0).tolist():
            job = int(running.job[index])
            self._failed[job] = self._failed.get(job, 0) + 1
            over[index] = self._failed[job] >= self.options.failures
        return over

    def round_ends(self, running: RoundJobs, worked: Worked) -> float:
        """Return the end of the round's last job; a round in which no job can make a step has its full length."""
        last = float(worked.seconds.max(initial=0.0))
        return running.began + (last if last > 0.0 else self.options.round_seconds)

    def next_round(self, now: float, next_arrival: float) -> float:
        """Return the next arrival as the start of the next round, or the end of an empty round if none arrives."""
        return max(now, next_arrival) if next_arrival < math.inf else now + self.options.round_seconds

    def changes(self, running: RoundJobs, worked: Worked, active: Ints) -> list[Change]:
        """Return the changes of jobs that requested a batch size before this round and ran in it.

        Each of them may then request another one.
        """
        changed = []
        here = set(active.tolist())
        for job, steps in zip(running.job.tolist(), worked.iterations.tolist(), strict=True):
            life = self._adapting.get(job)
            if life is None:
                continue
            if job not in here:
                del self._adapting[job]
                continue
            life.run += int(steps)
            if life.asks:
                changed += self._changed(job, life)
            life.asks = life.wants()  # a job that did not run has made no progress, and its request stands
        return changed

    def _changed(self, job: int, life: _Adapting) -> list[Change]:
        """Return the change to a job's requested batch size; empty: its speed there is unknown."""
        batch = life.next_batch()
        pace = self._pace(job, batch)
        if pace is None or life.first == LARGEST_BATCH[life.family]:
            return []
        life.take(batch)
        if life.run >= life.total:
            self._empty.add(job)
        return [_change(job, batch, max(_LITTLE, life.total - life.run), pace)]

    def _pace(self, job: int, batch: int) -> float | None:
        """Return seconds per step at a batch size, with the job's gang; None: unknown."""
        gpus = int(self._workload.jobs.most[job])
        if self._models is not None:
            family, _ = split_model(self._workload.models[int(self._workload.jobs.model[job])])
            setting = Setting(gpus=gpus, gpu_type=self.options.gpu_type, locality=Locality.ISLAND)
            try:
                rate = self._models.rate(named_model(family, batch), setting)
            except InputError:
                return None
            return 1.0 / rate if rate > 0.0 else None
        for regime in self._workload.regimes.get(job, ()):
            if regime.batch_size == batch and regime.seconds_per_iteration > 0.0:
                return regime.seconds_per_iteration
        return None


def _change(job: int, batch: int, left: float, pace: float) -> Change:
    return Change(job=job, batch_size=float(batch), iterations_left=float(left), seconds_per_iteration=pace)


def gavel_rules(
    workload: Workload,
    cluster: Cluster,
    models: PerformanceModel | None = None,
    options: GavelRuleOptions = SHOCKWAVE,
) -> GavelRules:
    """Return the rules for a workload on a cluster.

    Raises:
        InputError: options are invalid, or there are several GPU types for jobs that change their batch size, to which
            the peer gives the same speed on all types.
    """
    types, modes = cluster.gpu_types, set(workload.jobs.adaptation or ()) & set(_ADAPTING)
    if len(types) > 1 and modes:
        rule = "jobs that change their batch size must have one GPU type under these rules, which give them one speed"
        raise InputError(rule, value=", ".join(types), place=workload.name)
    return GavelRules(workload, models, dataclasses.replace(options, gpu_type=types[0]))
