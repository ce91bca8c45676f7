"""A made-up simulation: one workload under several policies with several seeds, and a large one for sizes and times.

As a script it writes a folder with its report: ``python tests/testbed/sample_simulation.py /tmp/sample``.
"""

import random
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl

from eunomia_testbed.evidence.draws import draws_of_seeds
from eunomia_testbed.results import ResultFolder, RunFacts
from eunomia_testbed.results import tables as t

ROUND = 600.0
ORDERS = {
    "fifo": lambda job: (job["arrival"],),
    "las": lambda job: (job["attained"], job["arrival"]),
    "srtf": lambda job: (job["left"], job["arrival"]),
}


def jobs_of(seed: int, number: int) -> list[dict[str, object]]:
    """Jobs with gangs of 1 to 8 and durations over three decades, by three users."""
    draw = random.Random(seed)
    at, made = 0.0, []
    for row in range(number):
        at += draw.expovariate(1 / 650.0)
        work = 10 ** draw.uniform(2.5, 4.7)
        gang = draw.choice([1, 1, 1, 2, 2, 4, 8, 16])
        made.append(
            {"name": f"job-{row:03}", "user": draw.choice(["ana", "ben", "cho"]), "arrival": at if row else 0.0,
             "gang": gang, "work": work, "left": work, "attained": 0.0, "slots": [], "since": None, "first": None,
             "end": None, "restarts": 0, "waits": []}
        )  # fmt: skip
    return made


