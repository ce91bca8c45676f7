"""An app whose trials a driver outside orders, on a real arbiter and launcher."""

import os
import signal
from pathlib import Path

import pytest
from tests.appmaster.serving_lab import client, eventually, floors, live, ready, supervisor, tiny_app

from eunomia_appmaster.app.trials_file import read_trials_file
from eunomia_hpo_adapters.trial_orders import End, Pause, Resume, Start, Stop, TrialOrder

__all__ = ["floors"]
TUNER = '[tuner]\nkind = "external"\norders = "{orders}"\nmetric = "val/accuracy"\n'


@pytest.mark.slow
def test_trials_start_pause_resume_and_end_as_ordered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    orders = tmp_path / "orders.jsonl"
    file = tiny_app(tmp_path, "ordered", iterations=120, seconds=0.02, more=" {args}")
    file.write_text(file.read_text() + TUNER.format(orders=orders))

    def order(*given: TrialOrder) -> None:
        with orders.open("a") as lines:
            lines.writelines(one.line() for one in given)

    def states() -> dict[str, str]:
        rows = read_trials_file(tmp_path / "state" / "apps" / "ordered")
        return {row["job"].partition("/")[2]: row["state"] for row in rows}

    with supervisor(tmp_path) as served, client(served) as arbiter:
        eventually(lambda: ready(arbiter), "the arbiter")
        app = arbiter.submit(file)
        order(Start(trial=1, parameters={"lr": 0.25}), Start(trial=2, parameters={"lr": 0.5}))
        eventually(lambda: len(live(served, masters=False)) == 2, "both trials run")
        order(Pause(trial=1), Stop(trial=2))
        eventually(lambda: states() == {"1": "paused", "2": "stopped"}, "the first is paused, the second stopped")
        assert arbiter.app("ordered").slots == 0 and not live(served, masters=False)
        ((_, master),) = live(served, masters=True)
        os.kill(master, signal.SIGKILL)
        with orders.open("a") as lines:
            lines.write("dance\n")
        order(Resume(trial=1), Start(trial=3, parameters={"lr": 0.3}))
        eventually(lambda: states() == {"1": "finished", "2": "stopped", "3": "finished"}, "the others have finished")
        assert arbiter.app("ordered").state != "finished", "the app waits for its driver"
        order(End())
        assert app.wait("60s").state == "finished"
        ended = arbiter.app("ordered")
        assert ended.standing.trials == 3 and ended.standing.best_job == "ordered/3"
        (notice,) = ended.standing.notices
        assert "an order must be an object" in notice and f"{orders}, line 5" in notice
    rows = read_trials_file(tmp_path / "state" / "apps" / "ordered")
    assert [row["iterations"] for row in rows][::2] == ["120", "120"] and int(rows[0]["incarnations"]) == 2
