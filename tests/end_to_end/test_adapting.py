"""The jobs of docs/examples/adapting double their batch sizes under Shockwave, with real processes."""

import dataclasses
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.events import Adapted
from eunomia.journal.journal import Step, read_journal
from eunomia.platform.profiles import Profile
from eunomia.units import Stage
from eunomia_appmaster.service.layout import Layout
from eunomia_testbed.live_runs.leaving import leave_served
from eunomia_testbed.results import ResultFolder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "docs" / "examples" / "adapting"
_spec = importlib.util.spec_from_file_location("serving_lab", HERE.parent / "appmaster" / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab)
floors = lab.floors

SETTINGS = (
    "plugins.shockwave_utility.round_length=4s",
    "plugins.shockwave_utility.window=12",
    "plugins.shockwave_forecast.growth=4",
)
FIXED = """
[app]
name = "NAME"
[job]
command = "python train.py --epochs 30 --double-at"
max_iterations = 960
"""
"""A job that keeps its batch size, for about 35 seconds."""


def text_of(name: str) -> str:
    """An example's app file, whose script is found from any folder."""
    return runnable((EXAMPLES / f"{name}.toml").read_text())


def runnable(text: str) -> str:
    return text.replace("python train.py", f"{sys.executable} {EXAMPLES / 'train.py'}")


def submit(client: Any, folder: Path, name: str, text: str, *, runs: bool = False) -> None:
    """Submit an app; ``runs``: and wait until its job does."""
    client.submit(folder / f"{name}.toml", text=text)
    if runs:
        lab.eventually(lambda: any(one.state == "running" for one in client.explanations(name)), f"{name} runs")


def journal_of(folder: Path) -> list[Step]:
    with read_journal(folder / "state" / "journal.sqlite") as journal:
        return list(journal.steps())


def adapted(steps: list[Step]) -> list[Adapted]:
    return [event for step in steps for event in step.events if isinstance(event, Adapted)]


def ended(client: Any, *names: str) -> bool:
    return {app.app for app in client.list(ended=True).apps if app.state == "finished"} >= set(names)


def is_explained(client: Any, name: str, pattern: str) -> bool:
    """Whether the explanation of an app's job holds the pattern."""
    return any(re.search(pattern, one.text) for one in client.explanations(name))


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Any]:
    with lab.supervisor(tmp_path, policy="shockwave_linear", settings=SETTINGS, slots=1) as made:
        yield made


def test_forecasts_and_plans_follow_announcements(tmp_path: Path, serving: Any) -> None:
    with lab.client(serving) as client:
        lab.eventually(lambda: lab.ready(client))
        submit(client, tmp_path, "steady", text_of("steady"), runs=True)
        submit(client, tmp_path, "quick", text_of("quick"))
        waits = lab.eventually(lambda: [one for one in client.explanations("quick") if one.reason == "planned_later"])
        assert waits[0].plugin == "shockwave"
        assert waits[0].starts_in_seconds
        assert "in the plan" in waits[0].text
        assert "8.0 epochs at batch size 32, then 8.0 epochs at batch size 64, then 8.0" in waits[0].text
        assert waits[0].numbers["forecast_regimes_to_come"] == 2.0
        lab.eventually(lambda: is_explained(client, "steady", "at batch size 32, then 8.0.* s of running left"))
        lab.eventually(lambda: is_explained(client, "steady", "forecast is [0-9.]+ epochs at batch size 64, then 8.0"))
        lab.eventually(lambda: ended(client, "steady", "quick"), "both are done")
    seen = adapted(journal_of(tmp_path))
    for job, wanted in {
        "steady/1": [(64.0, 256.0), (128.0, 384.0)],
        "quick/1": [(64.0, 128.0), (128.0, 144.0)],
    }.items():
        assert [(event.batch_size, event.iterations_done) for event in seen if event.job == job] == wanted
    check_page(tmp_path)


def check_page(folder: Path) -> None:
    """Forecasts, plans, waits and adaptations are in the tables and on the page."""
    results = ResultFolder.create(folder / "out")
    page = leave_served(folder / "state", results, ("eunomia", "serve"), "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z")
    assert page is not None
    assert "shockwave_forecast" in page.read_text()
    forecasts = pl.read_parquet(results.path / "plugins" / "shockwave_forecast.parquet")
    mine = forecasts.filter(pl.col("job") == "steady/1", ~pl.col("finished"))
    presents = mine.group_by("round", maintain_order=True).agg(pl.col("batch_size").first())["batch_size"]
    assert list(dict.fromkeys(presents.to_list())) == [32.0, 64.0, 128.0]
    unknown = mine["left_seconds"].null_count()  # until the first rate; those at new batch sizes are estimated
    assert 0 < unknown <= 3
    assert not mine["left_seconds"].is_infinite().any()
    assert pl.read_parquet(results.path / "plugins" / "shockwave.parquet").height >= 4
    waits = pl.read_parquet(results.path / "waits.parquet")
    assert ("quick", "planned_later", "shockwave") in waits.select("job", "reason", "plugin").rows()
    events = pl.read_parquet(results.path / "events.parquet")
    texts = events.filter(pl.col("kind") == "job.adapted", pl.col("app") == "steady")["text"].to_list()
    assert texts == ["steady goes on with batch size 64 at 256", "steady goes on with batch size 128 at 384"]


