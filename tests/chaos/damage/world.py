"""A state folder whose journal has all there is: apps that live and that are over, checkpoints, archived segments."""

import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    AppArrived,
    AppFinished,
    Event,
    JobAdded,
    JobFinished,
    JobReported,
    Released,
    Started,
)
from eunomia.journal.files import Retention
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.leases import LeaseState
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.node.mark_file import MARK
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.layout import Layout, Place
from eunomia_appmaster.service.marks import Marks

SLOTS: Final = 4
APPS: Final = ("ana", "bob", "cy", "dora", "eve", "fay")
OVER: Final = ("ana", "bob")
LEASE_EPOCH_SECONDS: Final = 7.0
BEGAN: Final = 1_700_000_000.0
JOURNAL: Final = "journal.sqlite"
LAYOUT: Final = Layout.made(
    Cluster.build((Machine(name="box", gpu_type="cpu", gpus=SLOTS, cpus=8.0, memory_gib=16.0),), place="damage"),
    [Place(node="box", slot=slot) for slot in range(SLOTS)],
)


def build(folder: Path) -> None:
    """Make the folder: a run of some fifty steps that stopped with four apps alive."""
    with _opened(folder) as journal:
        run = _Run(journal)
        run.come()
        run.go()
        run.marks.close()


def build_killed(folder: Path, earlier: Path) -> None:
    """Make the folder as an arbiter leaves it that is killed, and as it was some steps before.

    Args:
        folder: gets the journal with its write-ahead log.
        earlier: gets the same some steps before the last.
    """
    with tempfile.TemporaryDirectory() as place, _opened(Path(place) / "state") as journal:
        run = _Run(journal)
        run.come()
        shutil.copytree(journal.path.parent, earlier)
        run.go()
        shutil.copytree(journal.path.parent, folder)
        run.marks.close()


def backup(folder: Path, target: Path) -> None:
    """Copy a folder's journal as the how-to says."""
    with closing(sqlite3.connect(folder / JOURNAL)) as journal, closing(sqlite3.connect(target)) as copy:
        journal.backup(copy)


def _opened(folder: Path) -> Journal:
    (folder / "apps").mkdir(parents=True)
    for name in APPS:
        (folder / "apps" / name).mkdir()
    return Journal.open(folder / JOURNAL, durable=False, retention=Retention(segment_steps=5))


class _Run:
    """Steps an arbiter, and does at once what it orders."""

    def __init__(self, journal: Journal) -> None:
        cluster = LAYOUT.cluster
        profile = Profile.load("default")
        layout = LAYOUT.encoded()
        journal.set_meta(secret="5a" * 32, seed=7, layout=layout, profile=profile.resolved(), policy="default")
        journal.set_meta(cluster=["box"], boot={"id": "of another run", "after_step": 0})
        self._journal = journal
        self.marks = Marks(journal, journal.path.with_name(MARK))
        self._arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=7)
        self._now = 0.0

    def come(self) -> None:
        """All apps come, and their jobs start."""
        for number, name in enumerate(APPS):
            app = _app(name, self._now)
            self._step([AppArrived(app=AppId(name), user=UserId(app.user), divides=False)], [app])
            self._step([_job(name)], [])
            if number % 2:
                self._journal.checkpoint(self._arbiter.save())

    def go(self) -> None:
        """Some apps end; another one's job reports."""
        for name in OVER:
            app = _app(name, 0.0)
            app.end("finished", "", self._now)
            self._step([JobFinished(job=JobId(f"{name}/1"))], [])
            self._step([AppFinished(app=AppId(name))], [app])
        self._journal.checkpoint(self._arbiter.save())
        for iterations in range(1, 8):
            self._step(
                [JobReported(job=JobId("cy/1"), iterations_done=10.0 * iterations, rate=1.0, at=Seconds(self._now))], []
            )

    def _step(self, events: Sequence[Event], apps: Sequence[App]) -> None:
        notes = [app.note() for app in apps]
        while events:
            self._now += LEASE_EPOCH_SECONDS
            decision = self._arbiter.step(Seconds(self._now), list(events))
            self._journal.append(Seconds(self._now), list(events), decision, at=BEGAN + self._now, notes=notes)
            self.marks.follow()
            notes = []
            events = self._follow(decision)

    def _follow(self, decision: Decision) -> list[Event]:
        gone: list[Event] = [
            Released(lease=order.lease, epoch=order.fence, gpus=tuple(order.leaving.tolist()))
            for order in (*decision.orders, *decision.transitions)
            if order.leaving.size
        ]
        leases = self._arbiter.state.leases.values()
        return gone + [
            Started(lease=lease.id, epoch=lease.epoch)  # type: ignore[arg-type]
            for lease in leases
            if lease.state is LeaseState.ORDERED
        ]


def _app(name: str, now: float) -> App:
    return App(
        name=name,
        user=f"user-{name}",
        weight=1.0,
        tuner="none",
        trials=1,
        least=1,
        most=1,
        submitted_at=BEGAN + now,
        arrived_at=now,
        node="box",
    )


def _job(name: str) -> JobAdded:
    return JobAdded(
        job=JobId(f"{name}/1"), app=AppId(name), least=1, most=1, iterations=1000.0, seconds_per_iteration=1.0
    )
