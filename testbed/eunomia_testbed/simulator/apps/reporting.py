"""The reports of app masters on their jobs: declared or true values, with the options' errors and misreports."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from eunomia.contract.decisions import ProbeOrder
from eunomia.contract.events import (
    Adapted,
    Event,
    JobReported,
    RateMeasured,
    RegimesAnnounced,
)
from eunomia.model.adaptations import ComingRegime
from eunomia.model.cluster import Cluster
from eunomia.units import Locality, Seconds
from eunomia_testbed.simulator.apps.declarations import AppDeclarations, JobDeclarations
from eunomia_testbed.simulator.apps.kind_reports import KindReports
from eunomia_testbed.simulator.apps.misreports import Misreports
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.simulator.progress.truth import GangShape, Speeds
from eunomia_testbed.simulator.progress.work import Work
from eunomia_testbed.workload import Regime, Workload


class Reporter:
    """Creates the events by which app masters report on their jobs.

    Args:
        workload: the workload with the jobs.
        cluster: the cluster with the GPU types of reported rates.
        speeds: the true speeds.
        work: the true progress.
        reports: what app masters know and report.
        divides: whether app masters answer offers.
        seed: seed of the errors.
        by_kind: whether rates that are known without a run are reported once per job kind, for an elasticity stage
            that uses rates by kind.

    Attributes:
        apps: declarations of apps.
        jobs: declarations of jobs.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        speeds: Speeds,
        work: Work,
        reports: Reports,
        *,
        divides: bool,
        seed: int,
        by_kind: bool = False,
    ) -> None:
        self._cluster, self._speeds, self._work = cluster, speeds, work
        self._reports, self._facts, self._measures = reports, reports.facts, reports.measures
        self._kinds = KindReports(cluster) if by_kind else None
        self._off = Misreports(workload, cluster, reports, seed)
        self._work_factor = self._off.work
        self.apps = AppDeclarations(workload, divides=divides)
        self.jobs = JobDeclarations(workload, speeds, work, self._off)
        self._ids, self._app, self._kind = self.jobs.ids, self.jobs.app, self.jobs.kind
        self._least, self._most = self.jobs.least, self.jobs.most
        self._seen: dict[int, set[tuple[int, int, int, float]]] = {}
        self._slowdowns: dict[int, tuple[float, float, float, float] | None] = {}
        exact = speeds.plain and not self._off.any and not workload.regimes
        self._announced: set[int] = set()
        self.follows_up = reports.know != "declared" and not exact
        """Whether each start is followed by reports, since declarations do not contain all that app masters know."""

    # --- what is known without a run ---------------------------------------------------------------------------------

    def adapted(self, job: int, batch_size: float, now: float) -> Adapted:
        """Return the event of a job's new batch size."""
        self.jobs.batch[job] = batch_size
        done = self._work.done_at(job, now) * self._work_factor[self._app[job]]
        return Adapted(job=self._ids[job], batch_size=batch_size, iterations_done=done, at=Seconds(now))

    def profiled(self, job: int, *, again: bool = False) -> Iterator[Event]:
        """Yield the rates at a job's current batch size that are known without a run, by size, type and locality.

        Args:
            job: row of the job.
            again: whether the batch size has changed since the declaration, which may contain the initial rates.
        """
        if not self._reports.profiles or (self._speeds.plain and not self._off.by_setting and not again):
            return
        regime, kind = self._work.present_regime(job), self._kind[job]
        if self._kinds is None or kind is None or regime is not None or self._off.any:
            yield from self._known_rates(job, regime)
            return
        settings = (
            self._least[job],
            self._most[job],
            str(self._speeds.declared[job]),
            str(self.jobs.present_batch(job)),
        )
        if not self._kinds.is_reported(kind, settings):
            yield from self._kinds.report(kind, settings, list(self._known_rates(job, regime)))

    def _known_rates(self, job: int, regime: Regime | None) -> Iterator[RateMeasured]:
        for size, kind in self._known_settings(job):
            known = math.nan
            for locality in Locality if size > 1 else (Locality.ISLAND,):
                machines = 1 if locality <= Locality.MACHINE else 2
                pace = self._speeds.at(job, GangShape(size, kind, locality, machines), regime=regime)
                if not math.isnan(pace) and pace != known:  # inf: reported as a rate of 0
                    known = pace
                    yield self._measured(job, size, kind, locality, pace)

    @property
    def knows_regimes(self) -> bool:
        """Return whether app masters announce the future regimes of their jobs."""
        return "regimes" in self._facts

    def coming(self, job: int, regimes: Sequence[Regime] | None = None) -> Iterator[RegimesAnnounced]:
        """Yield the announcement of a job's future regimes, if app masters know them and there are any.

        Args:
            job: row of the job.
            regimes: the regimes as a peer's rules predict them; None: those of the workload.
        """
        coming = self._work.coming(job) if regimes is None else regimes
        if not self.knows_regimes or not (coming or job in self._announced):
            return
        self._announced.add(job)
        yield RegimesAnnounced(job=self._ids[job], regimes=tuple(self._announcement(job, one) for one in coming))

    def _announcement(self, job: int, regime: Regime) -> ComingRegime:
        app, gang = self._app[job], GangShape(self._most[job], self._speeds.own_type(job))
        pace = regime.seconds_per_iteration
        if math.isnan(pace):
            pace = self._speeds.at(job, gang, regime=regime)
        pace = self._off.pace(app, gang.gpus, gang.gpu_type, Locality.ISLAND, pace)
        iterations = regime.iterations * self._work_factor[app]
        return ComingRegime(iterations=iterations, rate=1.0 / pace, batch_size=regime.batch_size)

    def _known_settings(self, job: int) -> Iterator[tuple[int, int]]:
        """Yield the settings whose rates are known: all sizes, all types, or both."""
        least, most, own = self._least[job], self._most[job], self._speeds.own_type(job)
        sizes = range(least, most + 1) if "sizes" in self._facts else (most,)
        kinds = range(len(self._cluster.gpu_types)) if "types" in self._facts else (own,)
        if self._facts & {"sizes", "types"}:
            yield from ((size, kind) for size in sizes for kind in kinds)

    def again(self, job: int, pace: float) -> Iterator[Event]:
        """Yield the new rates, by GPU type, of a job whose speed has changed permanently."""
        if self._reports.know != "declared":
            for kind in range(len(self._cluster.gpu_types)):
                yield self._measured(job, self._most[job], kind, Locality.ISLAND, pace)

    # --- running jobs ------------------------------------------------------------------------------------------------

    def ran(self, job: int, now: float) -> Iterator[Event]:
        """Yield the reports on a job that has just started or changed its speed."""
        work = self._work
        pace = work.pace[job]
        if not math.isfinite(pace) or pace <= 0.0:
            return
        if self._measures:
            gpus = np.array(work.on[job])
            kind, locality = int(self._cluster.gpu_type[gpus[0]]), self._cluster.locality(gpus)
            setting = self._setting(job, int(gpus.size), kind, locality)
            seen = self._seen.setdefault(job, set())
            if setting not in seen:
                seen.add(setting)
                yield self._measured(job, int(gpus.size), kind, locality, pace)
        yield self.progress(job, now)

    def _setting(self, job: int, gpus: int, kind: int, locality: Locality) -> tuple[int, int, int, float]:
        """Return the setting of a measurement; an unknown batch size is 0, since NaN does not equal NaN."""
        batch = self.jobs.present_batch(job)
        return gpus, kind, int(locality), batch if batch == batch else 0.0

    def probed(self, job: int, probe: ProbeOrder) -> RateMeasured:
        """Return the measured rate of a job in a probe's setting; 0: the job cannot run there."""
        gpus = probe.gpus
        kind, locality = int(self._cluster.gpu_type[gpus[0]]), self._cluster.locality(gpus)
        self._seen.setdefault(job, set()).add(self._setting(job, int(gpus.size), kind, locality))
        seen = self._measured(job, int(gpus.size), kind, locality, self._work.pace[job])
        return dataclasses.replace(seen, cpus=probe.cpus, memory_gib=probe.memory_gib)

    def progress(self, job: int, now: float) -> JobReported:
        """Return a report of a job's iterations done and its current rate."""
        app, work = self._app[job], self._work
        rate = work.rate(job) / self._off.time(app) if work.on[job] else 0.0
        done = work.done_at(job, now) * self._work_factor[app]
        return JobReported(job=self._ids[job], iterations_done=done, rate=rate, at=Seconds(now))

    def left(self, job: int, now: float) -> float:
        """Return the iterations that a job has left until its goal, as reported."""
        left = max(0.0, self._work.goal[job] - self._work.done_at(job, now))
        return left * self._work_factor[self._app[job]]

    def work_of(self, job: int) -> float:
        """Return the total work of a job in serial GPU-seconds, as reported."""
        return self.jobs.whole(job) * self.jobs.serial(job)

    def slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        """Return the slowdown S by locality of the job's largest gang, constant over the run; None: unknown."""
        if job not in self._slowdowns:
            self._slowdowns[job] = self._slowdown(job)
        return self._slowdowns[job]

    def _slowdown(self, job: int) -> tuple[float, float, float, float] | None:
        if "sizes" not in self._facts or self._speeds.plain:
            return None
        kind, most = self._speeds.own_type(job), self._most[job]
        gangs = [GangShape(most, kind, place, 1 if place <= Locality.MACHINE else 2) for place in Locality]
        paces = [self._speeds.at(job, gang) for gang in gangs]
        if not all(map(math.isfinite, paces)) or paces[0] <= 0.0:
            return None
        island, machine, rack, cluster = (max(1.0, pace / paces[0]) for pace in paces)
        return self._off.slowdown(self._app[job], (island, machine, rack, cluster))

    def _measured(self, job: int, gpus: int, kind: int, locality: Locality, pace: float) -> RateMeasured:
        return RateMeasured(
            job=self._ids[job],
            gpus=gpus,
            locality=locality,
            rate=1.0 / self._off.pace(self._app[job], gpus, kind, locality, pace),
            gpu_type=self._cluster.gpu_types[kind],
            batch_size=self.jobs.present_batch(job),
        )
