"""Plans of faults of a replay: drawn, refused, simulated, and judged."""

import dataclasses
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_lab import flags_of, measurements, write_trace

from eunomia.errors import InputError
from eunomia_appmaster.master import job_lives
from eunomia_testbed.replay import twin
from eunomia_testbed.replay.faults.carrying import Hit
from eunomia_testbed.replay.faults.plan import (
    STOP_SECONDS,
    Fault,
    FaultKind,
    FaultPlan,
    chosen,
    drawn_plan,
    kinds_of,
)
from eunomia_testbed.replay.faults.simulated import RETRY_SECONDS
from eunomia_testbed.replay.faults.verdict import FaultVerdict
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.preparing import PreparedReplay, prepared
from eunomia_testbed.results.run_data import RunData
from strength import examples

KINDS = st.lists(st.sampled_from(FaultKind), min_size=1, unique=True)


@settings(max_examples=examples(200), deadline=None)
@given(count=st.integers(1, 60), seed=st.integers(0, 2**32), kinds=KINDS, makespan=st.floats(15_000.0, 1e6))
def test_a_plan_follows_from_its_seed_and_stays_in_the_time_in_which_jobs_run(
    count: int, seed: int, kinds: list[FaultKind], makespan: float
) -> None:
    made = drawn_plan(count, seed, kinds, makespan)
    assert made == drawn_plan(count, seed, list(reversed(kinds)), makespan)
    times = [fault.at_seconds for fault in made.faults]
    assert times == sorted(times)
    assert 0.0 < times[0] <= times[-1] < made.within_seconds < makespan
    assert [fault.number for fault in made.faults] == list(range(1, count + 1))
    counts = Counter(fault.kind for fault in made.faults)
    assert max(counts.values()) - min(counts[kind] for kind in kinds) <= 1
    for fault in made.faults:
        stops = fault.kind is FaultKind.STOP
        assert 0.0 <= fault.draw < 1.0
        assert STOP_SECONDS[0] <= fault.lasts_seconds <= STOP_SECONDS[1] if stops else fault.lasts_seconds == 0.0


def test_a_different_seed_gives_a_different_plan() -> None:
    kinds = tuple(FaultKind)
    assert drawn_plan(30, 1, kinds, 600.0) != drawn_plan(30, 2, kinds, 600.0)


@given(count=st.integers(1, 100), draw=st.floats(0.0, 1.0, exclude_max=True))
def test_a_draw_chooses_one_of_the_targets_that_are_there(count: int, draw: float) -> None:
    index, rest = chosen(count, draw)
    assert 0 <= index < count
    assert -1e-9 <= rest <= 1.0


def test_more_faults_than_seconds_are_refused() -> None:
    with pytest.raises(InputError, match=r"at most one a second .* but got 30 in 26 s \(--faults\)"):
        drawn_plan(30, 0, tuple(FaultKind), 30.0)


