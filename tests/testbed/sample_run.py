"""A made-up run of the demo's shape: four apps on four slots, auctions every few seconds. Written by a fixed seed.

As a script it writes a folder with its report: ``python tests/testbed/sample_run.py /tmp/sample``.
"""

import json
import math
import random
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from eunomia_testbed.results import ResultFolder, RunFacts
from eunomia_testbed.results import tables as t

SLOTS, MACHINE, LEASE, POLICY = 4, "box7", 6.0, "demo"
PROFILE = 'extends = "themis"\n[rounds]\nlease = "6s"\n[plugins.themis]\nfairness_knob = 0.25\n'
HOSTILE = "</script><script>alert('x')</script><!--<img src=x onerror=alert(1)>&lt;\u2028\"'"
START, RESTORE, SAVE = 0.35, 0.25, 0.15


@dataclass
class Trial:
    app: str
    job: str
    params: dict[str, float]
    rungs: tuple[int, ...]
    speed: float
    ceiling: float
    gang: int = 1
    done: float = 0.0
    rung: int = 0
    state: str = "waiting"
    metric: float = 0.0
    started: float | None = None
    finished: float | None = None
    restarts: int = 0
    run_seconds: float = 0.0
    wait_from: float | None = 0.0
    waited: float = 0.0
    reached: float = 0.0


