"""A small run of the real arbiter with its journal, and with the files that a launcher would have left beside it."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, AppFinished, Event, JobAdded, JobFinished, Released, Started
from eunomia.journal.journal import Journal
from eunomia.journal.sums import checkpoint_sum, row_sum
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.leases import LeaseState
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.service.layout import Layout, Place

BEGAN = 1_700_000_000.0
SLOTS = 4


class Run:
    """Steps an arbiter in time, obeys its orders at once, and leaves journal and files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        machine = Machine(name="box", gpu_type="cpu", gpus=SLOTS, cpus=8.0, memory_gib=16.0)
        cluster = Cluster.build((machine,), place="test")
        self.journal = Journal.open(folder / "journal.sqlite", durable=False)
        places = tuple(Place(node="box", slot=slot) for slot in range(SLOTS))
        layout = Layout.made(cluster, places).encoded()
        self.journal.set_meta(secret="5a" * 32, seed=0, layout=layout)
        fallback = Profile.load("default").stages(cluster)
        profile = Profile.load("srtf", settings=["rounds.lease=20s"])
        self.arbiter = Arbiter(cluster, profile.stages(cluster), fallback)
        self.now = 0.0
        self.runs: dict[tuple[int, int], Path] = {}
        """By slot and epoch: the container."""
        self._incarnations: dict[str, int] = {}

    def step(self, *events: Event, seconds: float = 1.0) -> None:
        """Make a step, and what follows from it until nothing is left to be done."""
        following: Sequence[Event] = events
        while True:
            self.now += seconds
            decision = self.arbiter.step(Seconds(self.now), list(following))
            self.journal.append(Seconds(self.now), list(following), decision, at=BEGAN + self.now)
            following = [*self._leave(decision), *self._start()]
            if not following:
                return
            seconds = 1.0

    def _leave(self, decision: Decision) -> list[Event]:
        gone: list[Event] = []
        for order in (*decision.orders, *decision.transitions):
            for slot in order.leaving.tolist():
                self._end(slot)
            if order.leaving.size:
                gone.append(Released(lease=order.lease, epoch=order.fence, gpus=tuple(order.leaving.tolist())))
        return gone

    def _end(self, slot: int) -> None:
        for (where, _), folder in self.runs.items():
            if where == slot and not (folder / "exit.json").exists():
                (folder / "exit.json").write_text(json.dumps({"code": 75, "ended_at": BEGAN + self.now + 0.5}))

    def _start(self) -> list[Event]:
        begun: list[Event] = []
        for lease in list(self.arbiter.state.leases.values()):
            if lease.state is LeaseState.ORDERED:
                job = str(self.arbiter.state.job_id(lease.job))
                for rank, slot in enumerate(lease.gpus):
                    self._end(slot)
                    self._container(job, slot, lease.epoch, rank, len(lease.gpus))
                self._incarnations[job] = self._incarnations.get(job, 1) + 1
                begun.append(Started(lease=lease.id, epoch=lease.epoch))
        return begun

    def _container(self, job: str, slot: int, epoch: int, rank: int, ranks: int) -> None:
        app, number = job.split("/")
        incarnation = self._incarnations.get(job, 1)
        name = f"{app}.{number}.{incarnation}.{rank}"
        folder = self.folder / "apps" / app / number / "containers" / name
        folder.mkdir(parents=True)
        record = {"container_id": name, "app": app, "job": int(number), "incarnation": incarnation, "slot": slot}
        status = {"progress": {"step": "7", "seconds_per_step": 0.1}}
        more = {"epoch": epoch, "state": "RUNNING", "status": status}
        (folder / "container.json").write_text(json.dumps(record | more))
        (folder / "worker.json").write_text(json.dumps({"pid": 1, "started_at": BEGAN + self.now + 0.25}))
        env = {"WORLD_SIZE": str(ranks), "RANK": str(rank), "EUNOMIA_NODE": "box"}
        (folder / "start.json").write_text(json.dumps({"env": env}))
        self.runs[slot, epoch] = folder


def scripted_run(folder: Path) -> Path:
    """A gang of two and two single jobs, a gang of four that has to wait, and all of them to their ends."""
    run = Run(folder)
    for app, jobs, size, iterations in (("long", 2, 2, 900.0), ("short", 2, 1, 100.0), ("wide", 1, 4, 50.0)):
        run.step(AppArrived(app=AppId(app), user=UserId("ana"), divides=False))
        run.step(
            *(
                JobAdded(job=JobId(f"{app}/{job}"), app=AppId(app), least=size, most=size, iterations=iterations,
                         seconds_per_iteration=1.0)
                for job in range(1, jobs + 1)
            )
        )  # fmt: skip
        run.step(seconds=25.0)
    run.journal.checkpoint(run.arbiter.save())
    for app, jobs in (("wide", 1), ("short", 2), ("long", 2)):
        for job in range(1, jobs + 1):
            run.step(JobFinished(job=JobId(f"{app}/{job}")))
        run.step(AppFinished(app=AppId(app)))
        run.step(seconds=25.0)
    run.journal.checkpoint(run.arbiter.save())
    run.journal.close()
    return folder


class Doctored:
    """A copy of a run's folder in which things are changed that must never be so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._database = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)

    def close(self) -> None:
        self._database.close()

    def sql(self, command: str, *values: object) -> None:
        self._database.execute(command, values)

    def steps(self) -> list[tuple[int, list[dict[str, Any]], dict[str, Any]]]:
        """Number, events and decision of each step, encoded."""
        rows = self._database.execute("SELECT id, events, decision FROM steps ORDER BY id").fetchall()
        return [(number, json.loads(events), json.loads(decision)) for number, events, decision in rows]

    def write(self, number: int, events: list[dict[str, Any]], decision: dict[str, Any]) -> None:
        """Replace a step's row; its sum is that of what stands there."""
        self.sql(
            "UPDATE steps SET events = ?, decision = ? WHERE id = ?", json.dumps(events), json.dumps(decision), number
        )
        self.sum_step(number)

    def sum_step(self, number: int) -> None:
        """Give a step's row the sum of what stands there."""
        query = "SELECT id, now, at, events, decision, uptime FROM steps WHERE id = ?"
        columns = self._database.execute(query, (number,)).fetchone()
        self.sql("UPDATE steps SET crc = ? WHERE id = ?", row_sum(*columns), number)

    def sum_checkpoint(self, after_step: int) -> None:
        """Give a checkpoint's row the sum of what stands there."""
        query = "SELECT after_step, at, state FROM checkpoints WHERE after_step = ?"
        columns = self._database.execute(query, (after_step,)).fetchone()
        self.sql("UPDATE checkpoints SET crc = ? WHERE after_step = ?", checkpoint_sum(*columns), after_step)

    def order(self, kind: str, nth: int = 0) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """The number, the decision and the transition of the nth order of a kind; change it and ``put`` it back."""
        found = [
            (number, decision, order)
            for number, _, decision in self.steps()
            for order in decision.get("transitions", {"tuple": []})["tuple"]
            if order["kind"]["enum"] == f"TransitionKind.{kind}"
        ]
        return found[nth]

    def put(self, number: int, decision: dict[str, Any]) -> None:
        events = next(events for step, events, _ in self.steps() if step == number)
        self.write(number, events, decision)

    def container(self, name: str, file: str, **changes: object) -> Path:
        """Change a file of a container."""
        (folder,) = self.folder.glob(f"apps/*/*/containers/{name}")
        path = folder / f"{file}.json"
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | changes))
        return path
