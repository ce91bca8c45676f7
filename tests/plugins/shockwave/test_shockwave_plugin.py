"""The allocation in an arbiter: when it plans, which row it serves, and what it says of jobs that wait."""

import dataclasses
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from shockwave_lab import ROUND, Lab

from eunomia import Cause, OverTime, PluginError, Profile, Reason, Seconds, Unit, Valuations
from eunomia.contract.claims import Claims
from eunomia.contract.events import Adapted, JobFinished, MachineLost
from eunomia.errors import InputErrors
from eunomia.explain.explaining import explain
from eunomia.journal.journal import Journal
from eunomia.journal.recovery import recover
from eunomia.model.cluster import Cluster
from eunomia.testing.builders import World
from eunomia.units import JobId
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.shockwave import plugin
from eunomia_plugins.shockwave.options import ShockwaveOptions
from eunomia_plugins.shockwave.plan import RoundPlan, Window, spans_of
from eunomia_plugins.shockwave.plugin import Shockwave

THREE = (("a", 1, 100.0), ("b", 1, 350.0), ("c", 1, 1000.0))
"""On one GPU, a short job, one of three rounds, and a long one."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times at which windows begin that were planned."""
    begun: list[float] = []
    real = plugin.planned

    def counted(*given: Any) -> Any:
        begun.append(given[-1])
        return real(*given)

    monkeypatch.setattr(plugin, "planned", counted)
    return begun


def test_rows_of_a_plan_are_served_one_after_another_without_a_new_plan(planned: list[float]) -> None:
    lab = Lab("1x1 V100")
    lab.submit(*THREE)
    assert (lab.running, planned) == ({"a"}, [0.0])
    plan = lab.plan
    assert plan.window.turns == {"a": (0, 1), "b": (1, 4)}
    lab.pass_to(ROUND)  # a's lease ends; it has not reported its end
    lab.pass_to(2 * ROUND)
    assert (lab.running, planned, lab.plan.row) == ({"b"}, [0.0], 3)
    assert lab.plan.window is plan.window
    lab.pass_to(4 * ROUND)  # the window has ended
    assert planned == [0.0, 4 * ROUND]


def test_an_arrival_between_boundaries_causes_a_plan_but_moves_no_job(planned: list[float]) -> None:
    lab = Lab("1x2 V100")
    lab.submit(("b", 1, 350.0))
    lab.submit(("c", 2, 100.0), at=50.0)
    assert lab.running == {"b"}
    assert planned == [0.0, ROUND]
    assert lab.plan.row == 0
    lab.submit(("d", 1, 100.0), at=60.0)
    assert lab.running == {"b", "d"}  # on the idle GPU
    lab.pass_to(ROUND)
    assert planned == [0.0, ROUND, ROUND]


def test_the_end_of_a_job_causes_a_plan(planned: list[float]) -> None:
    lab = Lab("1x1 V100")
    lab.submit(*THREE)
    lab.step(JobFinished(job=JobId("a")), at=100.0)
    assert planned == [0.0, ROUND]
    assert lab.running == {"b"}  # the first of the new plan runs on the idle GPU until then


@pytest.mark.parametrize("mode", ["reactive", "lazy"])
def test_a_change_of_batch_size_causes_a_plan_only_in_the_reactive_mode(mode: str, planned: list[float]) -> None:
    lab = Lab("1x1 V100", plugins__shockwave__mode=mode)
    lab.submit(*THREE, batch_size=32.0)
    rounds = len(planned)
    before = lab.running
    lab.step(Adapted(job=JobId("a"), batch_size=64.0, iterations_done=10.0, at=Seconds(50.0)), at=50.0)
    assert lab.running == before
    assert len(planned) - rounds == (1 if mode == "reactive" else 0)
    lab.pass_to(ROUND)
    assert len(planned) - rounds == (1 if mode == "reactive" else 0)
    assert lab.plan.window.present["a"] == (1 if mode == "reactive" else 0)


def test_explain_states_when_a_planned_job_will_run() -> None:
    lab = Lab("1x1 V100")
    decision = lab.submit(*THREE)
    assert dict(decision.starts_at) == {JobId("b"): ROUND}
    assert lab.reasons == {"b": Reason.PLANNED_LATER, "c": Reason.OUTRANKED}
    why = explain(
        lab.arbiter,
        JobId("b"),
        stages=lab.profile.stages(lab.cluster),
        fallback=Profile.fallback().stages(lab.cluster),
        rounds=[decision],
        now=Seconds(30.0),
    )
    assert why.reason is Reason.PLANNED_LATER
    assert why.said == "It has 3 of the next 3 rounds of 120 s in the plan."
    assert any(way.what == "plan" and way.in_seconds == pytest.approx(ROUND - 30.0) for way in why.frees)