class Sample:
    """Grants slots by lease to the app with the worst ρ; every number follows from the seed."""

    def __init__(self, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.rows: dict[str, list[object]] = defaultdict(list)
        self.auctions: list[dict[str, object]] = []
        self.slot_seconds: dict[str, float] = defaultdict(float)
        self.trials = [
            *self.search("halving", 8, (96, 192, 384)),
            *self.search("curves", 6, (120, 420)),
            *self.search("hyperband", 12, (60, 180, 540)),
            Trial("single", "single", {"lr": 0.05}, (1700,), 26.0, 0.972, gang=2),
        ]
        self.work = ("halving", "curves", "hyperband", "single")

    def search(self, app: str, number: int, rungs: tuple[int, ...]) -> list[Trial]:
        def trial(at: int) -> Trial:
            rate = round(10 ** self.random.uniform(-2.5, -0.5), 4)
            ceiling = 0.985 - 0.05 * abs(math.log10(rate) + 1.3) - self.random.uniform(0, 0.02)
            return Trial(
                app, f"{app}/{at}", {"lr": rate, "width": self.random.choice([64, 128, 256])}, rungs, 19.0, ceiling
            )

        return [trial(at) for at in range(number)]

    def rho(self, app: str, now: float) -> float:
        share = max(now, 1.0) * SLOTS / 4
        return round(min(3.0, (share + 12) / (self.slot_seconds[app] + 12) * 1.13), 3)

    def run(self) -> "Sample":
        now, number, epoch = 0.0, 0, 0
        while any(trial.state not in ("finished", "stopped") for trial in self.trials) and now < 400:
            waiting = [trial for trial in self.trials if trial.state == "waiting"]
            if not waiting:
                break
            apps = sorted({trial.app for trial in waiting}, key=lambda app: (-self.rho(app, now), app))
            bidders = apps[: max(1, math.ceil(0.75 * len(apps)))]
            free, won = SLOTS, defaultdict(list)
            for _ in range(SLOTS):
                for app in bidders:
                    trial = next((w for w in waiting if w.app == app and w not in won[app] and w.gang <= free), None)
                    if trial is not None:
                        won[app].append(trial)
                        free -= trial.gang
            leftover = free
            for trial in waiting:
                if trial not in won[trial.app] and trial.gang <= free:
                    won[trial.app].append(trial)
                    free -= trial.gang
            granted = [trial for app in won for trial in won[app]]
            self.record(number, now, apps, bidders, won, leftover)
            length = LEASE + self.random.uniform(0, 0.6)
            slot = 0
            for trial in granted:
                epoch += 1
                slots = list(range(slot, slot + trial.gang))
                slot += trial.gang
                self.lease(trial, slots, now, length, epoch)
            suspended = sum(1 for trial in granted if trial.state == "waiting")
            self.rows["rounds"].append(
                t.RoundRow(
                    round=number, time_seconds=now, trigger="lease_ended", free_slots=SLOTS, busy_slots=0,
                    running_jobs=0, waiting_jobs=len(waiting), started=len(granted), kept=0, grown=0, shrunk=0,
                    migrated=0, suspended=suspended,
                )
            )  # fmt: skip
            self.rows["timings"].append(
                t.TimingRow(round=number, stage="allocation", plugin="themis", cpu_seconds=0.0011, wall_seconds=0.0012)
            )
            for trial in waiting:
                if trial not in granted:
                    self.wait(trial, now + length, "outbid" if trial.app in bidders else "not_offered")
            now, number = now + length, number + 1
            self.advance_rungs(now)
        self.end = now
        return self

    def record(self, number: int, now: float, apps: list[str], bidders: list[str], won: dict, leftover: int) -> None:
        for app in apps:
            value, slots = self.rho(app, now), sum(trial.gang for trial in won[app])
            after = round(value / (1 + 0.19 * max(slots, 1) * self.random.uniform(0.7, 1.2)), 3)
            paying = app in bidders and slots > 0 and len(bidders) > 1
            c = round(self.random.uniform(0.8, 1.0), 3) if paying else 1.0 if slots else None
            self.auctions.append(
                {"round": number, "time_seconds": now, "app": app, "bidder": app in bidders, "rho_now": value,
                 "rho_with": after, "bid_rows": 3, "won_slots": slots, "c": c, "leftover_slots": leftover}
            )  # fmt: skip
        for app in self.work:
            held = sum(trial.gang for trial in won.get(app, []))
            if any(trial.state == "waiting" for trial in self.trials if trial.app == app):
                self.rows["rho"].append(t.RhoRow(app=app, time_seconds=now, rho=self.rho(app, now), slots=held))

    def lease(self, trial: Trial, slots: list[int], now: float, length: float, epoch: int) -> None:
        setup = [("start", START)] + ([("restore", RESTORE)] if trial.started is not None else [])
        run = length - sum(seconds for _, seconds in setup) - SAVE - 0.1
        goal = trial.rungs[trial.rung]
        run = min(run, (goal - trial.done) / trial.speed)
        self.wait(trial, now, "awaiting_round")
        trial.restarts += trial.started is not None
        trial.started = now if trial.started is None else trial.started
        at = now
        parts = [*setup, ("run", run), ("save", SAVE)]
        for activity, seconds in [*parts, ("idle", now + length - at - sum(s for _, s in parts))]:
            for slot in slots:
                self.rows["segments"].append(
                    t.SegmentRow(job=trial.job, app=trial.app, slot=slot, machine=MACHINE, start_seconds=at,
                                 end_seconds=at + seconds, activity=activity)
                )  # fmt: skip
            if activity == "run":
                self.log(trial, at, seconds)
            at += seconds
        for slot in slots:
            self.rows["leases"].append(
                t.LeaseRow(app=trial.app, job=trial.job, machine=MACHINE, slot=slot, epoch=epoch, start_seconds=now,
                           end_seconds=now + length, ended_by="expired" if trial.done < goal else "released")
            )  # fmt: skip
        self.slot_seconds[trial.app] += length * len(slots)
        trial.run_seconds += run
        trial.wait_from = now + length
        kind = "job.suspended" if trial.done < goal else "job.reached"
        self.rows["events"].append(
            t.EventRow(
                time_seconds=at, kind=kind, app=trial.app, job=trial.job, text=f"{trial.job} at {trial.done:.0f}"
            )
        )
        if trial.done >= goal:
            trial.state = "rung"
            trial.reached = at

    def log(self, trial: Trial, at: float, seconds: float) -> None:
        before = trial.done
        trial.done += seconds * trial.speed
        for step in range((int(before) // 24 + 1) * 24, int(trial.done) + 1, 24):
            value = trial.ceiling * (1 - 0.85 * math.exp(-step / 55)) + self.random.gauss(0, 0.004)
            trial.metric = max(trial.metric, round(value, 4))
            moment = at + (step - before) / trial.speed
            self.rows["metrics"].append(
                t.MetricRow(
                    job=trial.job, app=trial.app, step=step, time_seconds=moment, tag="val/accuracy", value=value
                )
            )

    def wait(self, trial: Trial, until: float, reason: str) -> None:
        start = trial.wait_from if trial.wait_from is not None else until
        if until > start:
            self.rows["waits"].append(
                t.WaitRow(job=trial.job, start_seconds=start, end_seconds=until, reason=reason, stage="allocation",
                          plugin="themis")
            )  # fmt: skip
            trial.waited += until - start
        trial.wait_from = until

    def advance_rungs(self, now: float) -> None:
        for app in self.work:
            mine = [trial for trial in self.trials if trial.app == app]
            level = min((trial.rung for trial in mine if trial.state in ("waiting", "rung")), default=0)
            here = [trial for trial in mine if trial.rung == level and trial.state in ("waiting", "rung")]
            if not here or any(trial.state == "waiting" for trial in here):
                continue
            here.sort(key=lambda trial: -trial.metric)
            keep = max(1, len(here) // 2) if level + 1 < len(here[0].rungs) else 0
            for place, trial in enumerate(here):
                self.wait(trial, now, "paused_by_app")
                last = level + 1 == len(trial.rungs)
                verdict = "promoted" if place < keep else "finished" if last else "stopped"
                self.rows["rungs"].append(
                    t.RungRow(app=app, job=trial.job, rung=level, iterations=trial.rungs[level],
                              time_seconds=trial.reached, metric=trial.metric, verdict=verdict)
                )  # fmt: skip
                if place < keep:
                    trial.state, trial.rung = "waiting", level + 1
                else:
                    trial.state = "finished" if level + 1 == len(trial.rungs) else "stopped"
                    trial.finished = now

    def write(self, path: Path, **options: bool) -> ResultFolder:
        folder = ResultFolder.create(path, **options)
        folder.write_facts(
            RunFacts(
                kind="demo", command=("eunomia", "demo", "--seed", "7"), seeds=(7,), slots=SLOTS,
                profiles={POLICY: PROFILE},
                cluster='machines = [{ names = "box7", gpus = "4xcpu" }]\n',
                machine="local: box7, no GPU found, so 4 cpu slots of 0.5 CPUs each, 7.6 GiB",
                versions={"eunomia": "0.1.0", "python": "3.11.2"}, started_at="2026-11-20T14:15:30Z",
                ended_at="2026-11-20T14:17:57Z", ended="finished",
            )
        )  # fmt: skip
        best = {app: max((x for x in self.trials if x.app == app), key=lambda x: x.metric).job for app in self.work}
        for trial in self.trials:
            self.rows["jobs"].append(
                t.JobRow(app=trial.app, job=trial.job, user="ana", model="mlp", state=trial.state,
                         slots_asked=trial.gang, arrival_seconds=0.0, start_seconds=trial.started,
                         finish_seconds=trial.finished, jct_seconds=trial.finished, wait_seconds=trial.waited,
                         run_seconds=trial.run_seconds, iterations=int(trial.done), iterations_lost=0,
                         restarts=trial.restarts, migrations=0)
            )  # fmt: skip
            self.rows["trials"].append(
                t.TrialRow(app=trial.app, job=trial.job, params=json.dumps(trial.params), state=trial.state,
                           rung=trial.rung, iterations=int(trial.done), metric=trial.metric,
                           best=trial.job == best[trial.app])
            )  # fmt: skip
        for app in self.work:
            mine = [trial for trial in self.trials if trial.app == app]
            finish = max(trial.finished or 0.0 for trial in mine)
            tuner = "none" if app == "single" else "successive_halving"
            self.rows["searches"].append(t.SearchRow(app=app, metric="val/accuracy", mode="max"))
            self.rows["apps"].append(
                t.AppRow(app=app, user="ana", tuner=tuner, weight=1.0, state="finished", jobs=len(mine),
                         arrival_seconds=0.0, finish_seconds=finish, jct_seconds=finish,
                         slot_seconds=self.slot_seconds[app], rho=self.rho(app, finish))
            )  # fmt: skip
        for table in t.TABLES:
            folder.write(table, self.rows[table], policy=POLICY, seed=7)
        folder.write_record("themis", self.auctions, policy=POLICY, seed=7)
        folder.write_summary()
        return folder


def write_hostile(path: Path) -> Path:
    """Every text that a user, a script or a plugin chooses, chosen badly."""
    folder = ResultFolder.create(path)
    key = {"policy": HOSTILE, "seed": 0}
    app, job = HOSTILE, f"{HOSTILE}/1"
    folder.write_facts(
        RunFacts(
            kind=HOSTILE, command=("eunomia", HOSTILE), profiles={HOSTILE: HOSTILE}, cluster=HOSTILE, machine=HOSTILE,
            versions={HOSTILE: HOSTILE}, ended=HOSTILE,
        )
    )  # fmt: skip
    folder.write(
        "apps", [t.AppRow(app=app, user=HOSTILE, tuner=HOSTILE, state=HOSTILE, rho=1.5, jct_seconds=1.0)], **key
    )
    folder.write("jobs", [t.JobRow(app=app, job=job, model=HOSTILE, state=HOSTILE)], **key)
    lease = t.LeaseRow(app=app, job=job, machine=HOSTILE, slot=0, start_seconds=0.0, end_seconds=5.0, ended_by=HOSTILE)
    folder.write("leases", [lease], **key)
    folder.write(
        "waits", [t.WaitRow(job=job, start_seconds=5.0, end_seconds=9.0, reason=HOSTILE, plugin=HOSTILE)], **key
    )
    folder.write("events", [t.EventRow(time_seconds=1.0, kind="fault", app=app, text=HOSTILE)], **key)
    folder.write("metrics", [t.MetricRow(job=job, app=app, step=1, time_seconds=1.0, tag=HOSTILE, value=0.5)], **key)
    trial = t.TrialRow(app=app, job=job, params=HOSTILE, state="failed", error=HOSTILE)
    folder.write("trials", [trial], **key)
    folder.write_record("themis", [{"round": 0, "app": app, HOSTILE: HOSTILE}], **key)
    return folder.path


if __name__ == "__main__":
    from eunomia_testbed.report import write_report

    print(write_report(Sample().run().write(Path(sys.argv[1]), overwrite=True).path))
