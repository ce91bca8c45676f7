"""The true speed of each job on the GPUs that it holds; plugins must not import this module."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Ints, Locality, Reals
from eunomia_testbed.performance import ByAmounts, PerformanceModel, Setting
from eunomia_testbed.performance.names import SpeedNames, Taken
from eunomia_testbed.simulator.logs.run import Unfit
from eunomia_testbed.simulator.progress.hours import (
    UNKNOWN_MODEL,
    check_regimes,
    looked_up_in,
    no_hours,
    times_of,
    without_hours,
)
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.adaptation import named_model, split_model

ONE_REGIME: tuple[Regime, ...] = ()
UNKNOWN_SPEED: Final = (
    "a job's speed on a GPU type of the cluster must be known, from seconds_per_iteration or from its model in --speeds"
)

NO_TIME: Final = "a job's model must have a speed in --speeds on the GPUs on which the trace's time was measured"

NO_LEAST: Final = "a job's smallest gang (least_gpus) must be a size at which its model has a speed in --speeds"


class GangShape(NamedTuple):
    """The properties of a job's GPUs that determine its speed."""

    gpus: int
    gpu_type: int
    """Index into the cluster's GPU types."""
    locality: Locality = Locality.ISLAND
    machines: int = 1


class Speeds:
    """Seconds per iteration of each job, by GPUs, type, locality, CPUs, memory and regime.

    A workload's time per iteration applies to the job's ``most`` GPUs on one machine, of the GPU type on which it was
    measured: the one that the job requires, or else its ``measured_on``, or else the workload's ``reference_type``. A
    performance model then determines only how much slower other settings are; for jobs without a time it gives the
    rates themselves. Without a performance model, or if a job's model is assumed to be equally fast everywhere
    (``Workload.assumed_speeds``), a job is equally fast on all GPU types, and proportionally slower on fewer GPUs.

    Args:
        workload: the workload with the jobs.
        cluster: the cluster with the GPUs.
        models: a performance model; None: only the times of the workload are used.

    Raises:
        InputError: the performance model lacks a model for which nothing is assumed, or the GPU type of a time is
            unknown and the cluster has several.
    """

    def __init__(self, workload: Workload, cluster: Cluster, models: PerformanceModel | None = None) -> None:
        self._workload = workload
        self._cluster = cluster
        self._models = models
        jobs = workload.jobs
        self.declared: list[float] = jobs.seconds_per_iteration.tolist()
        self._most: list[int] = jobs.most.tolist()
        self._model: list[int] = jobs.model.tolist()
        self._types = cluster.gpu_types
        batch = jobs.batch_size
        self._batch: list[float] = [math.nan] * workload.size if batch is None else batch.tolist()
        for job, regimes in workload.regimes.items():
            if self._batch[job] != self._batch[job] and regimes:
                self._batch[job] = regimes[0].batch_size
        self._names = None if models is None else SpeedNames(models, workload.assumed_speeds)
        self._taken: list[Taken | None] = self._all_taken()
        self._hours = times_of(workload, cluster)
        taken = [None if each is None else each.name for each in self._taken]
        if models is not None and without_hours(workload, cluster, models, taken).size:
            raise no_hours(cluster, "Workload.reference_type")
        check_regimes(workload, [name is None for name in taken])
        self._own: dict[int, int] = {}
        self._commonest = int(np.argmax(cluster.capacity))
        """The type with the most GPUs."""
        self._settings: dict[tuple[object, ...], float] = {}
        self._near: dict[tuple[int, int], GangShape] = {}
        self.plain = models is None
        """Whether speed depends only on the number of GPUs."""
        self._cpus = _Shares(cluster, cluster.machine_cpus, jobs.cpus_per_gpu)
        self._memory = _Shares(cluster, cluster.machine_memory_gib, jobs.memory_gib_per_gpu)

    def regimes(self, job: int) -> tuple[Regime, ...]:
        """Return the job's regimes; empty: the job has a single regime."""
        return self._workload.regimes.get(job, ONE_REGIME)

    def _all_taken(self) -> list[Taken | None]:
        """Return for each job the name of its speeds at its first batch size; None: its own times apply everywhere."""
        names = self._names
        if names is None:
            return [None] * self._workload.size
        asked, looked_up = self._workload.models, looked_up_in(self._workload, self._cluster).tolist()
        return [
            names.of(asked[kind] if kind >= 0 else UNKNOWN_MODEL, batch if batch == batch else None) if looks else None
            for kind, batch, looks in zip(self._model, self._batch, looked_up, strict=True)
        ]

    def _taken_by(self, job: int, regime: Regime | None) -> Taken | None:
        """Return the name of a job's speeds at its current batch size; None: its own times apply everywhere."""
        first = self._taken[job]
        if regime is None or first is None or self._names is None or regime.batch_size != regime.batch_size:
            return first
        kind = self._model[job]
        return self._names.of(self._workload.models[kind] if kind >= 0 else UNKNOWN_MODEL, regime.batch_size)

    def own_type(self, job: int) -> int:
        """Return the cluster's GPU type that is used to judge and report a job.

        It is the type that the job requires, or else that of its times. If the cluster lacks that type, or the job has
        no times, it is the type on which the job's largest gang is fastest, the first one of equals.
        """
        if job not in self._own:
            self._own[job] = self._own_type(job)
        return self._own[job]

    def _own_type(self, job: int) -> int:
        measured = self._hours.of(job)
        if 0 <= measured < len(self._types):
            return measured
        if self.plain or self._taken[job] is None:
            return self._commonest  # all types have the same speed, so the choice does not matter
        kinds = self._types_of(job) or list(range(len(self._types)))
        return min(kinds, key=lambda kind: self.at(job, self._nearest(self._most[job], kind)))

    def reference_type(self, job: int) -> str:
        """Return the GPU type of a job's times, even if the cluster lacks it; without times, that of ``own_type``."""
        measured = self._hours.of(job)
        return self._hours.types[measured if measured >= 0 else self.own_type(job)]

    def against_reference(self, job: int, kind: int) -> float:
        """Return a job's speed on a GPU type of the cluster relative to its reference type.

        Both speeds are those of its largest gang on one machine in its first regime. 0: the job cannot run there.
        """
        measured, most = self._hours.of(job), self._most[job]
        regime = next(iter(self.regimes(job)), None)
        here = self.at(job, GangShape(most, kind), regime=regime)
        if measured >= len(self._types):
            return self.by_count(job, most, regime) / here  # the times themselves: the cluster lacks their type
        return self.at(job, GangShape(most, self.own_type(job)), regime=regime) / here

    def seconds_per_iteration(
        self,
        job: int,
        gpus: Sequence[int],
        *,
        regime: Regime | None = None,
        cpus: float | None = None,
        memory_gib: float | None = None,
        beside: Sequence[str] = (),
    ) -> float:
        """Return seconds per iteration on these GPUs; inf: the job cannot run there.

        Args:
            job: row of the job.
            gpus: indices of GPUs in the cluster.
            regime: the job's current regime; None: the job has a single regime.
            cpus: CPUs per GPU; None: each GPU's share of its machine, the smallest one if there are several.
            memory_gib: GiB per GPU; None: each GPU's share of its machine, the smallest one if there are several.
            beside: the models of jobs that share any of the GPUs, by the names of ``called``.
        """
        if self.plain and not beside:
            return self.by_count(job, len(gpus), regime)
        if beside:
            # The worst neighbour sets the speed: a synchronous gang waits for its slowest GPU.
            return max(self._at_gpus(job, gpus, regime, cpus, memory_gib, other) for other in beside)
        return self._at_gpus(job, gpus, regime, cpus, memory_gib, None)

    def _at_gpus(
        self,
        job: int,
        gpus: Sequence[int],
        regime: Regime | None,
        cpus: float | None,
        memory_gib: float | None,
        beside: str | None,
    ) -> float:
        if self.plain:
            return self.by_count(job, len(gpus), regime) * 2.0  # the two jobs alternate
        cluster = self._cluster
        rows = np.asarray(gpus)
        locality = cluster.locality(rows)
        on = list(set(cluster.machine[rows].tolist()))
        machines = len(on)
        cpus = self._cpus.of(on) if cpus is None else cpus
        memory_gib = self._memory.of(on) if memory_gib is None else memory_gib
        types: set[int] = set(cluster.gpu_type[rows].tolist())
        # A synchronous gang is as fast as its slowest member.
        return max(
            self.at(
                job,
                GangShape(len(gpus), kind, locality, machines),
                regime=regime,
                cpus=cpus,
                memory_gib=memory_gib,
                beside=beside,
            )
            for kind in types
        )

    def by_count(self, job: int, gpus: int, regime: Regime | None = None) -> float:
        """Return the seconds per iteration on a number of GPUs, from the workload alone."""
        most = self._most[job]
        declared = self.declared[job]
        if regime is not None and regime.seconds_per_iteration == regime.seconds_per_iteration:
            declared = regime.seconds_per_iteration
        return declared if gpus >= most else declared * most / gpus

    def at(
        self,
        job: int,
        gang: GangShape,
        *,
        regime: Regime | None = None,
        cpus: float | None = None,
        memory_gib: float | None = None,
        beside: str | None = None,
    ) -> float:
        """Return seconds per iteration on a gang of GPUs; inf: the job cannot run there.

        If CPUs or memory are None, they are the amounts that the job requests, or else the share of the best machine of
        the type, or else that of the performance model's own machines. ``beside`` is the model of the job that shares
        the GPUs, if any.
        """
        taken = self._taken_by(job, regime)
        declared = self.by_count(job, gang.gpus, regime)
        if taken is None:
            return declared if beside is None else declared * 2.0  # the two jobs alternate
        useful = gang._replace(gpus=min(gang.gpus, self._most[job]))
        cpus = self._cpus.asked(job, gang.gpu_type) if cpus is None else cpus
        memory_gib = self._memory.asked(job, gang.gpu_type) if memory_gib is None else memory_gib
        rate = self._rate(taken, useful, cpus, memory_gib, beside)
        if rate <= 0.0:
            return math.inf
        if declared != declared:
            return 1.0 / rate
        measured = max(0, self._hours.of(job))  # unknown only where types do not matter
        timed = regime is None or regime.seconds_per_iteration == regime.seconds_per_iteration
        at_batch = taken if timed else self._taken[job] or taken  # the job's time is that of its first batch size
        best = self._rate(at_batch, GangShape(self._most[job], measured), None, None)
        if best <= 0.0:
            return math.inf
        at_most = self.by_count(job, self._most[job], regime)
        return at_most * (best / rate)

    def _rate(
        self,
        taken: Taken,
        gang: GangShape,
        cpus: float | None,
        memory_gib: float | None,
        beside: str | None = None,
    ) -> float:
        if beside == UNKNOWN_MODEL:
            return 0.5 * self._rate(taken, gang, cpus, memory_gib)  # the two jobs alternate, as if of equal speed
        key = (taken.name, taken.batch_size, gang, cpus, memory_gib, beside)
        rate = self._settings.get(key)
        if rate is None and self._models is not None:
            setting = Setting(
                gpus=gang.gpus,
                gpu_type=self._hours.types[gang.gpu_type],
                locality=gang.locality,
                machines=gang.machines,
                batch_size=taken.batch_size,
                cpus_per_gpu=cpus,
                memory_gib_per_gpu=memory_gib,
                beside=beside,
            )
            rate = self._settings[key] = float(self._models.rate(taken.name, setting))
        return 0.0 if rate is None else rate

    def amounts(self, job: int) -> tuple[Reals, Reals] | None:
        """Return the CPUs and GiB per GPU at which a job's model was measured; None: its rates ignore them."""
        taken, models = self._taken[job], self._models
        if taken is None or not isinstance(models, ByAmounts):
            return None
        return models.amounts(taken.name)

    def called(self, job: int, regime: Regime | None = None) -> str:
        """Return the model name that determines how a job slows down other jobs on the same GPUs.

        Empty: the job uses the speeds of no model.
        """
        taken = self._taken_by(job, regime)
        if taken is None:
            return UNKNOWN_MODEL
        family, own = split_model(taken.name)
        if own is None or taken.batch_size is None:
            return taken.name
        return named_model(family, int(taken.batch_size))

    # --- alone -------------------------------------------------------------------------------------------------------

    def ideal_seconds(self) -> Reals:
        """Return each job's seconds alone on the cluster at its best size and placement; inf: it cannot run."""
        if not self.plain:
            return np.array([self._ideal(job) for job in range(self._workload.size)])
        jobs = self._workload.jobs
        ideal: Reals = jobs.iterations * jobs.seconds_per_iteration
        for job in self._workload.regimes:
            ideal[job] = self._ideal(job)
        return ideal

    def _ideal(self, job: int) -> float:
        jobs = self._workload.jobs
        regimes = self.regimes(job)
        if self.plain:
            if not regimes:
                return float(jobs.iterations[job]) * self.declared[job]
            return sum(stretch.iterations * self.by_count(job, self._most[job], stretch) for stretch in regimes)
        stretches: list[tuple[float, Regime | None]] = [(stretch.iterations, stretch) for stretch in regimes]
        stretches = stretches or [(float(jobs.iterations[job]), None)]
        found = math.inf
        for kind in self._types_of(job):
            for size in self._sizes(job):
                gang = self._nearest(size, kind)
                times = [work * self.at(job, gang, regime=one) for work, one in stretches]
                found = min(found, sum(times))
        return found

    def _types_of(self, job: int) -> list[int]:
        named = None if self._workload.jobs.gpu_type is None else self._workload.jobs.gpu_type[job]
        if named is None:
            return list(range(len(self._types)))
        return [self._types.index(named)] if named in self._types else []

    def _nearest(self, gpus: int, kind: int) -> GangShape:
        """Return the gang shape of some GPUs of a type on as few machines as possible."""
        if (gpus, kind) not in self._near:
            self._near[gpus, kind] = self._find_nearest(gpus, kind)
        return self._near[gpus, kind]

    def _find_nearest(self, gpus: int, kind: int) -> GangShape:
        cluster = self._cluster
        sizes = np.diff(cluster.machine_start)[cluster.machine_type == kind]
        if gpus <= int(sizes.max(initial=0)):
            first = int(np.flatnonzero((cluster.machine_type == kind) & (np.diff(cluster.machine_start) >= gpus))[0])
            start = int(cluster.machine_start[first])
            return GangShape(gpus, kind, cluster.locality(np.arange(start, start + gpus)))
        reached = np.cumsum(np.sort(sizes)[::-1])
        machines = min(int(np.searchsorted(reached, gpus)) + 1, max(1, sizes.size))
        in_rack = max(
            (
                int(
                    np.diff(cluster.machine_start)[
                        (cluster.machine_type == kind) & (cluster.machine_rack == rack)
                    ].sum()
                )
                for rack in range(len(cluster.racks))
            ),
            default=0,
        )
        return GangShape(gpus, kind, Locality.RACK if gpus <= in_rack else Locality.CLUSTER, machines)

    def without_least(self) -> Unfit | None:
        """Return the first job that can run at a larger size but not at its smallest one; None: there is none.

        Any policy may give a job its smallest size, so a missing speed there is an error of the input.
        """
        jobs = self._workload.jobs
        elastic = (jobs.least >= 1) & (jobs.least < jobs.most) & (jobs.model >= 0)
        seen: set[tuple[object, ...]] = set()
        for job in np.flatnonzero(elastic).tolist() if self._models is not None else []:
            named = None if jobs.gpu_type is None else jobs.gpu_type[job]
            batch = self._batch[job]
            key = (self._model[job], int(jobs.least[job]), self._most[job], named, None if batch != batch else batch)
            if key not in seen or self.regimes(job):
                seen.add(key)
                found = self._without_least(job)
                if found is not None:
                    return found
        return None

    def _without_least(self, job: int) -> Unfit | None:
        least = int(self._workload.jobs.least[job])
        for kind in self._types_of(job):
            sizes = range(least, min(self._most[job], int(self._cluster.capacity[kind])) + 1)
            for regime in self.regimes(job) or (None,):
                runs = (size for size in sizes if self.at(job, self._nearest(size, kind), regime=regime) < math.inf)
                smallest = next(runs, least)
                if smallest > least:
                    model, gpu_type = self._workload.models[self._model[job]], self._types[kind]
                    value = f'{least}; "{model}" has a speed on {gpu_type} from {smallest} GPUs on'
                    return Unfit(job=job, rule=NO_LEAST, value=value)
        return None

    # --- what cannot run ---------------------------------------------------------------------------------------------

    def unfit(self) -> list[Unfit]:
        """Return the jobs that no policy can run on this cluster, each with the rule that it breaks."""
        jobs, found = self._workload.jobs, []
        capacity: Ints = self._cluster.capacity
        by_type = dict(zip(self._types, capacity.tolist(), strict=True))
        named = jobs.gpu_type
        least = jobs.least.tolist()
        gpus = self._cluster.gpus
        suspect = (jobs.least > gpus) | ~(jobs.iterations >= 0.0) | (jobs.least < 1) | (jobs.least > jobs.most)
        if named is None and self.plain:
            suspect |= ~(jobs.seconds_per_iteration > 0.0)
            rows = np.flatnonzero(suspect).tolist()
        else:
            rows = list(range(self._workload.size))
        for job in rows:
            kind = None if named is None else named[job]
            have = gpus if kind is None else by_type.get(kind, 0)
            if kind is not None and have == 0:
                found.append(Unfit(job=job, rule="gpu_type must be a type of the cluster", value=f'"{kind}"'))
            elif least[job] > have:
                of = "" if kind is None else f" of type {kind}"
                rule = f"a gang must be at most the cluster's {have} GPUs{of}"
                found.append(Unfit(job=job, rule=rule, value=str(least[job])))
            elif not 1 <= least[job] <= self._most[job]:
                rule = "a gang must be at least 1, its least at most its most"
                found.append(Unfit(job=job, rule=rule, value=f"{least[job]} to {self._most[job]}"))
            elif not 0.0 <= float(jobs.iterations[job]) < math.inf:
                rule = "iterations must be at least 0"
                found.append(Unfit(job=job, rule=rule, value=str(float(jobs.iterations[job]))))
            elif not self._ideal(job) < math.inf:
                model = self._model[job]
                text = "none" if model < 0 else f'"{self._workload.models[model]}"'
                found.append(Unfit(job=job, rule=self._why_no_speed(job), value=text))
        return found

    def _why_no_speed(self, job: int) -> str:
        taken, measured = self._taken[job], self._hours.of(job)
        if taken is None or measured < 0 or self.declared[job] != self.declared[job]:
            return UNKNOWN_SPEED
        here = (self._nearest(size, kind) for kind in self._types_of(job) for size in self._sizes(job))
        runs = any(self._rate(taken, gang, None, None) > 0.0 for gang in here)
        timed = self._rate(taken, GangShape(self._most[job], measured), None, None) > 0.0
        return NO_TIME if runs and not timed else UNKNOWN_SPEED

    def _sizes(self, job: int) -> list[int]:
        return sorted({int(self._workload.jobs.least[job]), self._most[job]})


