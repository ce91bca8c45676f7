"""A job that announces batch sizes, an input-bound job and a search, together under stages of several families."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import Adapted, Retuned
from eunomia.journal.journal import Step, read_journal
from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.waits import waits_of
from eunomia_testbed.workloads.programs import program_named

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) != 2, reason="the machine's two slots must have one core each"),
]
HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("serving_lab", HERE.parent / "appmaster" / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
floors = lab.floors

MIXED = ('stages.refiners=["sensitivity"]', "stages.placement=synergy_tune", "rounds.every=2s")
"""On top of ``las``: Tiresias' order, Synergy's demands by the rates of a kind, and its placement, which retunes."""
RATES = """
kind = "reads"
[[point]]
gpus = 1
gpu_type = "cpu"
locality = "island"
cpus = 1
rate = 10
[[point]]
gpus = 1
gpu_type = "cpu"
locality = "island"
cpus = 2
rate = 20
"""
INPUT_BOUND = f"""
[app]
name = "reads"
[job]
command = "python {HERE / "input_bound_script.py"} 0.1 600"
kind = "reads"
slots = 1
max_iterations = 600
"""
_BY_NOISE = program_named("mlp").command(batch_size=16, mode="gns", largest_batch=128, epochs=5, options={"width": 64})
ADAPTING = f"""
[app]
name = "adapts"
[job]
command = "{_BY_NOISE}"
slots = 1
epochs = 5
samples_per_epoch = 1437
batch_size = 16
adapts = "gns"
max_iterations = 450
"""
SEARCH = f"""
[app]
name = "search"
[job]
command = "{program_named("cnn").command(batch_size=32, options={"channels": 4})} {{args}}"
slots = 1
max_iterations = 90
[space]
lr = {{ type = "float", low = 0.005, high = 0.1, log = true }}
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
trials = 4
min_iterations = 45
reduction_factor = 2
seed = 7
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Any]:
    with lab.supervisor(tmp_path, policy="las", settings=MIXED, launcher_options=("--stop-seconds", "2")) as made:
        yield made


def ended(client: Any) -> dict[str, str]:
    return {app.app: app.state for app in client.list(ended=True).apps if app.state in ("finished", "failed", "killed")}


def steps_of(folder: Path) -> list[Step]:
    with read_journal(folder / "state" / "journal.sqlite") as journal:
        return list(journal.steps())


def cpus_of(folder: Path) -> list[float]:
    """Return the CPUs of each order that starts or retunes the input-bound job."""
    orders = [order for step in steps_of(folder) for order in (*step.decision.transitions, *step.decision.orders)]
    kinds = (TransitionKind.START, TransitionKind.RETUNE)
    return [float(order.cpus.sum()) for order in orders if order.kind in kinds and order.job == "reads/1"]


def test_all_finish_each_wait_has_its_reason_and_cpus_are_retuned(tmp_path: Path, serving: Any) -> None:
    with lab.client(serving) as client:
        lab.eventually(lambda: lab.ready(client), "the arbiter is ready", 120.0)
        (tmp_path / "rates.toml").write_text(RATES)
        client.import_profile(tmp_path / "rates.toml")
        client.submit(tmp_path / "reads.toml", text=INPUT_BOUND)
        lab.eventually(lambda: cpus_of(tmp_path) == [2.0], "it has more CPUs than its share", 120.0)
        for text in (ADAPTING, SEARCH):
            client.submit(tmp_path / "app.toml", text=text)
        lab.eventually(lambda: len(ended(client)) == 3, "all have ended", 480.0)
        assert set(ended(client).values()) == {"finished"}
    steps = steps_of(tmp_path)
    adapted = [event for step in steps for event in step.events if isinstance(event, Adapted)]
    assert {event.job for event in adapted} == {"adapts/1"}
    assert adapted[0].batch_size == 32
    assert any(isinstance(event, Retuned) for step in steps for event in step.events)
    assert cpus_of(tmp_path)[:2] == [2.0, 1.0]
    record = LiveRecord(tmp_path / "state")
    record.poll()
    waits = waits_of(record.spells.spells)
    assert {wait.job.partition("/")[0] for wait in waits} >= {"search"}
    assert all(wait.reason for wait in waits)
    assert check_folder(tmp_path / "state").findings == []
