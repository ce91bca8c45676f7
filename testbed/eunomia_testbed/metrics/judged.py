"""Computes the metrics of a simulated run by job and by app, as arrays."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.metrics import fairness
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.workload import Workload


@builds
class JobFigures:
    """The metrics of each job, as arrays by job of the workload; NaN: unknown."""

    jct_seconds: Reals
    busy_slot_seconds: Reals
    """GPU-seconds in which the job made progress."""
    placement_score: Reals
    serial_seconds: Reals
    """Seconds that the job's work takes on one GPU."""
    rho: Reals
    """Themis's rho; NaN for jobs of apps with several jobs, which the app's tuner schedules."""
    rho_static: Reals
    """A job that its tuner ended early counts with the work that it did, as in the other two."""
    rho_contention: Reals
    rho_exclusive: Reals


@builds
class AppFigures:
    """The metrics of each app, as arrays by app of the workload; NaN: unknown."""

    jobs: Ints
    jct_seconds: Reals
    wait_seconds: Reals
    slot_seconds: Reals
    placement_score: Reals
    alone_seconds: Reals
    """Seconds that the app takes alone on the cluster (T_cluster)."""
    mean_apps: Reals
    """Mean number of apps present over the app's life (N_avg)."""
    rho: Reals
    rho_static: Reals
    rho_contention: Reals
    rho_exclusive: Reals


@builds
class Judged:
    """All metrics of a run, by job and by app."""

    jobs: JobFigures
    apps: AppFigures
    present: Bools
    """Mask by job: the job arrived and could run on the cluster."""
    crowd: fairness.Presence
    """The number of jobs in the cluster over time."""
    static_contention: float


def judge(run: SimulatedRun, workload: Workload, cluster: Cluster, serial_seconds: Reals | None = None) -> Judged:
    """Return the metrics of each job and app of a simulated run.

    Args:
        run: the simulated run.
        workload: the jobs and apps.
        cluster: cluster of the run.
        serial_seconds: by job, seconds of its work on one GPU; None: time alone times gang size (linear speed-up).
    """
    jobs = workload.jobs
    present = (run.state != "rejected") & (run.state != "awaited")
    alone = np.where(np.isfinite(run.exclusive_seconds), run.exclusive_seconds, np.nan)
    serial: Reals = alone * jobs.most if serial_seconds is None else serial_seconds
    done = done_share(run, workload)
    needed = alone * done
    static = fairness.static_contention(int(present.sum()), cluster.gpus)
    crowd = fairness.Presence(jobs.arrival_seconds[present], run.finish_seconds[present])
    mean_jobs = crowd.over(jobs.arrival_seconds, run.finish_seconds)
    busy = busy_slot_seconds(run, workload)
    score = placement_score(run, workload, busy)
    apps = _Apps(run, workload, cluster, crowd, mean_jobs).figures(serial * done, needed, score, static)
    jct = run.finish_seconds - jobs.arrival_seconds
    lone = apps.jobs[jobs.app] == 1
    return Judged(
        jobs=JobFigures(
            jct_seconds=jct,
            busy_slot_seconds=busy,
            placement_score=score,
            serial_seconds=serial,
            rho=np.where(lone, apps.rho[jobs.app], np.nan),
            rho_static=fairness.rho(jct, needed, static),
            rho_contention=fairness.rho(jct, needed, np.maximum(1.0, mean_jobs / max(1, cluster.gpus))),
            rho_exclusive=fairness.rho(jct, needed),
        ),
        apps=apps,
        present=present,
        crowd=crowd,
        static_contention=static,
    )