class _Shares:
    """Each GPU's share of its machine's CPUs, or of its machine's memory in GiB.

    Args:
        cluster: the cluster with the machines.
        amounts: [machine] amount of the whole machine; NaN: unknown.
        asked: [job] amount per GPU that the job requests; NaN (or None for all jobs): none.
    """

    def __init__(self, cluster: Cluster, amounts: Reals, asked: Reals | None) -> None:
        each = amounts / np.diff(cluster.machine_start)
        self._each = None if np.isnan(each).all() else each
        kinds = range(len(cluster.gpu_types))
        best = [np.nanmax(np.append(each[cluster.machine_type == kind], -math.inf)) for kind in kinds]
        self._best: list[float | None] = [float(most) if math.isfinite(most) else None for most in best]
        self._asked = None if asked is None else asked.tolist()

    def of(self, machines: list[int]) -> float | None:
        """Return the smallest share per GPU on these machines; None: unknown."""
        if self._each is None:
            return None
        least = float(self._each[machines].min())
        return least if least == least else None

    def asked(self, job: int, gpu_type: int) -> float | None:
        """Return the amount per GPU that a job requests, or else the best machine's share; None: unknown."""
        if self._asked is not None and self._asked[job] == self._asked[job]:
            return float(self._asked[job])
        return self._best[gpu_type]