def test_two_adaptations_between_two_rounds_are_both_recorded(tmp_path: Path) -> None:
    text = text_of("steady").replace("--epochs 24 --double-at 8 16", "--epochs 200 --double-at 2 3 --samples 32")
    text = text.replace("epochs            = 24", "epochs = 200").replace("= 1024", "= 32")
    lazy = ("plugins.shockwave_utility.round_length=60s", *SETTINGS[1:], "plugins.shockwave.mode=lazy")
    with (
        lab.supervisor(tmp_path, policy="shockwave_linear", settings=lazy, slots=1) as serving,
        lab.client(serving) as client,
    ):
        lab.eventually(lambda: lab.ready(client))
        submit(client, tmp_path, "steady", text)
        lab.eventually(lambda: len(adapted(journal_of(tmp_path))) == 2)
        submit(client, tmp_path, "quick", text_of("quick"))  # its arrival causes a round
        lab.eventually(lambda: is_explained(client, "steady", "forecast is [0-9.]+ epochs at batch size 128"))
    steps = journal_of(tmp_path)
    assert [(event.batch_size, event.iterations_done) for event in adapted(steps)] == [(64.0, 2.0), (128.0, 3.0)]
    numbers = [step.number for step in steps if adapted([step])]
    assert not any(step.decision.causes for step in steps if numbers[0] <= step.number < numbers[-1])
    forecasts = [record.columns for step in steps for record in step.decision.records if record.table == "forecasts"]
    seen = [columns for columns in forecasts if columns["finished"][0]]
    assert seen[0]["batch_size"][:3] == [32.0, 64.0, 128.0]
    assert seen[0]["epochs"][:2] == [2.0, 1.0]
    assert seen[0]["finished"][:3] == [True, True, False]


@dataclasses.dataclass(frozen=True)
class Served:
    """What the arbiter has served after a step."""

    step: Step
    plan: Any
    planned: bool
    """Whether the step has made a plan."""

    @property
    def row(self) -> int:
        """The row that is next."""
        return int(self.plan.row)


def served(folder: Path) -> list[Served]:
    """The steps of a journal from the first plan for two jobs on."""
    with read_journal(folder / "state" / "journal.sqlite") as journal:
        meta, steps = journal.meta, list(journal.steps())
    cluster = Layout.decoded(meta["layout"]).cluster
    stages = Profile.parse(str(meta["profile"]), name="shockwave_linear", place="journal").stages(cluster)
    arbiter = Arbiter(cluster, stages, Profile.fallback().stages(cluster), seed=int(meta["seed"]))
    found = []
    for step in steps:
        arbiter.replay(step.now, step.events, step.decision)
        plan: Any = arbiter.state.stages.memos.get(("shockwave", Stage.ALLOCATION))
        if plan is not None and len(plan.window.turns) == 2:
            found.append(Served(step, plan, any(record.table == "shockwave" for record in step.decision.records)))
    return found


def test_a_restarted_arbiter_continues_with_the_next_row_of_its_plan(tmp_path: Path) -> None:
    settings = (
        "plugins.shockwave_utility.round_length=3s",
        "plugins.shockwave_utility.window=6",
        "plugins.shockwave.log_points=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]",  # jobs advance together: both have rounds
    )
    with (
        lab.supervisor(tmp_path, policy="shockwave_linear", settings=settings, slots=1) as serving,
        lab.client(serving) as client,
    ):
        lab.eventually(lambda: lab.ready(client))
        submit(client, tmp_path, "one", runnable(FIXED.replace("NAME", "one")), runs=True)
        submit(client, tmp_path, "two", runnable(FIXED.replace("NAME", "two")))
        plans = lab.eventually(lambda: [one for one in served(tmp_path) if one.row == 1])
        before = plans[-1].step.number
        os.kill(serving.arbiter.pid, signal.SIGKILL)
        lab.eventually(lambda: served(tmp_path)[-1].row >= 5, "four more rows are served")
    steps = served(tmp_path)
    assert [one.planned for one in steps] == [True] + [False] * (len(steps) - 1)
    assert steps[0].plan.window.turns == {"one/1": (0, 3), "two/1": (3, 6)}
    after = {one.row: one for one in steps if one.step.number > before}
    assert [row for row in after if row > 1] == [2, 3, 4, 5]  # each once and in order
    dues = [after[row].plan.due for row in (2, 3, 4, 5)]
    assert [due - dues[0] for due in dues] == pytest.approx([0.0, 3.0, 6.0, 9.0])
    begun = [order.job for one in steps for order in one.step.decision.transitions if order.kind.effect.starts]
    assert begun == ["two/1"]
