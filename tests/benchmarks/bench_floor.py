"""The command's CPU over that of a hand-written FIFO loop: a floor that survives a change of machine.

Run with ``python tests/benchmarks/bench_floor.py [--jobs N] [--repeats N]``. Both are ``eunomia simulate`` on the
Philly trace's machine list under FIFO, in processes of their own, in turns: once as it is, and once with the loop below
in place of the simulator, so that reader, tables, summary and page are the same. The finish times of both are compared.
Prints CPU seconds, the lowest of each, and their ratio; asserts no timing. The trace is read from
``../shared/data/philly``.
"""

import argparse
import heapq
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from bench_philly import LISTED, shortened

from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia_testbed.simulator import SimulatedRun
from eunomia_testbed.simulator.logs.logs import QueueLogger, SegmentLogger, words
from eunomia_testbed.simulator.logs.run import Leases, RoundLog, WaitLog
from eunomia_testbed.workload import Workload


def fifo_loop(workload: Workload, cluster: Cluster, profile: Profile, **_: object) -> SimulatedRun:
    """Starts waiting jobs in order of arrival, each as soon as it fits; a job runs for its declared time."""
    jobs, count = workload.jobs, workload.size
    arrival, gangs = jobs.arrival_seconds.tolist(), jobs.most.tolist()
    seconds = (jobs.iterations * jobs.seconds_per_iteration).tolist()
    start, finish = [math.nan] * count, [math.nan] * count
    states = ["rejected"] * count
    free = list(range(cluster.gpus))
    comes = [row for row in np.argsort(jobs.arrival_seconds, kind="stable").tolist() if gangs[row] <= cluster.gpus]
    leases: list[tuple[int, int, int, float, float]] = []  # job, GPU, lease, start, end
    rounds: list[tuple[float, int, int, int, int]] = []  # time, free GPUs, running jobs, waiting jobs, jobs started
    queue = QueueLogger()
    waiting: list[int] = []
    ends: list[tuple[float, int, list[int]]] = []
    coming, now = 0, 0.0
    while coming < len(comes) or ends:
        now = min(arrival[comes[coming]] if coming < len(comes) else math.inf, ends[0][0] if ends else math.inf)
        rounds.append((now, len(free), len(ends), len(waiting), 0))
        while ends and ends[0][0] <= now:
            _, row, gpus = heapq.heappop(ends)
            finish[row], states[row] = now, "finished"
            leases += [(row, gpu, row + 1, start[row], now) for gpu in gpus]
            free += gpus
        while coming < len(comes) and arrival[comes[coming]] <= now:
            waiting.append(comes[coming])
            coming += 1
        if waiting and free:
            stay = []
            for row in waiting:
                if (size := gangs[row]) <= len(free):
                    gpus, free = free[-size:], free[:-size]
                    start[row] = now
                    heapq.heappush(ends, (now + seconds[row], row, gpus))
                else:
                    stay.append(row)
            rounds[-1] = (*rounds[-1][:4], len(waiting) - len(stay))
            waiting = stay
        queue.add(now, len(waiting), sum([gangs[row] for row in waiting]), cluster.gpus - len(free))
    return _result(workload, profile.name, (start, finish, states), leases, rounds, queue)