def test_a_plan_after_which_the_arbiter_is_restarted_no_more_is_refused() -> None:
    with pytest.raises(InputError, match=r"the arbiter must not be killed 8 times in a row .* but got 10 times"):
        drawn_plan(10, 0, (FaultKind.ARBITER,), 200.0)
    drawn_plan(10, 0, (FaultKind.WORKER,), 200.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker,arbitre", r"one of worker, app-master, arbiter, launcher, stop, but got \"arbitre\".*arbiter"),
        ("slot", r"a kind that a replay can carry out .* but got \"slot\": the launcher of a replay loses no slot"),
        ("disk", r"no file system of its own"),
        ("worker, worker", "given once"),
        ("", "one of worker"),
    ],
)
def test_kinds_that_are_unknown_or_cannot_be_carried_out_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kinds_of(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--faults", "3", "--measure-only"), "--measure-only must measure without --faults, but got 3"),
        (("--fault-seed", "3"), "--fault-seed must stand with --faults, but got 3"),
        (("--faults", "3", "--fault-kinds", "node"), "a replay has one node"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_before_anything_is_made(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    write_trace(tmp_path)
    command = [sys.executable, "-c", "from eunomia.cli import main; main()", "replay", "trace.csv", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "eunomia-out").exists()


# -- in the simulation


def made_ready(folder: Path, **more: object) -> PreparedReplay:
    write_trace(folder)
    return prepared(flags_of(folder, **more), lambda draft: measurements(*draft.slots.speeds))


def with_one(plan: ReplayPlan, **fault: object) -> ReplayPlan:
    given = {"number": 1, "at_seconds": 3.0, "kind": FaultKind.WORKER, "draw": 0.0} | fault
    faults = FaultPlan(seed=0, within_seconds=10.0, faults=(Fault(**given),))  # type: ignore[arg-type]
    return dataclasses.replace(plan, faults=faults)


def jobs_of(plan: ReplayPlan, ready: PreparedReplay, folder: Path) -> dict[str, dict[str, float]]:
    twin.simulate_plan(plan, ready.measured.profiles, ready.costs, folder)
    return {row["job"]: row for row in RunData.load(folder).jobs.iter_rows(named=True)}


def test_a_killed_worker_costs_its_job_the_work_since_its_start_and_a_start(tmp_path: Path) -> None:
    """The first job starts within 0.5 s and makes 60 steps in 6 s; the other arrives at 2 s."""
    ready = made_ready(tmp_path)
    plain = jobs_of(ready.plan, ready, tmp_path / "plain")
    hit = jobs_of(with_one(ready.plan), ready, tmp_path / "hit")
    lost = 3.0 - 0.5
    assert hit["job0"]["jct_seconds"] == pytest.approx(
        plain["job0"]["jct_seconds"] + lost + RETRY_SECONDS + 0.5 + 0.1, abs=0.01
    )
    assert hit["job0"]["iterations_lost"] == pytest.approx(25, abs=1)
    assert hit["job1"]["jct_seconds"] == pytest.approx(plain["job1"]["jct_seconds"], abs=0.01)
    assert {row["state"] for row in hit.values()} == {"finished"}


def test_a_stopped_worker_costs_its_job_the_time_of_the_stop_alone(tmp_path: Path) -> None:
    ready = made_ready(tmp_path)
    plain = jobs_of(ready.plan, ready, tmp_path / "plain")
    hit = jobs_of(with_one(ready.plan, kind=FaultKind.STOP, lasts_seconds=4.0), ready, tmp_path / "hit")
    assert hit["job0"]["jct_seconds"] == pytest.approx(plain["job0"]["jct_seconds"] + 4.0, abs=0.01)
    assert hit["job0"]["iterations_lost"] == 0


def test_a_fault_before_the_first_step_waits_for_a_job_that_makes_steps(tmp_path: Path) -> None:
    ready = made_ready(tmp_path)
    hit = jobs_of(with_one(ready.plan, at_seconds=0.1), ready, tmp_path / "hit")
    assert hit["job0"]["iterations_lost"] in (0, 1, 2, 3, 4, 5)
    assert hit["job0"]["jct_seconds"] > 0.5 + 6.0 + RETRY_SECONDS


@pytest.mark.parametrize("kind", [FaultKind.APP_MASTER, FaultKind.ARBITER, FaultKind.LAUNCHER])
def test_other_ends_cost_no_work_in_the_simulation(tmp_path: Path, kind: FaultKind) -> None:
    ready = made_ready(tmp_path)
    plain = jobs_of(ready.plan, ready, tmp_path / "plain")
    hit = jobs_of(with_one(ready.plan, kind=kind), ready, tmp_path / "hit")
    assert {name: row["jct_seconds"] for name, row in hit.items()} == {
        name: row["jct_seconds"] for name, row in plain.items()
    }


@pytest.mark.parametrize("policy", ["default", "las", "themis", "afs_p"])
def test_all_jobs_finish_under_many_simulated_faults(tmp_path: Path, policy: str) -> None:
    ready = made_ready(
        tmp_path, policies=[policy], faults=12, fault_seed=7, fault_kinds="worker,stop", speed="50x", anyway=True
    )
    assert ready.plan.faults is not None
    assert "12 faults in the first" in ready.notes[-1]
    jobs = jobs_of(ready.plan, ready, tmp_path / "hit")
    assert {row["state"] for row in jobs.values()} == {"finished"}
    assert sum(row["iterations_lost"] for row in jobs.values()) > 0


def test_the_simulated_pause_before_a_job_starts_again_is_the_app_masters() -> None:
    assert RETRY_SECONDS == job_lives.RETRY_SECONDS


# -- the verdict


def test_a_verdict_is_kept_and_names_what_must_not_be(tmp_path: Path) -> None:
    hit = Hit(
        number=1, kind=FaultKind.STOP, planned_seconds=1.0, at_seconds=1.1, at=5.0, target="a.0.1.0", job="a/0",
        pid=12, start_time=34, until=9.0,
    )  # fmt: skip
    made = FaultVerdict(hits=(hit,), redone=(3.0, 36.0), findings=("slot 1 has two holders",))
    made.write(tmp_path)
    assert FaultVerdict.read(tmp_path) == made
    assert made.wrong == ["slot 1 has two holders", "36.0 s of work were done again, more than 35 s"]
