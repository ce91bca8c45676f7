"""From a search to its best checkpoint: the real service, workers with the helper, and the command that copies."""

import csv
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.serving_lab import FLOORS, ROOT, client, eventually, floors, supervisor

from eunomia.cli import run
from eunomia.errors import InputError

__all__ = ["floors"]
PATHS = os.pathsep.join(str(ROOT / floor) for floor in FLOORS)
METRIC = "val/score"
SCRIPT = """
import argparse, torch
from torch.utils.data import DataLoader, TensorDataset
from eunomia_appmaster import training
parser = argparse.ArgumentParser()
parser.add_argument("--peak", type=int, default=3)
peak = parser.parse_args().peak
run = training.attach()
loader = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=2)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = run.prepare(model, optimizer, loader)
for epoch in run.epochs(5):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    run.log({"train/epoch": epoch})
    run.log({"val/score": 10.0 * peak - abs(run.step - 4 * peak)})
"""
SEARCH = """
[app]
name = "peaks"
[job]
command = "python train.py {args}"
slots = 1
max_iterations = 20
env = { PYTHONPATH = "PATHS" }
[space]
peak = { type = "categorical", choices = [2, 3] }
[tuner]
metric = "val/score"
sampler = "grid"
""".replace("PATHS", PATHS)
ALONE = '[app]\nname = "alone"\n[job]\ncommand = "python train.py"\nslots = 1\n'


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_best_command_copies_the_best_checkpoint_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "peaks.toml").write_text(SEARCH)
    (tmp_path / "alone.toml").write_text(ALONE)
    monkeypatch.chdir(tmp_path)
    state = str(tmp_path / "state")
    forked = ("--stop-seconds", "2")  # five workers, whose imports of torch take more than all else
    with supervisor(tmp_path, launcher_options=forked) as made, client(made) as arbiter:
        found = ("best", "peaks", "--state-dir", state)
        peaks = arbiter.submit("peaks.toml")
        alone = arbiter.submit("alone.toml")
        code, _, err = told(capsys, "best", "alone", "--state-dir", state)
        assert (code, "an app must name the metric" in err) == (2, True), "at once, before its app master has reported"
        ended, single = peaks.wait("4m"), alone.wait("4m")
        assert (ended.state, single.state) == ("finished", "finished")
        best = ended.best_job
        assert best is not None
        assert (best.job, best.params, best.metric, best.step) == ("peaks/2", {"peak": 3}, 30.0, 12)
        assert (best.checkpoint_step, best.checkpoint_metric) == (12, 30.0)
        code, out, _ = told(capsys, *found)
        assert code == 0
        assert out.startswith("peaks/2   val/score 30.0000 at step 12   peak 3   checkpoint ")
        code, out, _ = told(capsys, *found, "--json")
        record = json.loads(out)
        assert record["best"] == json.loads(json.dumps(_facts(best)))
        assert (record.pop("schema"), record["app"], record["metric"]) == ("eunomia/best@1", "peaks", METRIC)
        code, out, _ = told(capsys, "submit", "peaks.toml", "--wait", "--json", "--state-dir", state)
        waited = json.loads(out)
        assert record.keys() <= waited.keys(), "submit --wait has the same record"
        assert waited["best"]["job"] == "peaks-2/2"
        assert (ended.best, peaks.best(), arbiter.best("peaks")) == (best, best, best)
        with pytest.raises(InputError, match="an app must name the metric"):
            arbiter.best("alone")
        check_screens(capsys, state)
        code, out, _ = told(capsys, *found, "--copy", "out")
        assert code == 0
        assert told(capsys, *found, "--copy", "out")[0] == 2, "it does not overwrite"
        code, _, err = told(capsys, "best", "alone", "--state-dir", state)
        assert code == 2
        assert "an app must name the metric" in err
        assert told(capsys, "best", "peak", "--state-dir", state)[0] == 2
    loaded = torch.load("out/best.pt", weights_only=False)
    assert (loaded["step"], loaded["metric"]) == (12, {"val/score": 30.0})
    torch.nn.Linear(1, 1).load_state_dict(loaded["objects"][0])
    assert tomllib.loads(Path("out/parameters.toml").read_text()) == {"peak": 3}
    rows = [row for row in csv.DictReader(Path("out/metrics.csv").read_text().splitlines()) if row["tag"] == METRIC]
    assert {int(row["step"]): float(row["value"]) for row in rows}[12] == 30.0
    assert told(capsys, "best", "peak", "--run", state)[0] == 2
    _, out, _ = told(capsys, "explain", "peaks", "--run", state)
    assert out.startswith("peaks   FINISHED after ")
    assert "Best       peaks/2   val/score 30.0000 at step 12   peak 3   checkpoint " in out
    _, out, _ = told(capsys, "explain", "peaks/1", "--run", state)
    assert "Outcome    finished at iteration 20   val/score 8.0000, best 20.0000   peak 2" in out
    code, out, _ = told(capsys, "best", "peaks", "--run", state)
    assert (code, out.split("   ")[:3]) == (0, ["peaks/2", "val/score 30.0000 at step 12", "peak 3"])