def test_a_refused_plan_does_not_advance_the_row() -> None:
    lab = Lab("1x1 V100")
    lab.submit(*THREE)
    whole = lab.arbiter.chosen

    def fails(*_: object) -> NoReturn:
        raise ArithmeticError("no place")

    lab.arbiter.strict = False
    lab.arbiter.use(dataclasses.replace(whole, placement=fails))
    decision = lab.arbiter.step(Seconds(ROUND), ())
    assert decision.faulty
    assert lab.running == {"a"}
    lab.arbiter.use(whole)
    lab.step(at=ROUND + 30.0)  # the arbiter dropped the plan: the next one begins with its first row
    assert lab.plan.row == 1
    assert lab.running == {str(job) for job, spans in lab.plan.window.turns.items() if spans[0] == 0}


def test_a_restarted_arbiter_continues_with_the_next_row_without_solving(tmp_path: Path, planned: list[float]) -> None:
    lab = Lab("1x1 V100", journal=tmp_path / "journal.sqlite")
    lab.submit(*THREE)
    lab.pass_to(ROUND)
    assert (lab.running, planned, lab.plan.row) == ({"b"}, [0.0], 2)
    plan = lab.plan
    lab.arbiter = lab.fresh()
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        recover(lab.arbiter, journal)
    assert lab.plan == plan
    lab.pass_to(2 * ROUND)
    assert (lab.running, planned, lab.plan.row) == ({"b"}, [0.0], 3)


def test_after_a_lost_machine_the_other_jobs_are_planned_again(planned: list[float]) -> None:
    lab = Lab("2x2 V100")
    lab.submit(("wide", 4, 600.0), ("thin", 1, 600.0))
    lab.step(MachineLost(machine=lab.cluster.machines[1].name), at=50.0)
    assert len(planned) == 2
    assert lab.plan.window.capacity == (2,)
    assert "thin" in lab.plan.window.turns
    assert lab.reasons["wide"] is Reason.NO_SIZE_FITS


def test_a_cluster_of_two_types_is_refused() -> None:
    site = Cluster.parse("1x2 V100, 1x2 P100")
    with pytest.raises(InputErrors, match='allocation "shockwave" needs one GPU type, but got P100 and V100'):
        Profile.load("shockwave").stages(site)


def test_utilities_of_apps_are_refused() -> None:
    world = World().job("a/1")
    snapshot = world.snapshot()
    utility = OverTime(utility=np.ones((1, 3)), round_seconds=Seconds(60.0))
    valuations = Valuations(claims=Claims(unit=Unit.APP, rows=np.zeros(1, np.int32)), forms=(utility,))
    with pytest.raises(PluginError, match="shockwave must get utilities of jobs"):
        Shockwave(ShockwaveOptions()).eunomia_allocation(
            snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(), valuations
        )


def test_the_integer_programme_can_replace_the_fast_path() -> None:
    counts = []
    for solver in ("fast", "reference"):
        lab = Lab("1x2 V100", plugins__shockwave__solver=solver)
        (record,) = lab.submit(("a", 1, 100.0), ("b", 2, 200.0), ("c", 1, 200.0)).records
        assert record.columns["gap"] == [pytest.approx(0.0, abs=1e-3)]
        assert record.columns["cut_short"] == [False]
        counts.append({job: sum(spans[1::2]) - sum(spans[::2]) for job, spans in lab.plan.window.turns.items()})
    assert counts[0] == counts[1] == {"a": 1, "b": 2, "c": 2}


def test_a_plan_restored_from_its_bytes_is_equal() -> None:
    window = Window(
        rounds=4,
        seconds=120.0,
        capacity=(2,),
        present={"a": 0, "b": 2},
        turns=spans_of(["a", "b"], np.array([[1, 1, 0, 1], [0, 0, 0, 0]], dtype=bool)),
    )
    plan = RoundPlan(row=1, due=120.0, window=window)
    assert window.turns == {"a": (0, 2, 3, 4)}
    assert RoundPlan.from_bytes(1, plan.to_bytes()) == plan
    assert plan.rounds_left("a") == 2
    assert [plan.starts_at(job) for job in ("a", "b")] == [120.0, pytest.approx(float("nan"), nan_ok=True)]


def test_rounds_are_triggered_at_boundaries_and_plans_at_events() -> None:
    triggers = Shockwave(ShockwaveOptions()).eunomia_triggers()
    assert Cause.ADAPTED in triggers.on
    assert Cause.ADAPTED not in triggers.all_on
    assert {Cause.BOUNDARY, Cause.WAKE} <= triggers.all_on
    assert Cause.ADAPTED not in Shockwave(ShockwaveOptions(mode="lazy")).eunomia_triggers().on
