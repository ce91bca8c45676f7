"""A job of real workers is retuned from 1 CPU to 2 and back while it trains: no restart, and the same samples."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import Retuned
from eunomia.journal.journal import read_journal
from eunomia_appmaster.journal_check import check_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) != 2, reason="the machine's two slots must have one core each"),
]
HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("serving_lab", HERE.parent / "appmaster" / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
floors = lab.floors

PLUGIN = '''
"""Packs jobs; a running job has as many CPUs as a file says."""

import dataclasses
from pathlib import Path

import numpy as np

from eunomia import Allocation, Contract, Feature, Menus, Offer, Placement, Retunes, Snapshot, Stage, hookimpl
from eunomia_plugins.placement.packed import Packed


class Swinging:
    """Retunes each round."""

    name = "swinging"
    api = 1
    contracts = {Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS}), gives=frozenset({Feature.RETUNES}))}

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Placement:
        cpus = float(Path(__file__).with_name("cpus").read_text())
        placed = Packed().eunomia_placement(snapshot, menus, offer, allocation)
        named = set(allocation.claims.rows.tolist())
        jobs = [job for job in np.flatnonzero(snapshot.jobs.state == 2).tolist() if job not in named]
        return dataclasses.replace(
            placed,
            cpus=np.full(placed.gpus.size, cpus),
            retunes=Retunes(jobs=np.array(jobs, np.int32), cpus=np.full(len(jobs), cpus)) if jobs else None,
        )
'''
STEPS = 128
APP = f"""
[app]
name = "swing"
[job]
command = "{sys.executable} {HERE / "retuning_script.py"} 0.15 {STEPS}"
slots = 1
max_iterations = {STEPS}
"""


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "swinging.py").write_text(PLUGIN)
    (tmp_path / "cpus").write_text("1")
    monkeypatch.setenv("EUNOMIA_PLUGIN_PATH", str(tmp_path / "swinging.py"))
    settings = ("stages.placement=swinging", "rounds.every=1s", "rounds.scope=all")
    with lab.supervisor(tmp_path, policy="fifo", settings=settings) as made:
        yield made


def noted(folder: Path) -> list[list[int]]:
    """By step: its number, threads, process and samples."""
    file = folder / "samples.0"
    return [list(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []


def bound(folder: Path) -> list[set[int]]:
    """By process of the job: the numbers of cores that its threads may use."""
    found = []
    for pid in [int(pid) for file in folder.glob("pids.*") for pid in file.read_text().split()]:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        found.append({len(os.sched_getaffinity(thread)) for thread in threads})
    return found


def retunes(steps: list[Any]) -> list[Any]:
    orders = [order for step in steps for order in (*step.decision.transitions, *step.decision.orders)]
    return [order for order in orders if order.kind is TransitionKind.RETUNE]


def test_a_training_job_gets_two_cpus_and_then_one_again_without_a_restart(tmp_path: Path, serving: Any) -> None:
    folder, waits = tmp_path / "state" / "apps" / "swing" / "1", []
    with lab.client(serving) as client:
        lab.eventually(lambda: lab.ready(client))
        client.submit(tmp_path / "swing.toml", text=APP)
        lab.eventually(lambda: len(noted(folder)) > 2)
        for cpus in (2, 1, 2, 1):  # at first it has its share of the machine, one CPU, and is bound to nothing
            (tmp_path / "cpus").write_text(str(cpus))
            since = time.monotonic()
            lab.eventually(lambda cpus=cpus: noted(folder)[-1][1] == cpus, f"the worker has {cpus} threads", 20.0)
            lab.eventually(lambda cpus=cpus: bound(folder) == [{cpus}, {cpus}], f"both processes may use {cpus}")
            waits.append(round(time.monotonic() - since, 2))
        lab.eventually(lambda: any(app.state == "finished" for app in client.list().apps), "swing is done")
    print("seconds from the wish to the thread count and the cores:", waits)
    steps = noted(folder)
    assert [row[0] for row in steps] == list(range(1, STEPS + 1))  # no step twice: nothing went back to a checkpoint
    assert len({row[2] for row in steps}) == 1
    threads = [row[1] for row in steps]
    turns = [threads[at] for at in range(1, STEPS) if threads[at] != threads[at - 1]]
    assert turns[-4:] == [2, 1, 2, 1]
    assert [row[3:] for row in steps] == plain(tmp_path)
    journal = list(read_journal(tmp_path / "state" / "journal.sqlite").steps())
    made = retunes(journal)
    assert [order.cpus.sum() for order in made] == [2.0, 1.0, 2.0, 1.0]
    confirmed = {event.epoch: event for step in journal for event in step.events if isinstance(event, Retuned)}
    assert [sum(event.cpus) for event in confirmed.values()] == [2.0, 1.0, 2.0, 1.0]
    assert len({order.lease for order in made} | {event.lease for event in confirmed.values()}) == 1
    assert check_folder(tmp_path / "state").findings == []


def plain(tmp_path: Path) -> list[list[int]]:
    """The samples of the same run without an arbiter."""
    folder = tmp_path / "plain"
    folder.mkdir()
    command = [sys.executable, str(HERE / "retuning_script.py"), "0", str(STEPS)]
    subprocess.run(command, env={**os.environ, "EUNOMIA_RUN_DIR": str(folder)}, check=True, timeout=120)
    return [row[3:] for row in noted(folder)]