class Simulation:
    """Rounds of ten minutes: in the policy's order whole gangs get slots; who is not among them waits."""

    def __init__(self, policy: str, seed: int, *, jobs: int, machines: int, slots: int) -> None:
        self.policy, self.seed, self.slots = policy, seed, slots
        self.machines = [f"m{at + 1:02}" for at in range(machines)]
        self.jobs = jobs_of(seed, jobs)
        self.rows: dict[str, list[object]] = defaultdict(list)
        self.queue: list[dict[str, object]] = []

    def place(self, slot: int) -> tuple[str, int]:
        return self.machines[slot // self.slots], slot % self.slots

    def run(self) -> "Simulation":
        now, number, total = 0.0, 0, len(self.machines) * self.slots
        while any(job["end"] is None for job in self.jobs):
            present = [job for job in self.jobs if job["end"] is None and job["arrival"] <= now]
            chosen, room, blocked = [], total, set()
            for job in sorted(present, key=ORDERS[self.policy]):
                if job["gang"] <= room:
                    chosen.append(job)
                    room -= job["gang"]
                elif room:
                    blocked.add(job["name"])
            names = {job["name"] for job in chosen}
            for job in present:
                if job["name"] not in names and job["slots"]:
                    self.stop(job, now, "preempted")
            free = sorted(set(range(total)) - {slot for job in chosen for slot in job["slots"]})
            started = [job for job in chosen if not job["slots"]]
            for job in started:
                job["slots"], free = free[: job["gang"]], free[job["gang"] :]
                job["restarts"] += job["first"] is not None
                job["first"] = now if job["first"] is None else job["first"]
                job["since"] = now
            waiting = [job for job in present if job["name"] not in names]
            busy = sum(job["gang"] for job in chosen)
            self.rows["rounds"].append(
                t.RoundRow(round=number, time_seconds=now, trigger="wake", free_slots=room, busy_slots=busy,
                           running_jobs=len(chosen), waiting_jobs=len(waiting), started=len(started), suspended=0)
            )  # fmt: skip
            asked = sum(job["gang"] for job in waiting)
            self.queue.append(
                {"time_seconds": now, "waiting_jobs": len(waiting), "waiting_gpus": asked, "busy_gpus": busy,
                 "contention": (asked + busy) / total}
            )  # fmt: skip
            for job in waiting:
                reason = "fragmented" if job["name"] in blocked else "outranked"
                begin = max(now, job["arrival"])
                job["waits"].append((begin, now + ROUND, reason))
            for job in chosen:
                spent = min(job["left"], ROUND)
                job["left"] -= spent
                job["attained"] += spent * job["gang"]
                if job["left"] <= 0:
                    self.stop(job, now + spent, "released")
                    job["end"] = now + spent
            now, number = now + ROUND, number + 1
        return self

    def stop(self, job: dict, now: float, why: str) -> None:
        for slot in job["slots"]:
            machine, at = self.place(slot)
            self.rows["leases"].append(
                t.LeaseRow(app=job["name"], job=job["name"], machine=machine, slot=at, epoch=job["restarts"],
                           start_seconds=job["since"], end_seconds=now, ended_by=why)
            )  # fmt: skip
        job["slots"] = []

    def write(self, folder: ResultFolder) -> None:
        key = {"policy": self.policy, "seed": self.seed}
        share = max(1.0, len(self.jobs) / (len(self.machines) * self.slots))
        for job in self.jobs:
            jct, name = job["end"] - job["arrival"], job["name"]
            first = job["first"] - job["arrival"]
            waits = [(job["arrival"], job["first"], "awaiting_round")] if 0 < first < ROUND else job["waits"]
            for begin, end, reason in merged(waits):
                self.rows["waits"].append(
                    t.WaitRow(job=name, start_seconds=begin, end_seconds=end, reason=reason, stage="order",
                              plugin=self.policy)
                )  # fmt: skip
            held = job["work"] * job["gang"]
            rho = jct / (job["work"] * share)
            self.rows["jobs"].append(
                t.JobRow(app=name, job=name, user=job["user"], model="ResNet-18", state="finished",
                         slots_asked=job["gang"], arrival_seconds=job["arrival"], start_seconds=job["first"],
                         finish_seconds=job["end"], jct_seconds=jct, wait_seconds=jct - job["work"],
                         run_seconds=job["work"], ideal_seconds=job["work"], slot_seconds=held, iterations=1,
                         iterations_lost=0, restarts=job["restarts"], migrations=0, rho=rho)
            )  # fmt: skip
            self.rows["apps"].append(
                t.AppRow(app=name, user=job["user"], weight=1.0, state="finished", jobs=1,
                         arrival_seconds=job["arrival"], finish_seconds=job["end"], jct_seconds=jct,
                         slot_seconds=held, rho=rho, rho_static=rho)
            )  # fmt: skip
        for table in ("jobs", "apps", "rounds", "leases", "waits"):
            folder.write(table, self.rows[table], **key)
        if "queue" in t.TABLES:
            frame = pl.DataFrame(self.queue).with_columns(policy=pl.lit(self.policy), seed=pl.lit(self.seed))
            schema = t.schema_of("queue")
            missing = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
            folder.write_frame("queue", frame.with_columns(missing).select(list(schema)).cast(dict(schema)))


def merged(waits: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Waits that follow each other for one reason as one."""
    found: list[tuple[float, float, str]] = []
    for begin, end, reason in waits:
        if found and found[-1][1] == begin and found[-1][2] == reason:
            found[-1] = (found[-1][0], end, reason)
        else:
            found.append((begin, end, reason))
    return found


def write_simulation(
    path: Path, *, policies: tuple[str, ...] = ("fifo", "las", "srtf"), seeds: int = 2, jobs: int = 60,
    machines: int = 4, slots: int = 8, **options: bool,
) -> ResultFolder:  # fmt: skip
    """Write a folder of these policies, each with so many seeds."""
    folder = ResultFolder.create(path, **options)
    rows = "".join(f'  {{ names = "m{at + 1:02}", gpus = "{slots}xV100" }},\n' for at in range(machines))
    folder.write_facts(
        RunFacts(
            kind="simulate", command=("eunomia", "simulate", "made-up"), seeds=tuple(range(seeds)),
            draws=draws_of_seeds(seeds), slots=machines * slots,
            profiles={policy: f'extends = "{policy}"\n' for policy in policies},
            cluster=f"machines = [\n{rows}]\n", machine=f"{machines}x{slots} V100", clock="virtual",
            versions={"eunomia": "0.1.0"}, ended="finished",
        )
    )  # fmt: skip
    for policy in policies:
        for seed in range(seeds):
            Simulation(policy, seed, jobs=jobs, machines=machines, slots=slots).run().write(folder)
    return folder


def large_frames(jobs: int, *, machines: int = 312, slots: int = 8, policy: str = "fifo") -> dict[str, pl.DataFrame]:
    """Tables of very many jobs, drawn without simulating anything: only sizes and times of the page depend on them."""
    draw = np.random.default_rng(3)
    arrival = np.sort(draw.uniform(0, 6e6, jobs))
    arrival[0] = 0.0
    gang = draw.choice([1, 2, 4, 8, 16], jobs, p=[0.7, 0.12, 0.1, 0.06, 0.02])
    run, wait = 10 ** draw.uniform(1.5, 5, jobs), draw.exponential(4000, jobs) * (draw.random(jobs) < 0.6)
    start, end = arrival + wait, arrival + wait + run
    name = pl.Series([f"application_{row:07}" for row in range(jobs)])
    user = pl.Series([f"user{row}" for row in draw.integers(0, 300, jobs)])
    columns = {
        "app": name, "job": name, "user": user, "state": pl.Series(["finished"] * jobs), "slots_asked": gang,
        "arrival_seconds": arrival, "start_seconds": start, "finish_seconds": end, "jct_seconds": wait + run,
        "wait_seconds": wait, "run_seconds": run, "ideal_seconds": run, "slot_seconds": run * gang,
        "restarts": np.zeros(jobs, dtype=np.int64), "migrations": np.zeros(jobs, dtype=np.int64),
        "rho": (wait + run) / run, "jobs": np.ones(jobs, dtype=np.int64),
    }  # fmt: skip
    row = np.repeat(np.arange(jobs), gang)
    place = draw.integers(0, machines * slots, len(row))
    machine = pl.Series([f"m{at:03}" for at in range(machines)]).gather(place // slots)
    leases = {
        "app": name.gather(row), "job": name.gather(row), "machine": machine, "slot": place % slots,
        "start_seconds": start[row], "end_seconds": end[row], "ended_by": pl.Series(["released"]).new_from_index(0, len(row)),  # noqa: E501
    }  # fmt: skip
    late = np.flatnonzero(wait > 0)
    waits = {
        "job": name.gather(late), "start_seconds": arrival[late], "end_seconds": start[late],
        "reason": pl.Series(["outranked", "fragmented"]).gather(draw.integers(0, 2, len(late))),
        "stage": pl.Series(["order"]).new_from_index(0, len(late)),
        "plugin": pl.Series([policy]).new_from_index(0, len(late)),
    }  # fmt: skip
    moments = np.sort(np.concatenate([arrival, start, end]))
    queue = {
        "time_seconds": moments, "waiting_jobs": draw.integers(0, 900, len(moments)),
        "waiting_gpus": draw.integers(0, 2000, len(moments)), "busy_gpus": draw.integers(0, 2490, len(moments)),
    }  # fmt: skip
    rounds = {
        "round": np.arange(2 * jobs), "time_seconds": np.sort(draw.uniform(0, 6e6, 2 * jobs)),
        "free_slots": draw.integers(0, 99, 2 * jobs), "busy_slots": draw.integers(0, 99, 2 * jobs),
    }  # fmt: skip
    made = {"jobs": columns, "apps": columns, "leases": leases, "waits": waits, "queue": queue, "rounds": rounds}
    return {table: _fitted(table, found, policy) for table, found in made.items() if table in t.TABLES}


def _fitted(table: str, columns: dict, policy: str) -> pl.DataFrame:
    schema = t.schema_of(table)
    found = {name: column for name, column in columns.items() if name in schema}
    frame = pl.DataFrame(found).with_columns(policy=pl.lit(policy), seed=pl.lit(0))
    missing = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(list(schema)).cast(dict(schema))


if __name__ == "__main__":
    from eunomia_testbed.report import write_report

    print(write_report(write_simulation(Path(sys.argv[1]), overwrite=True).path))