def check_screens(capsys: pytest.CaptureFixture[str], state: str) -> None:
    """``apps`` and ``explain`` say what came out of the ended apps."""
    place = ("--state-dir", state)
    _, out, _ = told(capsys, "apps", "--all", *place)
    rows = {line.split("   ")[0]: line for line in out.splitlines()}
    assert "2 of 2" in rows["peaks"]
    assert "30.000 peaks/2" in rows["peaks"]
    assert "1 of 1" in rows["alone"]
    _, out, _ = told(capsys, "apps", "--all", "-v", *place)
    assert "peaks/2: val/score 30.0000 at step 12: peak 3" in out.splitlines()
    listed = {app["app"]: app for app in json.loads(told(capsys, "apps", "--all", "--json", *place)[1])["apps"]}
    assert listed["peaks"]["trials"] == {"ended": 2, "all": 2}
    assert listed["peaks"]["best_trial"]["params"] == {"peak": 3}
    assert listed["alone"]["best_trial"] is None
    _, out, _ = told(capsys, "explain", "peaks", *place)
    assert "Best       peaks/2   val/score 30.0000 at step 12   peak 3   checkpoint " in out
    assert "Trials     2 of 2: 2 finished" in out
    _, out, _ = told(capsys, "explain", "peaks/1", *place)
    assert "Outcome    finished at iteration 20   val/score 8.0000, best 20.0000   peak 2" in out
    _, out, _ = told(capsys, "explain", "alone", *place)
    assert "Outcome    finished at iteration 20   " in out
    assert "train/epoch 4, val/score 22" in out
    _, out, _ = told(capsys, "explain", "alone", "--json", *place)
    assert json.loads(out)["outcome"]["job"]["logged"]["val/score"] == {"step": 20, "value": 22.0}
    _, out, _ = told(capsys, "explain", "peaks", "--json", *place)
    assert json.loads(out)["outcome"]["best"]["step"] == 12


@pytest.mark.slow
def test_the_python_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's Python, with a search of seconds in the place of the page's."""
    page = (ROOT / "docs" / "how-to" / "run-a-search.md").read_text()
    (example,) = re.findall(r"^```python service\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "digits-sha.toml").write_text(SEARCH.replace("peaks", "digits-sha"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EUNOMIA_STATE_DIR", str(tmp_path / "state"))
    names: dict[str, Any] = {"__name__": "example"}
    with supervisor(tmp_path):
        exec(compile(example, "run-a-search.md", "exec"), names)
    assert (names["ended"].state, names["best"].job) == ("finished", "digits-sha/2")
    torch.nn.Linear(1, 1).load_state_dict(names["model_state"])


def _facts(best: object) -> dict[str, object]:
    from eunomia_appmaster.explaining.best_jobs import BestJob, best_facts

    assert isinstance(best, BestJob)
    return best_facts(best)


@pytest.mark.slow
def test_a_misspelt_metric_is_named_with_the_tag_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = SCRIPT.replace("for epoch in run.epochs(5):", "for epoch in run.epochs(5):\n    wait(epoch)")
    wait = "import os, time\ndef wait(epoch):\n    while epoch == 4 and not os.path.exists('go'): time.sleep(0.05)\n"
    (tmp_path / "train.py").write_text(wait + script)
    (tmp_path / "typo.toml").write_text(SEARCH.replace('"peaks"', '"typo"').replace("val/score", "val/scor"))
    monkeypatch.chdir(tmp_path)
    state = ("--state-dir", str(tmp_path / "state"))
    logged = ', which logged train/epoch, val/score; did you mean "val/score"?'
    with supervisor(tmp_path) as made, client(made) as arbiter:
        app = arbiter.submit("typo.toml")
        so_far = re.compile(r'metric "val/scor" has not been logged so far by typo/[12]' + re.escape(logged))
        eventually(lambda: so_far.search(told(capsys, "best", "typo", *state)[1]), "the warning while it runs")
        eventually(lambda: so_far.search(told(capsys, "explain", "typo", *state)[1]), "the same in explain")
        (tmp_path / "go").touch()
        assert app.wait("4m").state == "finished", "it does not fail for it"
        never = f'metric "val/scor" was never logged by typo/2{logged}'
        assert told(capsys, "best", "typo", *state)[:2] == (1, f"typo: {never}\n")
        assert json.loads(told(capsys, "best", "typo", "--json", *state)[1])["warning"] == never
        for name in ("typo", "typo/1"):
            assert f"Metric     {never}" in told(capsys, "explain", name, *state)[1]
        code, out, err = told(capsys, "submit", "typo.toml", "--wait", *state)
        assert code == 0
        assert re.search(r"typo-2: finished after .*\n  " + re.escape(never.replace("typo/", "typo-2/")), out)
        assert err.count("warning: typo-2: ") <= 1


def test_the_best_command_works_for_running_searches_and_scripts_without_the_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
    (tmp_path / "train.py").write_bytes(worker.read_bytes())
    command = 'command = "python train.py {args} --plain"'
    text = SEARCH.replace('command = "python train.py {args}"', command).replace("val/score", "val/accuracy")
    text = text.replace("max_iterations = 20", "max_iterations = 100000")
    (tmp_path / "peaks.toml").write_text(text.replace("peak = ", "lr = ").replace("[2, 3]", "[0.1, 0.3]"))
    monkeypatch.chdir(tmp_path)
    found = ("best", "peaks", "--state-dir", str(tmp_path / "state"))
    with supervisor(tmp_path) as made, client(made) as arbiter:
        arbiter.submit("peaks.toml")
        eventually(lambda: arbiter.app("peaks").HasField("best"), "a metric")
        code, out, err = told(capsys, *found, "--copy", "out")
        assert code == 1
        assert "has no checkpoint that Eunomia knows, so no best.pt was copied" in err
        assert "no checkpoint of Eunomia's helper" in out
        assert {path.name for path in Path("out").iterdir()} == {"parameters.toml", "metrics.csv"}
        arbiter.cancel("peaks")
