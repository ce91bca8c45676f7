"""An app master whose trials are suggested one after another, as results come."""

import json
import os
import signal
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from eunomia_appmaster.protocol import arbiter_pb2 as pb

pytest.importorskip("optuna")
spec = util.spec_from_file_location("master_lab", Path(__file__).parent / "master_lab.py")
assert spec is not None
assert spec.loader is not None
labs: Any = util.module_from_spec(spec)
spec.loader.exec_module(labs)
eventually = labs.eventually

LATE = """
[app]
name = "ana"
[job]
command = "python tiny_worker.py {args}"
max_iterations = 40
[space]
lr = { type = "float", low = 0.1, high = 0.9 }
[tuner]
kind = "none"
metric = "val/accuracy"
trials = 5
sampler = "tpe"
startup_trials = 2
max_concurrent_trials = 2
seed = 3
"""


def test_trials_follow_results_and_a_restarted_app_master_suggests_the_same_ones(tmp_path: Path) -> None:
    with labs.master_lab(tmp_path) as lab:
        lab.submit("ana", LATE)
        eventually(lambda: len(lab.arbiter.reports("jobs_added")) == 2, "two trials")
        lab.arbiter.grant("ana", 1, 0, 1)
        eventually(lambda: len(lab.arbiter.reports("jobs_added")) >= 3, "the third")
        os.kill(eventually(lambda: lab.arbiter.masters["ana"].pid, "its pid"), signal.SIGKILL)
        eventually(lambda: lab.arbiter.finished, "the end")
        (end,) = lab.arbiter.finished
        assert end.final_application_status == pb.SUCCEEDED
        rows = lab.trials("ana")
        assert [(row["job"], row["state"]) for row in rows] == [(f"ana/{n}", "finished") for n in range(1, 6)]
        drawn = [json.loads(row["parameters"])["lr"] for row in rows]
        assert len(set(drawn)) == 5 and all(0.1 <= lr <= 0.9 for lr in drawn)
        assert json.loads(end.standing.best_params_json)["lr"] in drawn
