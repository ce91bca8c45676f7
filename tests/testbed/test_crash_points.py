"""Arbiter, app masters and launchers, stopped at every write and every message of a run, come to the same end."""

import os
import subprocess
import sys

import pytest

from chaos.crash_points.enumeration import KINDS, Stopped, differences, enumerate_points, stopped, table, undisturbed
from chaos.crash_points.joining import MACHINE
from chaos.crash_points.script import SCRIPTS
from chaos.crash_points.world import APP_MASTER, ARBITER, CUT_SECONDS, LAUNCHER, STORE, run_once
from eunomia.arbiter import Arbiter
from eunomia.journal.journal import Journal, Step
from strength import THOROUGH

PART = 1 if THOROUGH else 5
"""One of this many points of the short run is a stop; of two or three moments at each write, none is left out."""


@pytest.mark.timeout(1800)
def test_a_short_run_survives_a_stop_at_its_points() -> None:
    runs = list(enumerate_points(SCRIPTS["short"], part=(0, PART)))
    assert {run.point: run.differences for run in runs if run.differences} == {}
    points = [(kind, point) for kind in KINDS for point in undisturbed(SCRIPTS["short"], kind).points]
    assert len(points) > 100
    assert len(runs) >= len(points) // PART
    rows = table([Stopped(kind=kind, number=0, point=point, differences=(), seconds=0.0) for kind, point in points])
    assert {row[0] for row in rows} == set(KINDS)
    moments = {row[1] for row in rows}
    assert {"journal, before the commit", "journal, after the commit", "master.json, before the write"} <= moments
    assert {f"Allocate, {moment}" for moment in ("received", "before the answer", "after the answer")} <= moments
    assert {f"Allocate, {moment}" for moment in ("before it is sent", "after it is sent", "answered")} <= moments


STARTS = ("StartContainers", "GoContainers")


def test_the_start_of_a_gang_over_two_nodes_survives_a_stop_at_each_point() -> None:
    found = {}
    for kind in (APP_MASTER, LAUNCHER):
        expected = undisturbed(SCRIPTS["nodes"], kind)
        for number, point in enumerate(expected.points, 1):
            if any(call in point for call in STARTS):
                found[f"{number} {point}"] = stopped(SCRIPTS["nodes"], kind, number, expected).differences
    assert {point: differences for point, differences in found.items() if differences} == {}
    for node in ("box", "box1"):
        for call in STARTS:
            assert any(f"{node}: {call}: before the answer" in point for point in found)
    assert len(found) == 24


