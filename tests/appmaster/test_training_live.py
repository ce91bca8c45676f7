"""Gangs that grow and shrink without a restart: real workers, a real store, and a coordinator in the place of the app
master."""

import itertools
import json
import random
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.appmaster.live_lab import LiveJob, live_job
from tests.appmaster.training_lab import Job, Lab

from eunomia_appmaster.node.stall_watch import Phase

SCRIPT = Path(__file__).with_name("live_training_script.py")
SAMPLES, BATCH = 50, 8


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


@pytest.fixture(scope="module")
def fixed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the final state of a run of one worker with given arguments."""
    found: dict[tuple[str, ...], Any] = {}

    def final(*args: str) -> Any:
        if args not in found:
            with live_job(lab, SCRIPT, tmp_path_factory.mktemp("fixed"), *args) as job:
                job.start(1)
                assert job.finish() == {"c0": 0}, job.output()
                found[args] = torch.load(job.folder / "final.pt", weights_only=True)
        return found[args]

    return final


def started(job: LiveJob, workers: int) -> None:
    job.start(workers)
    job.until(lambda: job.confirmed, 60.0, "it did not start")


def rows_by_step(job: LiveJob) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(job.folder.glob("steps.*")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["step"]].append(row)
    return dict(sorted(rows.items()))


def checked(job: LiveJob, steps: int, *, samples: int = SAMPLES, batch: int = BATCH) -> dict[int, list[dict[str, Any]]]:
    """Check that all workers were equal after each step, and that each sample of an epoch was seen once."""
    rows = rows_by_step(job)
    assert list(rows) == list(range(1, steps + 1))
    for step, of_step in rows.items():
        assert len({row["hash"] for row in of_step}) == 1, (step, of_step)
        assert len({row["size"] for row in of_step}) == 1, (step, of_step)
        assert len(of_step) == of_step[0]["size"] or step_died(job), (step, of_step)
    of_epoch = -(-samples // batch)
    by_step = [sorted(itertools.chain(*(row["seen"] for row in of_step))) for of_step in rows.values()]
    for first in range(0, steps - steps % of_epoch, of_epoch):
        seen = sorted(itertools.chain(*by_step[first : first + of_epoch]))
        if not step_died(job):
            assert seen == list(range(samples)), first
    return rows


def step_died(job: LiveJob) -> bool:
    return any(each.code not in (0, 75) for each in job.workers.values())


def deviation(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float(((one[name] - other[name]).abs() / (other[name].abs() + 1e-3)).max()) for name in one)


def finished(job: LiveJob) -> Any:
    codes = job.finish()
    assert all(code in (0, 75, -9) for code in codes.values()), job.output()
    return torch.load(job.folder / "final.pt", weights_only=True)


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("--loaders", "2"), marks=pytest.mark.slow),
        pytest.param(("--compile",), marks=pytest.mark.slow, id="compiled"),
        pytest.param(("--unused", "--groups"), marks=pytest.mark.slow, id="groups"),
        pytest.param(("--micro-batch-size", "3"), marks=pytest.mark.slow, id="pieces"),
        # wide enough that newcomers read tensors in the memory of their peers
        ("--micro-batches", "2", "--adam", "--scaler", "--width", "120"),
    ],
)
def test_a_gang_that_grows_and_shrinks_trains_as_one_of_fixed_size(
    lab: Lab, fixed: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    args = ("--steps", "60", *args)
    with live_job(lab, SCRIPT, tmp_path / "run", *args, "--seconds", "0.02") as job:
        started(job, 1)
        for size in (2, 4, 3, 1, 2):
            job.order(size)
            assert job.settle()["size"] == size
        final = finished(job)
        rows = checked(job, 60)
    assert {of_step[0]["size"] for of_step in rows.values()} == {1, 2, 3, 4}
    assert deviation(final["model"], fixed(*args)["model"]) < 1e-10
    assert deviation(final["averaged"], fixed(*args)["averaged"]) < 1e-10
    assert final["scaler"] == fixed(*args)["scaler"]


@pytest.mark.slow
def test_the_same_script_trains_to_the_same_end_in_a_gang_of_fixed_size(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    job = Job(lab, SCRIPT, tmp_path / "run", args=("--steps", "60"))
    job.env = {"EUNOMIA_CONTAINER_ID": "fixed", "OMP_NUM_THREADS": "1"}
    assert job.run(workers=2) == [0, 0]
    final = torch.load(tmp_path / "run" / "final.pt", weights_only=True)
    assert deviation(final["model"], fixed("--steps", "60")["model"]) < 1e-10
    assert deviation(final["averaged"], fixed("--steps", "60")["averaged"]) < 1e-10


def test_a_newcomer_reads_the_batch_size_that_its_peers_have_chosen(lab: Lab, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "docs" / "examples" / "adapting" / "digits.py"
    with live_job(lab, script, tmp_path / "run", "--rule", "gns", "--epochs", "100000") as job:
        started(job, 1)
        job.until(lambda: job.said("announce"), 60.0, "its batch size stays")
        job.order(2)
        assert job.settle()["size"] == 2
        assert not job.said("unfit")


def test_rank_0_leaves_and_the_others_go_on_with_its_duties(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--epochs", "6", "--seconds", "0.02") as job:
        started(job, 2)
        job.order(2, without="c0")
        assert job.settle()["size"] == 2
        final = finished(job)
        assert job.workers["c0"].code == 75
        checked(job, 42)
    assert deviation(final["model"], fixed("--epochs", "6")["model"]) < 1e-10
    assert (tmp_path / "run" / "checkpoints" / "a0-i1-g2").is_dir()
    assert [path.suffix for path in sorted((tmp_path / "run" / "logs").iterdir())] == [".r1", ".g1"]


def test_a_killed_worker_is_left_out(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--epochs", "8", "--seconds", "0.02") as job:
        started(job, 3)
        job.run_for(0.2)
        job.kill("c0")
        job.until(lambda: "c0" not in job.newest.members, 10.0, "its loss was not noticed")
        assert job.settle()["size"] == 2
        job.run_for(0.1)
        job.kill("c2")
        job.until(lambda: "c2" not in job.newest.members, 10.0, "its loss was not noticed")
        assert job.settle()["size"] == 1
        final = finished(job)
        checked(job, 56)
    assert deviation(final["model"], fixed("--epochs", "8")["model"]) < 1e-10


def test_a_step_torn_in_the_last_batch_of_an_epoch_is_made_again(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--epochs", "4", "--dies-in", "14") as job:
        started(job, 2)
        job.until(lambda: "c1" not in job.newest.members, 60.0, "its loss was not noticed")
        final = finished(job)
        checked(job, 28)
    assert deviation(final["model"], fixed("--epochs", "4")["model"]) < 1e-10


def test_a_worker_that_vanishes_without_a_word_is_left_out_once_it_is_named(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        started(job, 3)
        job.kill("c2", signal.SIGSTOP)  # its connections stay open
        job.until(lambda: _waits(job, "c0") and _waits(job, "c1"), 30.0, "its peers do not wait for it")
        job.lost.append("c2")
        job.order(2, without="c2")
        assert job.settle()["size"] == 2
        assert job.workers["c2"].code is None
        job.kill("c2")
        finished(job)
        checked(job, 60)


@pytest.mark.slow
def test_a_stopped_rank_0_that_wakes_up_beside_its_successor_leaves_without_a_trace(lab: Lab, tmp_path: Path) -> None:
    args = ("--epochs", "12", "--seconds", "0.02")
    with live_job(lab, SCRIPT, tmp_path / "run", *args) as job:
        started(job, 3)
        job.run_for(0.2)
        job.kill("c0", signal.SIGSTOP)
        job.until(lambda: _waits(job, "c1") and _waits(job, "c2"), 30.0, "its peers do not wait for it")
        job.lost.append("c0")
        job.order(2, without="c0")
        assert job.settle()["size"] == 2
        job.run_for(0.3)
        job.kill("c0", signal.SIGCONT)
        job.until(lambda: job.workers["c0"].code is not None, 30.0, "it goes on alone")
        assert job.workers["c0"].code == 75
        assert (tmp_path / "run" / "final.pt").exists() is False
        assert finished(job)["size"] == 2
        rows = checked(job, 84)
        assert [path.suffix for path in sorted((tmp_path / "run" / "logs").iterdir())] == [".r1", ".g1"]
    left_at = max(step for step, of_step in rows.items() if len(of_step) == 3)
    assert all(row["size"] == 2 for step, of_step in rows.items() if step > left_at + 1 for row in of_step)


@pytest.mark.slow
def test_a_worker_that_is_stopped_for_a_while_is_waited_for(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        started(job, 2)
        job.kill("c1", signal.SIGSTOP)
        job.until(lambda: _waits(job, "c0"), 30.0, "its peer does not wait for it")
        job.run_for(1.5)
        job.kill("c1", signal.SIGCONT)
        finished(job)
        assert not job.said("broken")
        checked(job, 60)


def _waits(job: LiveJob, name: str) -> bool:
    pulse = job.pulse(name)
    return pulse is not None and pulse.phase is Phase.PEERS


def test_a_job_whose_store_is_dead_trains_on_at_its_size(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02") as job:
        started(job, 2)
        job.kill_store()
        job.order(1)
        assert finished(job)["size"] == 2
        assert len(job.said("store_lost")) == 2
        assert not job.said("unfit")
        checked(job, 60)


@pytest.mark.slow
def test_of_a_burst_of_orders_the_last_one_holds(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    chosen = random.Random(5)
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "100", "--seconds", "0.02") as job:
        started(job, 2)
        for _ in range(8):
            job.order(chosen.randint(1, 3))
            job.run_for(chosen.uniform(0.0, 0.08))
        job.order(3)
        assert job.settle()["size"] == 3
        final = finished(job)
        checked(job, 100)
    assert deviation(final["model"], fixed("--steps", "100")["model"]) < 1e-10


def test_a_newcomer_of_another_shape_fails_alone(lab: Lab, tmp_path: Path) -> None:
    with live_job(lab, SCRIPT, tmp_path / "run", "--steps", "60", "--seconds", "0.02", "--widen-newcomers") as job:
        started(job, 1)
        job.order(2)
        assert finished(job)["size"] == 1
        (unfit,) = job.said("unfit")
        assert unfit["why"] == "it trains Sequential 0.weight (7, 6), and its peers Sequential 0.weight (6, 6)"
        checked(job, 60)


@pytest.mark.slow
def test_thirty_random_changes_train_as_one_worker_does(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    chosen, args = random.Random(8), ("--steps", "500")
    with live_job(lab, SCRIPT, tmp_path / "run", *args, "--seconds", "0.04") as job:
        started(job, 1)
        for _ in range(30):
            without = chosen.choice(job.newest.members) if chosen.random() < 0.3 else ""
            size = chosen.choice([each for each in (1, 2, 3, 4) if each != len(job.newest.members)])
            job.order(size, without=without if len(job.newest.members) > 1 else "")
            assert job.settle()["size"] == size
            job.run_for(chosen.uniform(0.0, 0.3))
        final = finished(job)
        checked(job, 500)
    assert deviation(final["model"], fixed(*args)["model"]) < 1e-10


@pytest.mark.slow
def test_in_single_precision_changes_differ_as_two_fixed_sizes_do(lab: Lab, fixed: Any, tmp_path: Path) -> None:
    chosen, args, finals = random.Random(9), ("--steps", "200", "--single"), []
    for name, changes in (("four", 0), ("live", 12)):
        with live_job(lab, SCRIPT, tmp_path / name, *args, *(["--seconds", "0.04"] if changes else [])) as job:
            started(job, 1 if changes else 4)
            for _ in range(changes):
                job.order(chosen.randint(1, 4))
                job.settle()
                job.run_for(chosen.uniform(0.0, 0.3))
            finals.append(finished(job)["model"])
    one = fixed(*args)["model"]
    apart = [max(float((final[name] - one[name]).abs().max()) for name in one) for final in finals]
    print(f"furthest from one worker: four workers {apart[0]:.2e}, {12} changes {apart[1]:.2e}")
    assert apart[1] <= 2.0 * apart[0]


@pytest.mark.slow
def test_buffers_and_uneven_batches_are_equal_on_all_workers_after_each_change(lab: Lab, tmp_path: Path) -> None:
    args = ("--epochs", "20", "--norm", "--samples", "43", "--batch-size", "16")
    with live_job(lab, SCRIPT, tmp_path / "run", *args, "--seconds", "0.05") as job:
        started(job, 2)
        for size in (3, 1, 4, 2, 3):
            job.order(size)
            assert job.settle()["size"] == size
        finished(job)
        rows = rows_by_step(job)
    for step, of_step in rows.items():
        assert len({row["parameters"] for row in of_step}) == 1, step
        assert len({row["buffers"] for row in of_step}) == 1, step
    assert len({of_step[0]["buffers"] for of_step in rows.values()}) == len(rows), "they change with each step"


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_any_worker_may_be_lost_at_any_moment(lab: Lab, fixed: Any, tmp_path: Path, stopped: bool) -> None:
    chosen = random.Random(3)
    args = ("--epochs", "12", "--width", "100", "--adam")
    for number in range(3 if stopped else 8):
        with live_job(lab, SCRIPT, tmp_path / f"run-{number}", *args, "--seconds", "0.01") as job:
            started(job, 3)
            for size in (2, 1):
                job.run_for(chosen.uniform(0.0, 0.3))
                name = chosen.choice(job.newest.members)
                if stopped:
                    job.kill(name, signal.SIGSTOP)
                    job.run_for(1.0)
                job.kill(name)
                job.until(lambda job=job, name=name: name not in job.newest.members, 10.0, "its loss was not noticed")
                assert job.settle()["size"] == size
            final = finished(job)
            checked(job, 84)
        assert deviation(final["model"], fixed(*args)["model"]) < 1e-10
