"""The parts of a storm and of a soak that need no live run: plans, work done again, verdicts, slopes."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from chaos.soak.slopes import slope
from chaos.storms.outcome import Hit, StormRun, _needless, table
from chaos.storms.plan import KINDS, LONG_STOP_SECONDS, SHEPHERD, STOP_SECONDS, WORKER, Scope, Way, plan, shares
from eunomia_testbed.live_runs.redone import _work, redone


def test_a_plan_follows_from_its_seed_and_covers_each_kind_and_way() -> None:
    made = list(plan(500, 1))
    assert made == list(plan(500, 1)) != list(plan(500, 2))
    assert made[:100] == list(islice(plan(500, 1), 100))  # as a run that goes on takes it
    alone = Counter((one.kinds, one.ways) for one in made if one.scope is Scope.ONE)
    for kind in KINDS:
        assert all(alone[(kind,), (way,)] >= 1 for way in Way)
    scopes = Counter(one.scope for one in made)
    assert all(scopes[scope] >= 10 for scope in Scope)
    for one in made:
        low, high = (LONG_STOP_SECONDS,) * 2 if Way.LONG_STOP in one.ways else STOP_SECONDS
        assert low <= one.seconds <= high


def test_actions_are_divided_evenly_among_runs() -> None:
    assert shares(1000, 10) == [100] * 10
    assert sum(shares(7, 3)) == 7


def test_time_in_which_a_worker_was_stopped_does_not_count_as_work() -> None:
    logged = {step: 100.0 + step for step in range(1, 11)} | {11: 141.0}
    assert _work(logged, 8, [(110.5, 140.5)]) == 141.0 - 108.0 - 30.0
    assert _work(logged, 8, []) == 33.0
    assert _work({5: 10.0, 6: 11.0}, 0, []) == 1.0
    assert _work(logged, 8, [(110.5, 130.0), (120.0, 140.5)]) == 141.0 - 108.0 - 30.0  # two workers of a gang


def test_time_between_two_incarnations_does_not_count_as_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that waits at a rung for 21 s, goes on for 0.2 s, and is killed."""
    steps = {1: {19: 99.9, 20: 100.0}, 2: {21: 121.0, 22: 121.1, 23: 121.2}, 3: {21: 160.0, 22: 160.1}}
    (tmp_path / "apps" / "halving" / "2").mkdir(parents=True)
    logs = SimpleNamespace(
        writers=lambda: sorted(steps),
        as_written=lambda _, writer: SimpleNamespace(
            step=np.array(list(steps[writer])), wall_time=np.array(list(steps[writer].values()))
        ),
    )
    monkeypatch.setattr("eunomia_testbed.live_runs.redone.read_logs", lambda _: logs)
    (tmp_path / "apps" / ".storage").mkdir()
    (tmp_path / "apps" / ".storage" / "9389").touch()  # by which nodes show that they see the folder
    (again,) = redone(tmp_path, {})
    assert (again.job, again.steps) == ("halving/2", 3)
    assert again.seconds == pytest.approx(0.2)


def test_a_short_plan_stops_a_worker_and_a_shepherd_for_90_seconds() -> None:
    for seed in range(20):
        long = [one.kinds for one in plan(50, seed) if Way.LONG_STOP in one.ways]
        assert {(WORKER,), (SHEPHERD,)} == set(long)


def hit(kind: str, way: Way) -> Hit:
    return Hit(action=1, scope=Scope.ONE, kind=kind, name="a.1.1.0", pid=1, way=way, at=0.0)


def test_only_processes_that_were_stopped_for_long_may_be_killed_as_hung() -> None:
    hits = [hit("worker", Way.STOP), hit("app master", Way.LONG_STOP)]
    assert list(_needless(hits, {"worker": 0, "app master": 1})) == []
    assert len(list(_needless(hits, {"worker": 1, "app master": 2}))) == 2


def test_the_outcome_of_a_run_is_stored_in_a_file(tmp_path: Path) -> None:
    made = StormRun(
        hits=[hit("worker", Way.KILL)],
        seconds=10.0,
        busy=True,
        states={"a": "finished", "b": "failed"},
        findings=[],
        wrong=["b is failed, not finished"],
        redone=[1.5],
        stalls={"worker": 0},
    )
    made.save(tmp_path / "outcome.json")
    assert StormRun.load(tmp_path / "outcome.json") == made
    shown = "\n".join(table([made]))
    assert "apps finished: 1 of 2" in shown
    assert "at most 1.50 s" in shown


def test_a_real_slope_is_found_and_the_interval_of_noise_contains_zero() -> None:
    chance = random.Random(7)
    at = [10.0 * number for number in range(360)]
    noise = [chance.gauss(100.0, 1.0) for _ in at]
    growing = [value + 5.0 * second / 3600.0 for value, second in zip(noise, at, strict=True)]
    assert slope(at, [3.0] * len(at)).holds_zero
    assert slope(at, noise).holds_zero
    found = slope(at, growing)
    assert found.grows
    assert found.low < 5.0 < found.high


def test_too_few_samples_for_a_slope_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 12 samples"):
        slope([1.0] * 10, [1.0] * 10)
