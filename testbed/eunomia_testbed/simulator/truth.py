"""The true speed of each job of a workload on the GPUs that it holds. Plugins must not import this module."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.units import Ints, Locality, Reals
from eunomia_testbed.performance import ByAmounts, PerformanceModel, Setting, known_of
from eunomia_testbed.simulator.run import Unfit
from eunomia_testbed.workload import Regime, Workload
from eunomia_testbed.workload.adaptation import named_model, split_model

ONE_REGIME: tuple[Regime, ...] = ()
UNKNOWN_MODEL: Final = ""
"""The model name of a neighbour whose model is unknown."""
UNKNOWN_SPEED: Final = (
    "a job's speed on a GPU type of the cluster must be known, from seconds_per_iteration or from its model in --speeds"
)

NO_LEAST: Final = "a job's smallest gang (least_gpus) must be a size at which its model has a speed in --speeds"


class GangShape(NamedTuple):
    """The properties of a job's GPUs that determine its speed."""

    gpus: int
    gpu_type: int
    """Index into the cluster's types."""
    locality: Locality = Locality.ISLAND
    machines: int = 1


class Speeds:
    """Seconds per iteration of each job, by GPUs, type, locality, CPUs, memory and regime.

    A workload's time per iteration is that of the job's ``most`` GPUs on one machine, of the trace's type (the job's
    own, else the workload's, else the cluster's most frequent). A performance model then only gives how much slower
    other settings are; if the cluster lacks that type, it gives the rates themselves. Without a model a job is equally
    fast on any GPUs, and proportionally slower on fewer.

    Args:
        workload: the workload with the jobs.
        cluster: the cluster with the GPUs.
        models: a performance model; None: only the times of the workload are used.
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
        meant, there = (workload.reference_type or "").lower(), [name.lower() for name in cluster.gpu_types]
        self._usual = there.index(meant) if meant in there else int(np.argmax(cluster.capacity))
        self._elsewhere = bool(meant) and meant not in there
        """Whether the cluster lacks the GPU type of the trace's times, so that the model's own rates apply."""
        self._known = frozenset(() if models is None else known_of(models, workload.models))
        self._batch: list[float] = [math.nan] * workload.size if jobs.batch_size is None else jobs.batch_size.tolist()
        self._settings: dict[tuple[object, ...], float] = {}
        self._near: dict[tuple[int, int], GangShape] = {}
        self.plain = models is None
        """Whether speed depends only on the number of GPUs."""
        self._cpus = _Shares(cluster, cluster.machine_cpus, jobs.cpus_per_gpu)
        self._memory = _Shares(cluster, cluster.machine_memory_gib, jobs.memory_gib_per_gpu)

    def regimes(self, job: int) -> tuple[Regime, ...]:
        """Return the job's regimes; empty: a single one for its whole work."""
        return self._workload.regimes.get(job, ONE_REGIME)

    def own_type(self, job: int) -> int:
        """Return the GPU type for which the trace gives a job's times."""
        named = None if self._workload.jobs.gpu_type is None else self._workload.jobs.gpu_type[job]
        return self._types.index(named) if named in self._types else self._usual

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
        """Return seconds per iteration on these GPUs; inf: the job does not run there.

        Args:
            job: row of the job.
            gpus: GPUs of the cluster.
            regime: the job's present regime; None: it has a single one.
            cpus: CPUs per GPU; None: the machine's share, on several machines the least.
            memory_gib: GiB per GPU; None: the machine's share, on several machines the least.
            beside: the models that share any of the GPUs, with the names of ``called``.
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
            return self.by_count(job, len(gpus), regime) * 2.0  # in turns with a neighbour
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
        """Returns the seconds per iteration on a number of GPUs, from the workload alone."""
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
        """Return seconds per iteration on a gang of GPUs; inf: the job does not run.

        CPUs and memory of None mean the amounts that the job requests, else the share of the best machine of the type,
        else that of the performance model's own machines. ``beside`` is the model that shares the GPUs; None: no model
        does.
        """
        kind = self._model[job]
        name = self._workload.models[kind] if kind >= 0 else None
        declared = self.by_count(job, gang.gpus, regime)
        if name is None or name not in self._known:
            return declared if beside is None else declared * 2.0  # in turns
        batch = self._batch[job] if regime is None else regime.batch_size
        useful = gang._replace(gpus=min(gang.gpus, self._most[job]))
        cpus = self._cpus.asked(job, gang.gpu_type) if cpus is None else cpus
        memory_gib = self._memory.asked(job, gang.gpu_type) if memory_gib is None else memory_gib
        rate = self._rate(name, useful, batch, cpus, memory_gib, beside)
        if rate <= 0.0:
            return math.inf
        if declared != declared or self._elsewhere:
            return 1.0 / rate
        best = self._rate(name, GangShape(self._most[job], self.own_type(job)), batch, None, None)
        if best <= 0.0:
            return 1.0 / rate
        at_most = self.by_count(job, self._most[job], regime)
        return at_most * (best / rate)

    def _rate(
        self,
        model: str,
        gang: GangShape,
        batch: float,
        cpus: float | None,
        memory_gib: float | None,
        beside: str | None = None,
    ) -> float:
        if beside is not None and not self._knows(beside):
            return 0.5 * self._rate(model, gang, batch, cpus, memory_gib)
        key = (model, gang, batch if batch == batch else None, cpus, memory_gib, beside)
        rate = self._settings.get(key)
        if rate is None and self._models is not None:
            setting = Setting(
                gpus=gang.gpus,
                gpu_type=self._types[gang.gpu_type],
                locality=gang.locality,
                machines=gang.machines,
                batch_size=batch if batch == batch else None,
                cpus_per_gpu=cpus,
                memory_gib_per_gpu=memory_gib,
                beside=beside,
            )
            rate = self._settings[key] = float(self._models.rate(model, setting))
        return 0.0 if rate is None else rate

    def _knows(self, model: str) -> bool:
        return self._models is not None and bool(model) and model in known_of(self._models, (model,))

    def amounts(self, job: int) -> tuple[Reals, Reals] | None:
        """Returns CPUs and GiB per GPU of the model's measurements; None: it has no rates by CPUs and memory."""
        kind, models = self._model[job], self._models
        name = self._workload.models[kind] if kind >= 0 else None
        if name is None or name not in self._known or not isinstance(models, ByAmounts):
            return None
        return models.amounts(name)

    def called(self, job: int, regime: Regime | None = None) -> str:
        """Returns the model of a job at its present batch size, which affects a neighbour's speed."""
        kind = self._model[job]
        if kind < 0:
            return UNKNOWN_MODEL
        name = self._workload.models[kind]
        family, own = split_model(name)
        if own is None or regime is None or regime.batch_size != regime.batch_size:
            return name
        return named_model(family, int(regime.batch_size))

    # --- alone -------------------------------------------------------------------------------------------------------

    def ideal_seconds(self) -> Reals:
        """Returns by job the seconds alone on the cluster at its largest gang, placed best; inf: the job cannot run."""
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
        sizes = sorted({int(jobs.least[job]), self._most[job]})
        found = math.inf
        for kind in self._types_of(job):
            for size in sizes:
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
        """Returns the shape of some GPUs of a type on as few machines as possible."""
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
        """Return the first job that runs at a larger size but not at its smallest one; None: no such job.

        Any policy may give a job its smallest size, so a missing speed there contradicts the input.
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
        """Returns the jobs that no policy could run on this cluster, each with the broken rule."""
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
                found.append(Unfit(job=job, rule=UNKNOWN_SPEED, value=text))
        return found


class _Shares:
    """The share of a machine's CPUs, or of its memory, per GPU.

    Args:
        cluster: the cluster with the machines.
        amounts: [machine] the amount of each; NaN: unknown.
        asked: [job] amount per GPU that the job requests; NaN, or None for all: not given.
    """

    def __init__(self, cluster: Cluster, amounts: Reals, asked: Reals | None) -> None:
        each = amounts / np.diff(cluster.machine_start)
        self._each = None if np.isnan(each).all() else each
        kinds = range(len(cluster.gpu_types))
        best = [np.nanmax(np.append(each[cluster.machine_type == kind], -math.inf)) for kind in kinds]
        self._best: list[float | None] = [float(most) if math.isfinite(most) else None for most in best]
        self._asked = None if asked is None else asked.tolist()

    def of(self, machines: list[int]) -> float | None:
        """Returns the least share on these machines; None: unknown."""
        if self._each is None:
            return None
        least = float(self._each[machines].min())
        return least if least == least else None

    def asked(self, job: int, gpu_type: int) -> float | None:
        """Returns the amount that a job requests, else the best machine's share; None: neither is known."""
        if self._asked is not None and self._asked[job] == self._asked[job]:
            return float(self._asked[job])
        return self._best[gpu_type]
