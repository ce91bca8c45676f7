"""What a worker of a live gang sees of a change: its model, its rank, its random states, and what else it prepared."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.live_lab import LiveJob, live_job
from tests.appmaster.training_lab import Lab

from eunomia_appmaster.training import randomness

SCRIPT = """
import json, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from eunomia_appmaster import training
class Counter:
    count = 0
    def state_dict(self):
        return {"count": self.count}
    def load_state_dict(self, state):
        self.count = state["count"]
run = training.attach()
torch.manual_seed(3)
data = TensorDataset(torch.randn(40, 4).double(), torch.randn(40, 1).double())
own = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double()
names, calls = list(own.state_dict()), []
own.register_forward_hook(lambda *_: calls.append(run.step))
optimizer, counter = torch.optim.SGD(own.parameters(), lr=0.05), Counter()
model, optimizer, counter, loader = run.prepare(own, optimizer, counter, DataLoader(data, batch_size=8, shuffle=True))
first = model
rows = open("rows." + os.environ["EUNOMIA_CONTAINER_ID"].partition("@")[0], "a", buffering=1)
def total():
    return float(sum(each.grad.sum() for each in model.parameters())).hex()
for x, y in run.steps(loader, int(sys.argv[1])):
    optimizer.zero_grad()
    calls.clear()
    with model.no_sync():
        nn.functional.mse_loss(model(x), y).backward()
        alone = total()
    nn.functional.mse_loss(model(x), y).backward()
    row = {"step": run.step, "size": run.world_size, "rank": run.rank, "seed": run.seed, "alone": alone}
    row |= {"all": total(), "variables": [os.environ["RANK"], os.environ["WORLD_SIZE"]], "calls": len(calls)}
    row |= {"one object": model is first and model.module is own, "names": list(model.state_dict()) == names}
    row |= {"draw": float(torch.rand(())), "count": counter.count, "threads": torch.get_num_threads()}
    rows.write(json.dumps(row) + chr(10))
    counter.count += 1
    optimizer.step()
    time.sleep(0.03)
