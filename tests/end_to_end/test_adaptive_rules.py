"""Runs that change their batch size by Accordion's rule or the noise scale, live: announced, and forecast."""

import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eunomia.contract.events import Adapted
from eunomia.journal.journal import Step, read_journal
from eunomia_appmaster.app.outputs import STDOUT, newest_output

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "docs" / "examples" / "adapting"
_spec = importlib.util.spec_from_file_location("serving_lab", HERE.parent / "appmaster" / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
floors = lab.floors

SETTINGS = ("plugins.shockwave_utility.round_length=1s", "plugins.shockwave_forecast.largest_batch.digits=128")
STATIC = """
[app]
name = "static"
[job]
command = "python digits.py"
kind = "digits"
max_iterations = 3600
"""
EPOCH = re.compile(r"^epoch (\d+): batch size (\d+), step (\d+), accuracy ([0-9.]+)$", re.MULTILINE)


class Epoch(NamedTuple):
    """What the script prints at the end of an epoch."""

    batch_size: int
    step: int
    accuracy: float


def trained(folder: Path, texts: Mapping[str, str]) -> tuple[dict[str, list[Epoch]], list[Step]]:
    """Serve the apps to their ends; by app its epochs, and the arbiter's journal."""
    with (
        lab.supervisor(folder, policy="shockwave", settings=SETTINGS, slots=len(texts)) as serving,
        lab.client(serving) as client,
    ):
        lab.eventually(lambda: lab.ready(client))
        for name, text in texts.items():
            runnable = text.replace("python digits.py", f"{sys.executable} {EXAMPLES / 'digits.py'}")
            client.submit(folder / f"{name}.toml", text=runnable)
        ended = ("finished", "failed", "killed")
        lab.eventually(lambda: sum(app.state in ended for app in client.list(ended=True).apps) == len(texts))
        assert {app.state for app in client.list(ended=True).apps} == {"finished"}
        logs = {name: newest_output(serving.state_dir / "apps" / name / "1", STDOUT).read_text() for name in texts}
    with read_journal(folder / "state" / "journal.sqlite") as journal:
        steps = list(journal.steps())
    epochs = {
        name: [Epoch(int(size), int(step), float(right)) for _, size, step, right in EPOCH.findall(log)]
        for name, log in logs.items()
    }
    return epochs, steps


def announced(steps: list[Step], job: str) -> list[tuple[float, float]]:
    """The batch sizes that a job has announced to the arbiter, each with the steps that were done."""
    events = [event for step in steps for event in step.events if isinstance(event, Adapted) and event.job == job]
    return [(event.batch_size, event.iterations_done) for event in events]


def changes(epochs: list[Epoch]) -> list[tuple[float, float]]:
    """The batch sizes that a script has changed to, each with the steps that were done."""
    pairs = itertools.pairwise(epochs)
    return [(float(later.batch_size), float(now.step)) for now, later in pairs if later.batch_size != now.batch_size]


def forecasts(steps: list[Step], job: str) -> Iterator[list[tuple[float, float, bool]]]:
    """Each forecast of a job in the journal: by regime its batch size, epochs, and whether it has ended."""
    for step in steps:
        for record in step.decision.records:
            if record.table != "forecasts":
                continue
            columns: Any = record.columns
            rows = zip(columns["job"], columns["batch_size"], columns["epochs"], columns["finished"], strict=True)
            mine = [(size, epochs, bool(over)) for name, size, epochs, over in rows if name == job]
            if mine:
                yield mine


def regimes(epochs: list[Epoch]) -> list[tuple[float, float]]:
    """The batch sizes of a run, each with its epochs."""
    found = itertools.groupby(epoch.batch_size for epoch in epochs)
    return [(float(size), float(len(list(same)))) for size, same in found]


@pytest.mark.slow
def test_doublings_by_the_noise_scale_reach_the_forecast(tmp_path: Path) -> None:
    text = (EXAMPLES / "gns.toml").read_text().replace("--rule gns", "--rule gns --epochs 8")
    epochs, steps = trained(tmp_path, {"gns": re.sub(r"epochs +=.*", "epochs = 8", text)})
    assert [epoch.batch_size for epoch in epochs["gns"]][::7] == [16, 128]
    assert announced(steps, "gns/1") == changes(epochs["gns"])
    over = regimes(epochs["gns"])[:-1]
    ended = [[(size, number) for size, number, is_over in one if is_over] for one in forecasts(steps, "gns/1")]
    assert all(found == over[: len(found)] for found in ended)
    assert max(map(len, ended)) > 0  # how many are over in a round depends on the machine's speed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_rules_reach_the_accuracy_of_the_static_run(tmp_path: Path) -> None:
    texts = {name: (EXAMPLES / f"{name}.toml").read_text() for name in ("accordion", "gns")}
    epochs, steps = trained(tmp_path, {**texts, "static": STATIC})
    assert announced(steps, "static/1") == []
    for name in texts:
        assert len(epochs[name]) == len(epochs["static"]) == 40
        assert announced(steps, f"{name}/1") == changes(epochs[name]) != []
        over = [[(size, number) for size, number, ended in one if ended] for one in forecasts(steps, f"{name}/1")]
        assert over[-1] == regimes(epochs[name])[:-1]
        assert epochs[name][-1].accuracy > epochs["static"][-1].accuracy - 0.03
        assert epochs[name][-1].step < epochs["static"][-1].step
