"""A job of real workers is measured at another size, goes back, and leaves its rates to the next job of its kind."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eunomia.contract.decisions import TransitionKind
from eunomia.contract.events import RateMeasured
from eunomia.journal.journal import read_journal
from eunomia_appmaster.journal_check import check_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("serving_lab", HERE.parent / "appmaster" / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
floors = lab.floors

STEPS = 240
APP = f"""
[app]
name = "NAME"
[job]
command = "{sys.executable} {HERE / "measured_script.py"} 0.008 {STEPS}"
slots = {{ min = 1, max = 2 }}
max_iterations = {STEPS}
kind = "steady"
"""
PROBING = (
    "stages.elasticity=throughput",
    "plugins.throughput.probe=true",
    "plugins.throughput.probe_iterations=30",
    "plugins.throughput.probe_every=3s",
)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Any]:
    with lab.supervisor(tmp_path, policy="fifo", settings=PROBING) as made:
        yield made


def ran(folder: Path) -> dict[int, set[int]]:
    """By step: the samples that the workers of a job took."""
    seen: dict[int, set[int]] = {}
    for file in sorted(folder.glob("samples.*")):
        for line in file.read_text().splitlines():
            step, _, _, *samples = map(int, line.split())
            seen.setdefault(step, set()).update(samples)
    return seen


def rates_of(steps: list[Any], job: str) -> dict[int, float]:
    """By number of slots: the last rate of a job in the journal, in iterations a second."""
    events = [event for step in steps for event in step.events if isinstance(event, RateMeasured)]
    return {event.gpus: event.rate for event in events if event.job == job}


def finished(client: Any, name: str) -> bool:
    return any(app.app == name and app.state == "finished" for app in client.list().apps)


def test_a_job_is_measured_and_the_next_of_its_kind_is_not(tmp_path: Path, serving: Any) -> None:
    said = []
    with lab.client(serving) as client:
        lab.eventually(lambda: lab.ready(client))
        client.submit(tmp_path / "one.toml", text=APP.replace("NAME", "one"))
        lab.eventually(
            lambda: said.extend(one.text for one in client.explanations("one")) or "measures" in " ".join(said)
        )
        lab.eventually(lambda: finished(client, "one"), "one is done", 240.0)
        client.submit(tmp_path / "two.toml", text=APP.replace("NAME", "two"))
        lab.eventually(lambda: finished(client, "two"), "two is done", 240.0)
        for slots in (1, 2):  # the same script, measured apart: a kind and a size of its own
            text = APP.replace("NAME", f"apart{slots}").replace('"steady"', f'"apart{slots}"')
            client.submit(
                tmp_path / f"apart{slots}.toml", text=text.replace("min = 1, max = 2", f"min = {slots}, max = {slots}")
            )
            lab.eventually(lambda slots=slots: finished(client, f"apart{slots}"), f"apart{slots} is done", 240.0)
    steps = list(read_journal(tmp_path / "state" / "journal.sqlite").steps())
    orders = [order for step in steps for order in (*step.decision.transitions, *step.decision.orders)]
    there, back = [order for order in orders if order.kind is TransitionKind.PROBE]
    assert there.job == back.job == "one/1"  # the second job has the rates of its kind
    assert there.probe is not None
    assert there.probe.gpus.size == 1
    assert there.gpus.tolist() == back.gpus.tolist() == [0, 1]
    rates = {event.gpus for step in steps for event in step.events if isinstance(event, RateMeasured)}
    assert rates == {1, 2}
    probed = rates_of(steps, "one/1")
    apart = {slots: rates_of(steps, f"apart{slots}/1")[slots] for slots in (1, 2)}
    for slots in (1, 2):
        off = probed[slots] / apart[slots] - 1.0
        print(f"{slots} slots: {probed[slots]:.3f} iterations/s when probed, {apart[slots]:.3f} apart: {off:+.1%}")
    assert "It measures its rate over 30 iterations on 1 slot of cpu" in " ".join(said)
    one, two = (ran(tmp_path / "state" / "apps" / name / "1") for name in ("one", "two"))
    assert one == two
    assert sorted(one) == list(range(1, STEPS + 1))
    report = check_folder(tmp_path / "state")
    assert report.findings == []
