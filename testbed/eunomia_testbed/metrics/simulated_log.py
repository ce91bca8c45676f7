"""Computes the log of a simulated run, with the same columns as the log of a live run."""

import numpy as np
import polars as pl

from eunomia.model.cluster import Cluster
from eunomia_testbed.metrics.activity import segment_columns
from eunomia_testbed.metrics.judged import AppFigures
from eunomia_testbed.run_log.log import Activity, AppLog, Arrivals, RunLog
from eunomia_testbed.run_log.tables import gathered, words
from eunomia_testbed.simulator.logs.run import SimulatedRun
from eunomia_testbed.workload import Workload


def log_of(run: SimulatedRun, workload: Workload, cluster: Cluster, apps: AppFigures) -> RunLog:
    """Return the log of a run of a workload on a cluster.

    Args:
        run: the simulated run.
        workload: the jobs and apps.
        cluster: cluster of the run.
        apps: metrics of the apps, of which the log contains some.
    """
    jobs = workload.jobs
    lone = apps.jobs[jobs.app] == 1
    names = [workload.apps.id[app] if alone else job for job, app, alone in zip(jobs.id, jobs.app, lone, strict=True)]
    return RunLog(
        apps=workload.apps.id,
        jobs=names,
        cluster=cluster,
        arrivals=_arrivals(run, workload),
        app_log=_apps(run, workload, apps),
        leases=run.leases,
        rounds=run.rounds,
        waits=run.waits,
        queue=run.queue,
        activity=lambda: _activity(run, workload),
        end_seconds=run.end_seconds,
    )


def _arrivals(run: SimulatedRun, workload: Workload) -> Arrivals:
    jobs, models = workload.jobs, pl.Series("model", list(workload.models), pl.String())
    return Arrivals(
        app=jobs.app,
        user=user_names(workload).gather(workload.apps.user).gather(jobs.app),
        model=gathered(models, jobs.model),
        state=words(run.state),
        slots_asked=jobs.most,
        arrival_seconds=jobs.arrival_seconds,
        start_seconds=run.start_seconds,
        finish_seconds=run.finish_seconds,
        jct_seconds=run.finish_seconds - jobs.arrival_seconds,
        wait_seconds=run.wait_seconds,
        run_seconds=run.run_seconds,
        slot_seconds=run.slot_seconds,
        iterations=np.rint(run.iterations_done),
        iterations_lost=np.rint(run.iterations_lost),
        restarts=run.restarts,
        migrations=run.migrations,
        resizes=run.resizes,
        probes=run.probes,
    )


def _apps(run: SimulatedRun, workload: Workload, figures: AppFigures) -> AppLog:
    apps, tuners = workload.apps, {row: search.tuner for row, search in workload.searches.items()}
    return AppLog(
        user=user_names(workload).gather(apps.user),
        tuner=[tuners.get(row, "none") for row in range(len(apps.id))] if tuners else ["none"] * len(apps.id),
        weight=apps.weight,
        state=words(run.app_state),
        jobs=figures.jobs,
        arrival_seconds=apps.arrival_seconds,
        finish_seconds=run.app_finish_seconds,
        jct_seconds=figures.jct_seconds,
        slot_seconds=figures.slot_seconds,
    )


def user_names(workload: Workload) -> pl.Series:
    """Return the names of the workload's users as a column, in their order in the workload."""
    return pl.Series("user", list(workload.users.id), pl.String())


def _activity(run: SimulatedRun, workload: Workload) -> Activity:
    job, gpu, start, end, activity = segment_columns(run)
    return Activity(
        job=job, app=workload.jobs.app[job], gpu=gpu, start_seconds=start, end_seconds=end, activity=activity
    )