def test_a_live_change_survives_a_stop_around_its_order() -> None:
    found = {}
    for kind in (APP_MASTER, STORE):
        expected = undisturbed(SCRIPTS["live"], kind)
        named = [at for at, point in enumerate(expected.points, 1) if "OrderContainers: " in point]
        for number in named[1 :: len(named) // 2]:  # one of the shrink, one of the growth; all are of the slow test
            point = expected.points[number - 1]
            found[f"{number} {point}"] = stopped(SCRIPTS["live"], kind, number, expected).differences
    assert {point: differences for point, differences in found.items() if differences} == {}
    assert len(found) == 4


def test_a_shrink_before_the_first_step_needs_no_restart_wherever_the_app_master_is_stopped_around_its_order() -> None:
    expected = undisturbed(SCRIPTS["early"], APP_MASTER)
    assert list(expected.sizes) == ["live/1 1"]
    assert [size for _, size in expected.sizes["live/1 1"]] == [1, 2]
    assert expected.sizes["live/1 1"][0] == (0, 1), "the rest of the gang makes its first step"
    named = [at for at, point in enumerate(expected.points, 1) if "OrderContainers: " in point]
    for number in named[:2]:
        run = stopped(SCRIPTS["early"], APP_MASTER, number, expected)
        assert (run.differences, run.restarts) == ((), 0), run.point


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("script", ["early", "live"])
def test_live_changes_survive_a_stop_of_each_process_at_every_point(script: str) -> None:
    runs = list(enumerate_points(SCRIPTS[script], processes=2))
    assert {run.point: run.differences for run in runs if run.differences} == {}
    assert {run.kind for run in runs} == {*KINDS, STORE}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_gang_over_two_nodes_survives_a_stop_at_every_point() -> None:
    runs = list(enumerate_points(SCRIPTS["nodes"], processes=2))
    assert {run.point: run.differences for run in runs if run.differences} == {}
    assert len(runs) > 240


@pytest.mark.parametrize(("script", "call"), [("joins", "JoinNode"), ("leaves", "RemoveNode")])
def test_a_join_and_a_removal_survive_a_stop_while_they_are_journaled(script: str, call: str) -> None:
    found = {}
    for kind in SCRIPTS[script].kinds:
        expected = undisturbed(SCRIPTS[script], kind)
        named = [number for number, point in enumerate(expected.points, 1) if f": {call}: " in point]
        numbers = {
            ARBITER: range(min(named, default=1), max(named, default=0) + 1),
            MACHINE: [at for at, point in enumerate(expected.points, 1) if "joined.json: " in point],
        }
        for number in numbers[kind]:
            point = expected.points[number - 1]
            found[f"{number} {point}"] = stopped(SCRIPTS[script], kind, number, expected).differences
    assert {point: differences for point, differences in found.items() if differences} == {}
    assert any("journal: after the commit" in point for point in found)
    assert any("joined.json: after it is re" in point for point in found)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("script", ["joins", "leaves"])
def test_a_machine_that_joins_and_is_removed_survives_a_stop_at_every_point(script: str) -> None:
    runs = list(enumerate_points(SCRIPTS[script], processes=2))
    assert {run.point: run.differences for run in runs if run.differences} == {}
    assert len(runs) > 240


@pytest.mark.parametrize("cut_at", [2.5, 3.5, 6.5])
def test_a_gang_restarts_from_its_checkpoint_after_one_of_its_nodes_returns(cut_at: float) -> None:
    script = SCRIPTS["lost"]
    plain = run_once(script.apps, slots=script.slots, nodes=script.nodes)
    lost = run_once(script.apps, slots=script.slots, nodes=script.nodes, cut_at=cut_at)
    assert plain.broken == lost.broken == []
    assert differences(plain.end, lost.end) == []
    assert lost.seconds > plain.seconds + 0.5 * CUT_SECONDS


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_search_next_to_another_app_survives_a_stop_at_every_point() -> None:
    runs = list(enumerate_points(SCRIPTS["search"], processes=2))
    assert {run.point: run.differences for run in runs if run.differences} == {}
    assert len(runs) > 800


def test_a_run_does_not_depend_on_the_hashes_of_names() -> None:
    script = (
        "from chaos.crash_points.enumeration import undisturbed\n"
        "from chaos.crash_points.script import SCRIPTS\n"
        "print(undisturbed(SCRIPTS['search'], 'app_master').points)\n"
    )
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ways = {
        subprocess.run(command, env=environment | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in "01"  # by the one seed the first app's name stands first in a set, by the other it does not
    }
    assert len(ways) == 1


def test_an_arbiter_that_forgets_its_last_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPTS["short"]
    expected = undisturbed(script, ARBITER)
    points = [number for number, point in enumerate(expected.points, 1) if point.endswith("journal: after the commit")]

    def forget(arbiter: Arbiter, journal: Journal) -> list[Step]:
        steps = list(journal.steps())[:-1]
        for step in steps:
            arbiter.replay(step.now, step.events, step.decision)
        return steps

    monkeypatch.setattr("eunomia_appmaster.service.service.recover", forget)
    found = [stopped(script, ARBITER, number, expected).differences for number in points[6:14:2]]
    assert any("fold to the live state" in text for texts in found for text in texts)


def test_each_difference_between_two_outcomes_is_named_by_its_path() -> None:
    expected: dict[str, object] = {"apps": {"a": {"state": "finished", "trials": [1, 2]}}}
    seen: dict[str, object] = {"apps": {"a": {"state": "failed", "trials": [1, 3]}}}
    assert differences(expected, expected) == []
    assert differences(expected, seen) == [
        "/apps/a/state: 'failed' in place of 'finished'",
        "/apps/a/trials/1: 3 in place of 2",
    ]