"""


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


def script(folder: Path) -> Path:
    path = folder / "script.py"
    path.write_text(SCRIPT)
    return path


EVALUATES = """
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from eunomia_appmaster import training
run = training.attach()
data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
own = nn.Linear(4, 1)
model, optimizer, loader = run.prepare(own, torch.optim.SGD(own.parameters(), lr=0.05), DataLoader(data, batch_size=8))
for epoch in run.epochs(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if epoch == 1:
        open("evaluates." + os.environ["EUNOMIA_CONTAINER_ID"].partition("@")[0], "w").close()
        with torch.no_grad():
            for _ in range(30):
                model(data.tensors[0])
                time.sleep(0.1)
"""


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"rows.{name}").read_text().splitlines()]


def order(job: LiveJob, name: str, **content: Any) -> None:
    connection = job.workers[name].connection
    assert connection is not None
    connection.sendall(json.dumps(content).encode() + b"\n")


def test_a_script_sees_one_model_its_rank_and_all_that_it_prepared_at_every_size(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, script(tmp_path), tmp_path / "fixed", "70") as job:
        job.start(1)
        assert job.finish() == {"c0": 0}, job.output()
    with live_job(lab, script(tmp_path), tmp_path / "run", "70") as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.order(2)
        assert job.settle()["size"] == 2
        order(job, "c1", order="threads", count=3)
        job.run_for(0.3)
        job.order(1, without="c0")
        assert job.settle()["size"] == 1
        assert set(job.finish().values()) == {0, 75}, job.output()
    old, new = (rows_of(tmp_path / "run", name) for name in ("c0", "c1"))
    assert {row["size"] for row in old} == {row["size"] for row in new} == {1, 2}
    for row in (*old, *new):
        assert row["one object"], row
        assert row["names"], row
        assert row["calls"] == 2, "the script's own hooks are called"
        assert row["variables"] == [str(row["rank"]), str(row["size"])]
        assert row["count"] == row["step"], "an object with a state is carried over"
    assert {row["rank"] for row in new if row["size"] == 2} == {1}
    assert {row["rank"] for row in new if row["size"] == 1} == {0}
    assert (new[0]["threads"], new[-1]["threads"]) == (1, 3), "orders are read before and after a change"
    together = [(mine, its) for mine in old for its in new if mine["step"] == its["step"]]
    assert together
    for mine, its in together:
        assert mine["alone"] != its["alone"], "in no_sync, each has the gradient of its own piece"
        assert mine["all"] == its["all"]
    plain = {row["step"]: row["draw"] for row in rows_of(tmp_path / "fixed", "c0")}
    assert all(row["draw"] == plain[row["step"]] for row in old), "a worker that stays keeps its random states"
    with randomness.seeded(0):
        randomness.seed_all(randomness.mix(new[0]["seed"], 1, new[0]["step"]))
        assert new[0]["draw"] == float(torch.rand(())), "those of a newcomer are as after a restart"


def test_a_gang_that_has_grown_suspends_together_and_goes_on_from_its_checkpoint(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, script(tmp_path), tmp_path / "run", "60") as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.order(2)
        assert job.settle()["size"] == 2
        order(job, "c1", order="suspend", deadline_seconds=30.0)
        assert job.finish() == {"c0": 75, "c1": 75}, job.output()
        (suspended, *others) = [each["step"] for each in job.said("suspended")]
        assert set(others) <= {suspended}
    last = [rows_of(tmp_path / "run", name)[-1] for name in ("c0", "c1")]
    assert [row["step"] for row in last] == [suspended - 1] * 2, "after one and the same step"
    with live_job(lab, script(tmp_path), tmp_path / "run", "60") as job:
        job.env["EUNOMIA_INCARNATION"] = "2"
        job.start(2)
        assert set(job.finish().values()) == {0}, job.output()
    rows = rows_of(tmp_path / "run", "c0")
    assert [row["step"] for row in rows] == list(range(60)), "no step is lost, none made twice"
    assert all(row["count"] == row["step"] for row in rows)


def test_a_newcomer_that_is_ordered_to_leave_before_it_has_joined_says_so(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, script(tmp_path), tmp_path / "run", "60") as job:
        job.repairs = False
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.order(3)
        job.kill("c2")  # so that the generation never forms
        job.until(lambda: job.workers["c1"].ready, 60.0, "the newcomer is not ready")
        order(job, "c1", order="suspend", deadline_seconds=30.0)
        job.until(lambda: job.workers["c1"].code is not None, 60.0, "the newcomer stays")
        assert job.said("leaving") == [{"generation": 0, "step": 0}]
        job.order(1)
        assert job.finish()["c0"] == 0, job.output()


@pytest.mark.slow
def test_a_job_stands_still_from_the_end_of_its_last_whole_step_although_a_loss_is_seen_later(
    lab: Lab, tmp_path: Path
) -> None:
    with live_job(lab, script(tmp_path), tmp_path / "run", "150") as job:
        job.start(2)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.run_for(0.5)
        job.kill("c1", signal.SIGSTOP)
        job.run_for(1.5)
        job.kill("c1")
        job.until(lambda: job.newest.generation, 60.0, "its loss is not seen")
        made = job.settle()
        assert job.finish()["c0"] == 0, job.output()
    assert made["size"] == 1
    assert 1.3 < made["pause_seconds"] < 4.0, "its peer made no step while it was stopped"
    assert not made["at_least"]
    assert made["join_seconds"] == 0.0


@pytest.mark.slow
def test_a_job_that_loses_a_worker_in_an_evaluation_stands_still_at_least_from_the_next_boundary(
    lab: Lab, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(EVALUATES)
    with live_job(lab, path, tmp_path / "run") as job:
        job.start(2)
        job.until(lambda: (tmp_path / "run" / "evaluates.c1").exists(), 60.0, "it does not evaluate")
        job.kill("c1")
        job.until(lambda: job.newest.generation, 60.0, "its loss is not seen")
        made = job.settle()
        assert job.finish()["c0"] == 0, job.output()
    assert (made["size"], made["at_least"]) == (1, True)
    assert made["pause_seconds"] < 1.5, "the evaluation goes on"
