"""A simulated run, judged: what each job, app and user got, as columns."""

import numpy as np

from eunomia.cluster import Cluster
from eunomia.shapes import builds
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.metrics import fairness
from eunomia_testbed.simulator.run import SimulatedRun
from eunomia_testbed.workload import Workload


@builds
class JobFigures:
    """By job of the workload; NaN: unknown."""

    jct_seconds: Reals
    busy_slot_seconds: Reals
    """GPU-seconds that made progress."""
    placement_score: Reals
    serial_seconds: Reals
    """Its work on one GPU."""
    rho: Reals
    """Themis'; of apps of one job alone, for an app's jobs are treated as its tuner wants."""
    rho_static: Reals
    rho_contention: Reals
    rho_exclusive: Reals


@builds
class AppFigures:
    """By app of the workload; NaN: unknown."""

    jobs: Ints
    jct_seconds: Reals
    wait_seconds: Reals
    slot_seconds: Reals
    placement_score: Reals
    alone_seconds: Reals
    """T_cluster."""
    mean_apps: Reals
    """N_avg."""
    rho: Reals
    rho_static: Reals
    rho_contention: Reals
    rho_exclusive: Reals


@builds
class Judged:
    """All figures of a run."""

    jobs: JobFigures
    apps: AppFigures
    present: Bools
    """By job: it arrived and could run here."""
    static_contention: float


def judge(run: SimulatedRun, workload: Workload, cluster: Cluster, serial_seconds: Reals | None = None) -> Judged:
    """Work out what each job and app got.

    Args:
        run: of that workload on that cluster.
        workload: its jobs and apps.
        cluster: for its size.
        serial_seconds: by job, its work on one GPU; None: its time alone times its gang, as if it scaled linearly.
    """
    jobs = workload.jobs
    present = (run.state != "rejected") & (run.state != "awaited")
    alone = np.where(np.isfinite(run.exclusive_seconds), run.exclusive_seconds, np.nan)
    serial: Reals = alone * jobs.most if serial_seconds is None else serial_seconds
    done = done_share(run, workload)
    static = fairness.static_contention(int(present.sum()), cluster.gpus)
    lives = (jobs.arrival_seconds[present], run.finish_seconds[present])
    apps = _apps(run, workload, cluster, serial * done, alone * done, static=static, lives=lives)
    jct = run.finish_seconds - jobs.arrival_seconds
    crowd = _contention(jobs.arrival_seconds, run.finish_seconds, lives, cluster)
    lone = apps.jobs[jobs.app] == 1
    busy = busy_slot_seconds(run, workload)
    return Judged(
        jobs=JobFigures(
            jct_seconds=jct,
            busy_slot_seconds=busy,
            placement_score=placement_score(run, workload, busy),
            serial_seconds=serial,
            rho=np.where(lone, apps.rho[jobs.app], np.nan),
            rho_static=fairness.rho(jct, alone, static),
            rho_contention=fairness.rho(jct, alone, crowd),
            rho_exclusive=fairness.rho(jct, alone),
        ),
        apps=apps,
        present=present,
        static_contention=static,
    )


def done_share(run: SimulatedRun, workload: Workload) -> Reals:
    """By job, the part of its work that its app needed: less than 1 where its tuner ended it early."""
    with np.errstate(divide="ignore", invalid="ignore"):
        part = run.iterations_done / workload.jobs.iterations
    early = (run.state == "stopped") & np.isfinite(part)
    return np.where(early, np.clip(part, 0.0, 1.0), 1.0)


def busy_slot_seconds(run: SimulatedRun, workload: Workload) -> Reals:
    """By job, GPU-seconds that made progress; NaN where its size may have changed and no segments were kept."""
    jobs = workload.jobs
    fixed = run.run_seconds * jobs.most
    if not run.segments.job.size:
        return np.where(jobs.least == jobs.most, fixed, np.nan)
    spans = (run.segments.end_seconds - run.segments.start_seconds) * run.segments.gpus
    summed = np.bincount(run.segments.job, spans, minlength=workload.size)
    return np.where(jobs.least == jobs.most, fixed, summed)


def placement_score(run: SimulatedRun, workload: Workload, busy: Reals) -> Reals:
    """By job, the mean of 1 / slowdown over its GPU time (Themis, section 6.1).

    It is the GPU time that its steps would have taken where it runs best over the time that they took. NaN: it did not
    run, or its sizes are not known.
    """
    made = run.iterations_done + run.iterations_lost
    with np.errstate(divide="ignore", invalid="ignore"):
        best = run.ideal_seconds * workload.jobs.most * made / workload.jobs.iterations
        score = best / busy
    return np.where((busy > 0.0) & np.isfinite(score), np.minimum(score, 1.0), np.nan)


def sum_by(rows: Ints, values: Reals, size: int) -> Reals:
    """What is known of the values, added up by row."""
    summed: Reals = np.bincount(rows, np.nan_to_num(values, nan=0.0), minlength=size).astype(float)
    return summed


def _apps(
    run: SimulatedRun,
    workload: Workload,
    cluster: Cluster,
    serial: Reals,
    alone: Reals,
    *,
    static: float,
    lives: tuple[Reals, Reals],
) -> AppFigures:
    jobs, apps = workload.jobs, workload.apps
    size = len(apps.id)
    demand = sum_by(jobs.app, jobs.most.astype(float), size)
    cluster_seconds = fairness.alone_seconds(sum_by(jobs.app, serial, size), demand, cluster.gpus)
    longest = np.full(size, -np.inf)
    np.fmax.at(longest, jobs.app, alone)
    by_area = fairness.alone_seconds(sum_by(jobs.app, alone * jobs.most, size), demand, cluster.gpus)
    exclusive = np.maximum(longest, by_area)
    arrival, finish = apps.arrival_seconds, run.app_finish_seconds
    there = (run.app_state != "rejected") & (run.app_state != "awaited")
    mean_apps = fairness.mean_present(arrival, finish, (arrival[there], finish[there]))
    jct = finish - arrival
    slot_seconds = sum_by(jobs.app, run.slot_seconds, size)
    score = placement_score(run, workload, busy_slot_seconds(run, workload))
    known = np.isfinite(score)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_score = sum_by(jobs.app, score * run.slot_seconds, size) / np.bincount(
            jobs.app, np.where(known, run.slot_seconds, 0.0), minlength=size
        )
    crowd = _contention(arrival, finish, lives, cluster)
    return AppFigures(
        jobs=np.bincount(jobs.app, minlength=size).astype(np.int64),
        jct_seconds=jct,
        wait_seconds=sum_by(jobs.app, run.wait_seconds, size),
        slot_seconds=slot_seconds,
        placement_score=mean_score,
        alone_seconds=cluster_seconds,
        mean_apps=mean_apps,
        rho=fairness.rho(jct, cluster_seconds, mean_apps),
        rho_static=fairness.rho(jct, exclusive, static),
        rho_contention=fairness.rho(jct, exclusive, crowd),
        rho_exclusive=fairness.rho(jct, exclusive),
    )


def _contention(arrival: Reals, finish: Reals, lives: tuple[Reals, Reals], cluster: Cluster) -> Reals:
    """Mean number of jobs over each life, per GPU, at least 1."""
    return np.maximum(1.0, fairness.mean_present(arrival, finish, lives) / max(1, cluster.gpus))
