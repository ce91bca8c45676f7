"""Random histories as live runs and simulations leave them: finished, or cut off at any time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from eunomia_testbed import SimulationOptions, Workload, simulate
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.tables import (
    AppRow,
    JobRow,
    LeaseRow,
    QueueRow,
    SegmentRow,
    TrialRow,
    WaitRow,
    frame_of,
)  # fmt: skip


def simulated(seed: int, policy: str, options: SimulationOptions, *, cluster: str, **given: Any) -> RunData:
    """A simulation of up to eleven jobs of up to 4 GPUs that arrive within 200 s."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    workload = Workload.single_jobs(
        "random",
        ids=[f"a{at}" for at in range(count)],
        arrival_seconds=np.sort(rng.uniform(0.0, 200.0, size=count)),
        gpus=rng.integers(1, 5, size=count),
        iterations=rng.integers(1, 120, size=count).astype(float),
        seconds_per_iteration=np.ones(count),
    )
    return simulate(workload, cluster, policies=[policy], options=options, **given).run


def live(seed: int, folder: Path) -> RunData:
    """A live run on two machines, of apps that end or do not; its leases begin and end at random."""
    draw = np.random.default_rng(seed)
    slots, apps = int(draw.integers(1, 6)), [f"a{at}" for at in range(int(draw.integers(1, 6)))]
    until = float(draw.uniform(5.0, 200.0))
    leases = [lease for slot in range(slots) for lease in _leases(draw, slot, apps, until)]
    there = ResultFolder.create(folder, overwrite=True)
    cluster = f'machines = [{{ names = ["m0"], gpus = "{slots}xV100" }}, {{ names = ["m1"], gpus = "{slots}xK80" }}]\n'
    there.write_facts(RunFacts(kind="serve", command=("eunomia", "serve"), slots=slots, cluster=cluster))
    there.write("leases", leases, policy="las")
    there.write("segments", [each for lease in leases for each in _segments(draw, lease, until)], policy="las")
    there.write("queue", list(_queue(draw, leases, until)), policy="las")
    for app in apps:
        _write_app(draw, there, app, [each for each in leases if each.app == app], until)
    return RunData.load(there.path)


def _leases(draw: np.random.Generator, slot: int, apps: list[str], until: float) -> Iterator[LeaseRow]:
    """Leases of one slot, one after the other, with or without a gap; the last may be open."""
    moment = float(draw.uniform(0.0, 20.0))
    while moment < until:
        end = moment + float(draw.exponential(20.0)) + 0.1
        app = str(draw.choice(apps))
        closed = None if end > until else end
        yield LeaseRow(app=app, job=app, machine=f"m{slot % 2}", slot=slot, start_seconds=moment, end_seconds=closed)
        moment = end + float(draw.choice([0.0, draw.exponential(5.0)]))


def _segments(draw: np.random.Generator, lease: LeaseRow, until: float) -> Iterator[SegmentRow]:
    end = until if lease.end_seconds is None else lease.end_seconds
    cuts = [lease.start_seconds, *np.sort(draw.uniform(lease.start_seconds, end, 2)).tolist(), end]
    for at, activity in enumerate(("start", "run", "idle")):
        yield SegmentRow(
            app=lease.app, job=lease.app, machine=lease.machine, slot=lease.slot,
            start_seconds=cuts[at], end_seconds=cuts[at + 1], activity=activity,
        )  # fmt: skip


def _queue(draw: np.random.Generator, leases: list[LeaseRow], until: float) -> Iterator[QueueRow]:
    for moment in np.sort(draw.uniform(0.0, until, int(draw.integers(0, 30)))).tolist():
        busy = sum(each.start_seconds <= moment < (each.end_seconds or np.inf) for each in leases)
        yield QueueRow(time_seconds=moment, waiting_jobs=int(draw.integers(0, 3)), busy_gpus=busy)


def _write_app(draw: np.random.Generator, folder: ResultFolder, app: str, leases: list[LeaseRow], until: float) -> None:
    """Write an app that held these leases, with its job, waits and trials; it ends after them, or not at all."""
    ends = [each.end_seconds for each in leases]
    spent = sum((until if end is None else end) - each.start_seconds for each, end in zip(leases, ends, strict=True))
    closed = [end for end in ends if end is not None]
    finish = max(closed) if closed and len(closed) == len(ends) and draw.random() < 0.7 else None
    arrival = min((each.start_seconds for each in leases), default=0.0) * float(draw.random())
    facts: dict[str, Any] = {
        "user": str(draw.choice(["ana", "ben"])),
        "state": "running" if finish is None else "finished",
        "arrival_seconds": arrival,
        "finish_seconds": finish,
        "jct_seconds": None if finish is None else finish - arrival,
        "slot_seconds": spent,
        "rho": float(draw.lognormal()),
    }
    wait = 1.0 if finish is None else float(draw.uniform(0.0, finish - arrival))
    busy = spent * float(draw.random())
    job = JobRow(app=app, job=app, slots_asked=1, wait_seconds=wait, busy_slot_seconds=busy, **facts)
    reason = str(draw.choice(["outbid", "fragmented"]))
    waited = WaitRow(job=app, start_seconds=arrival, end_seconds=arrival + wait, reason=reason, plugin="p")
    done = draw.integers(0, 50, 3).tolist()
    trials = [
        TrialRow(app=app, job=f"{app}/{at}", state="stopped", iterations=each, metric=0.5)
        for at, each in enumerate(done)
    ]
    rows = {"apps": AppRow(app=app, **facts), "jobs": job, "waits": waited}
    for table, row in rows.items():
        folder.write_frame(table, _with(folder, table, [row]))
    folder.write_frame("trials", _with(folder, "trials", trials))


def _with(folder: ResultFolder, table: str, rows: list[Any]) -> pl.DataFrame:
    """The table's earlier rows, followed by these."""
    path = folder.path / f"{table}.parquet"
    made = frame_of(table, rows, policy="las", seed=0)
    return pl.concat([pl.read_parquet(path), made]) if path.exists() else made