def done_share(run: SimulatedRun, workload: Workload) -> Reals:
    """Return by job the fraction of the work that its app needed; below 1 if the tuner ended the job early."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part = run.iterations_done / workload.jobs.iterations
    early = (run.state == "stopped") & np.isfinite(part)
    return np.where(early, np.clip(part, 0.0, 1.0), 1.0)


def busy_slot_seconds(run: SimulatedRun, workload: Workload) -> Reals:
    """Return by job the GPU-seconds of progress; NaN: the job is elastic, and no segments were kept."""
    jobs = workload.jobs
    fixed = run.run_seconds * jobs.most
    if not run.segments.job.size:
        return np.where(jobs.least == jobs.most, fixed, np.nan)
    spans = (run.segments.end_seconds - run.segments.start_seconds) * run.segments.gpus
    summed = np.bincount(run.segments.job, spans, minlength=workload.size)
    return np.where(jobs.least == jobs.most, fixed, summed)


def placement_score(run: SimulatedRun, workload: Workload, busy: Reals) -> Reals:
    """Return each job's mean of 1 / slowdown over its GPU time (Themis, section 6.1).

    This is the GPU time that the job's steps would take at the best placement over the GPU time that they took. NaN:
    the job did not run, or its sizes are unknown.
    """
    made = run.iterations_done + run.iterations_lost
    with np.errstate(divide="ignore", invalid="ignore"):
        best = run.ideal_seconds * workload.jobs.most * made / workload.jobs.iterations
        score = best / busy
    return np.where((busy > 0.0) & np.isfinite(score), np.minimum(score, 1.0), np.nan)


def sum_by(rows: Ints, values: Reals, size: int) -> Reals:
    """Return the sums of the known values by group: ``rows`` has the group of each value, from 0 to ``size`` - 1."""
    summed: Reals = np.bincount(rows, np.nan_to_num(values, nan=0.0), minlength=size).astype(float)
    return summed


class _Apps:
    """Sums of job values by app; if every job has its own app, no sums are needed."""

    def __init__(
        self, run: SimulatedRun, workload: Workload, cluster: Cluster, crowd: fairness.Presence, mean_jobs: Reals
    ) -> None:
        self._run, self._workload, self._cluster = run, workload, cluster
        self._crowd, self._mean_jobs = crowd, mean_jobs
        self._size = len(workload.apps.id)
        self._lone = self._size == workload.size and bool((workload.jobs.app == np.arange(self._size)).all())

    def figures(self, serial: Reals, alone: Reals, score: Reals, static: float) -> AppFigures:
        run, jobs, gpus = self._run, self._workload.jobs, self._cluster.gpus
        arrival, finish = self._workload.apps.arrival_seconds, run.app_finish_seconds
        demand = self._sum(jobs.most.astype(float))
        cluster_seconds = fairness.alone_seconds(self._sum(serial), demand, gpus)
        exclusive = self._exclusive(alone, demand)
        mean_apps, mean_jobs = self._means(arrival, finish)
        jct = finish - arrival
        known = np.isfinite(score)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean_score = self._sum(score * run.slot_seconds) / self._sum(np.where(known, run.slot_seconds, 0.0))
        return AppFigures(
            jobs=np.bincount(jobs.app, minlength=self._size).astype(np.int64),
            jct_seconds=jct,
            wait_seconds=self._sum(run.wait_seconds),
            slot_seconds=self._sum(run.slot_seconds),
            placement_score=mean_score,
            alone_seconds=cluster_seconds,
            mean_apps=mean_apps,
            rho=fairness.rho(jct, cluster_seconds, mean_apps),
            rho_static=fairness.rho(jct, exclusive, static),
            rho_contention=fairness.rho(jct, exclusive, np.maximum(1.0, mean_jobs / max(1, gpus))),
            rho_exclusive=fairness.rho(jct, exclusive),
        )

    def _exclusive(self, alone: Reals, demand: Reals) -> Reals:
        """Return each app's seconds alone on the cluster, at least those of its longest job."""
        jobs = self._workload.jobs
        return fairness.exclusive_seconds(self._sum(alone * jobs.most), demand, self._cluster.gpus, jobs.app, alone)

    def _means(self, arrival: Reals, finish: Reals) -> tuple[Reals, Reals]:
        """Return, by app, the mean number of apps and of jobs present over the app's life."""
        if self._lone:
            return self._mean_jobs, self._mean_jobs
        there = (self._run.app_state != "rejected") & (self._run.app_state != "awaited")
        apps = fairness.Presence(arrival[there], finish[there])
        return apps.over(arrival, finish), self._crowd.over(arrival, finish)

    def _sum(self, values: Reals) -> Reals:
        """Return by app the sum of the known values of the app's jobs."""
        return np.nan_to_num(values, nan=0.0) if self._lone else sum_by(self._workload.jobs.app, values, self._size)