def _result(
    workload: Workload,
    policy: str,
    columns: tuple[list[float], list[float], list[str]],
    leases: list[tuple[int, int, int, float, float]],
    rounds: list[tuple[float, int, int, int, int]],
    queue: QueueLogger,
) -> SimulatedRun:
    """The loop's columns in the form of a simulation's, of which tables and page are made."""
    start, finish = np.array(columns[0]), np.array(columns[1])
    jobs, none = workload.jobs, np.zeros(workload.size)
    time, free, running, waiting, started = map(np.array, zip(*rounds, strict=True))
    no_rows, no_text = np.zeros(time.size, np.int64), words([""] * time.size)
    row, gpu, lease, since, until = map(np.array, zip(*leases, strict=True))
    waited = np.flatnonzero(start > jobs.arrival_seconds)
    text = words(["waiting"] * waited.size)
    ideal = jobs.iterations * jobs.seconds_per_iteration
    return SimulatedRun(
        policy=policy,
        seed=0,
        end_seconds=float(time[-1]),
        start_seconds=start,
        finish_seconds=finish,
        state=words(columns[2]),
        run_seconds=finish - start,
        wait_seconds=start - jobs.arrival_seconds,
        slot_seconds=(finish - start) * jobs.most,
        iterations_done=jobs.iterations,
        iterations_lost=none,
        restarts=none.astype(np.int64),
        migrations=none.astype(np.int64),
        resizes=none.astype(np.int64),
        probes=none.astype(np.int64),
        ideal_seconds=ideal,
        exclusive_seconds=ideal,
        app_finish_seconds=finish[np.argsort(jobs.app, kind="stable")],
        app_state=words(columns[2]),
        leases=Leases(
            app=jobs.app[row],
            job=row,
            gpu=gpu,
            lease=lease,
            start_seconds=since,
            end_seconds=until,
            ended_by=words(["released"] * row.size),
        ),
        rounds=RoundLog(
            round=np.arange(1, time.size + 1),
            time_seconds=time,
            causes=words(["job_arrived"] * time.size),
            free_gpus=free,
            running_jobs=running,
            waiting_jobs=waiting,
            started=started,
            suspended=no_rows,
            grown=no_rows,
            shrunk=no_rows,
            migrated=no_rows,
            quiet=started == 0,
            fault=no_text,
        ),
        waits=WaitLog(
            job=waited,
            start_seconds=jobs.arrival_seconds[waited],
            end_seconds=start[waited],
            reason=text,
            stage=text,
            plugin=text,
        ),
        queue=queue.columns(),
        segments=SegmentLogger(Cluster.parse("1x1 V100"), {}).columns(),
        records={},
        faults=(),
        fallback_round=None,
        dropped=(),
        steps=time.size,
        events=2 * workload.size,
        round_count=time.size,
        quiet_rounds=0,
        stage_calls=0,
        timings={},
    )


def _simulate_with_the_loop(arguments: list[str]) -> None:
    """Runs the command with the loop in place of the simulator."""
    from eunomia.cli import main as command
    from eunomia_testbed.running import cell_files

    cell_files.simulate_one = fifo_loop
    sys.argv = ["eunomia", "simulate", *arguments]
    command()


def _cpu_seconds(trace: Path, out: Path, *, loop: bool) -> float:
    """Runs the command and waits for it."""
    eunomia = [str(Path(sys.executable).with_name("eunomia")), "simulate"]
    flags = ["--cluster", LISTED, "--policy", "fifo", "--speeds", "equal", "--out", str(out)]
    flags += ["--no-progress", "--json", "-j", "1"]
    begins = [sys.executable, __file__, "--loop"] if loop else eunomia
    child = subprocess.Popen([*begins, str(trace), *flags], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the command ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def _finish_times(folder: Path) -> list[float]:
    """When each job finished, in seconds, out of a result folder."""
    import polars as pl

    return pl.read_parquet(folder / "jobs.parquet").sort("job")["finish_seconds"].to_list()


def main() -> None:
    """Reads the arguments, measures in turns, prints."""
    if "--loop" in sys.argv[1:2]:
        _simulate_with_the_loop(sys.argv[2:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, help="the first so many jobs; all of them by default")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    spent: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = shortened(given.jobs, folder)
        for turn in range(given.repeats):
            for loop in (False, True):
                spent[loop].append(_cpu_seconds(trace, folder / f"{turn}-{loop}", loop=loop))
        equal = _finish_times(folder / "0-False") == _finish_times(folder / "0-True")
    command, floor = min(spent[False]), min(spent[True])
    print(f"command {command:.2f} s, loop {floor:.2f} s CPU: ratio {command / floor:.2f}; finish times equal: {equal}")


if __name__ == "__main__":
    main()
