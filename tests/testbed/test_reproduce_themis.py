"""``reproduce themis``: apps alone, floors of claims on ρ, the workload without a floor, models of slowdowns."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from eunomia.units import Locality
from eunomia_testbed.generators.themis_facts import MODELS
from eunomia_testbed.performance import AnalyticModel, Setting
from eunomia_testbed.reproduce.paper import Runs
from eunomia_testbed.reproduce.themis.alone import only_app, run_cell
from eunomia_testbed.reproduce.themis.cells import (
    ALONE,
    POLICIES,
    Cell,
    Figures,
    make_cluster,
    make_workload,
)
from eunomia_testbed.reproduce.themis.floors import alone_of, floors_of, ideals
from eunomia_testbed.reproduce.themis.paper import PAPER, ROWS, Grid, make_cell
from eunomia_testbed.reproduce.themis.speeds import speeds_of
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

ONE = Grid(seeds=(0,), slowdowns="footnote")
claims = PAPER.claims


def cell_of(name: str, **more: object) -> Cell:
    """A cell with the fields that the rows name so."""
    fields = {**ROWS.file.cells[name], **more}
    known = {key: getattr(ONE, item[1:]) if str(item).startswith("@") else item for key, item in fields.items()}
    return make_cell(ONE, known, 0)


def two_apps(*, rho: tuple[float, float], hours: tuple[float, float]) -> Figures:
    """Figures of two apps with those ρ and completion times."""
    return Figures(
        rho=rho,
        jct_seconds=(3600.0 * hours[0], 3600.0 * hours[1]),
        gpu_seconds=(3600.0, 3600.0),
        work_gpu_seconds=(10.0, 20.0),
        placement_score=(1.0, 1.0),
        job_gpus=(1, 2),
        makespan_seconds=1000.0,
        unfinished=0,
        rounds=10,
        faults=0,
        decision_seconds=0.1,
    )


def measured(figure: str, themis: Figures, alone: Figures, others: Figures) -> Measured:
    """A claim of one seed, whose cells came to these figures."""
    claim = next(claim for claim in claims(ONE) if claim.figure == figure)
    kinds = {"themis": themis, ALONE: alone}
    done = {cell.key: kinds.get(cell.policy, others) for cell in claim.cells(0)}
    return claim.measure(Runs(grid=ONE, done=done))


# --- floors -----------------------------------------------------------------------------------------------------------


def test_a_claim_with_a_low_floor_is_judged_and_its_reason_states_the_floor() -> None:
    themis, alone = two_apps(rho=(1.0, 0.5), hours=(4.0, 4.0)), two_apps(rho=(1.1, 1.2), hours=(2.0, 2.0))
    found = measured("Fig 9", themis, alone, two_apps(rho=(3.4, 3.4), hours=(9.0, 9.0)))
    assert found.verdict is Verdict.UNDECIDED  # one seed
    assert "Floor 0.50, 0.50 of Themis' worst ρ 1.00 (over T_cluster alone 1.20)" in found.reason
    assert "at least 24.0 leases" in found.reason
    assert found.by_seed["floor"] == (0.5,) and found.by_seed["slaq"] == (3.4,)


def test_a_claim_whose_floor_is_most_of_the_worst_rho_is_not_measurable() -> None:
    themis, alone = two_apps(rho=(1.0, 0.5), hours=(4.0, 4.0)), two_apps(rho=(1.1, 1.2), hours=(3.3, 2.0))
    found = measured("Fig 9", themis, alone, two_apps(rho=(3.4, 3.4), hours=(9.0, 9.0)))
    assert found.verdict is Verdict.NOT_MEASURABLE
    assert found.text == "3.40, 3.40" and "Floor 0.82" in found.reason


def test_a_claim_whose_worst_app_has_less_than_a_lease_is_not_measurable() -> None:
    themis, alone = two_apps(rho=(4.0, 0.5), hours=(0.4, 4.0)), two_apps(rho=(1.1, 1.2), hours=(0.1, 0.1))
    found = measured("Fig 9", themis, alone, two_apps(rho=(13.4, 3.4), hours=(9.0, 9.0)))
    assert found.verdict is Verdict.NOT_MEASURABLE
    assert "at least 0.6 leases" in found.reason


def test_the_floor_of_several_cells_is_their_maximum() -> None:
    claim = next(claim for claim in claims(ONE) if claim.figure == "Fig 14")
    low, high = two_apps(rho=(1.1, 1.2), hours=(0.1, 0.1)), two_apps(rho=(1.1, 1.2), hours=(4.0, 4.0))
    themis = two_apps(rho=(1.0, 0.5), hours=(4.0, 4.0))

    def of(cell: Cell) -> Figures:
        return themis if cell.policy != ALONE else high if cell.shrink == 2 else low

    found = claim.measure(Runs(grid=ONE, done={cell.key: of(cell) for cell in claim.cells(0)}))
    assert found.verdict is Verdict.NOT_MEASURABLE and "Floor 1.00" in found.reason


def test_a_claim_has_no_floor_before_its_apps_ran_alone() -> None:
    cell = cell_of("one")
    runs: Any = Runs(grid=ONE, done={cell.key: two_apps(rho=(1.0, 0.5), hours=(4.0, 4.0))})
    assert floors_of(runs, [[cell]]) == []


# --- apps alone -------------------------------------------------------------------------------------------------------


def test_under_the_policy_named_alone_each_app_runs_on_the_whole_cluster() -> None:
    cell = Cell(policy="themis", seed=0, apps=3, shorter=64.0)
    alone, shared = run_cell(alone_of(cell)), run_cell(cell)
    assert len(alone.rho) == 3 and alone.unfinished == 0
    work = make_workload(cell)
    longest = [(work.jobs.iterations * work.jobs.seconds_per_iteration)[work.jobs.app == app].max() for app in range(3)]
    assert all(seconds >= least for seconds, least in zip(alone.jct_seconds, longest, strict=True))
    assert sum(alone.work_gpu_seconds) == pytest.approx(sum(shared.work_gpu_seconds))
    assert np.array(shared.jct_seconds) / ideals(shared) == pytest.approx(np.array(shared.rho))


def test_one_app_taken_from_a_workload_keeps_its_jobs_and_its_search() -> None:
    whole = make_workload(Cell(policy="themis", seed=0, workload="2", apps=6))
    one = only_app(whole, 4)
    rows = np.flatnonzero(whole.jobs.app == 4)
    assert one.jobs.id == [whole.jobs.id[row] for row in rows]
    assert one.jobs.iterations.tolist() == whole.jobs.iterations[rows].tolist()
    assert one.searches == {0: whole.searches[4]}
    assert one.jobs.arrival_seconds.tolist() == [0.0] * rows.size and one.apps.id == [whole.apps.id[4]]


def test_cells_that_differ_only_in_the_policy_share_the_runs_of_apps_alone() -> None:
    same = {alone_of(cell_of("one", policy=policy)).key for policy in POLICIES}
    assert len(same) == 1
    knob, error = cell_of("flat", fairness_knob=0.4, lease_seconds=300.0), cell_of("flat", slowdown_error=0.2)
    assert alone_of(knob) == alone_of(error)
    assert alone_of(cell_of("one", shrink=2)) != alone_of(cell_of("one"))


# --- what is run ------------------------------------------------------------------------------------------------------


def test_the_workload_without_a_floor_fills_the_cluster_with_equal_jobs() -> None:
    gpus = make_cluster("simulator").gpus
    work = make_workload(cell_of("flat", apps=6))
    for app in range(6):
        rows = np.flatnonzero(work.jobs.app == app)
        seconds = work.jobs.iterations[rows] * work.jobs.seconds_per_iteration[rows]
        assert np.ptp(seconds) <= 1e-9 * seconds[0]
        assert 0.7 * gpus <= work.jobs.most[rows].sum() <= 0.75 * gpus
        assert work.jobs.most[rows].max() <= 4


def test_the_error_option_applies_to_iterations_or_to_slowdowns() -> None:
    rows = [claim for claim in claims(ONE) if claim.figure == "Fig 17"]
    errors = [
        {(cell.iterations_error, cell.slowdown_error) for cell in claim.cells(0) if cell.policy == "themis"}
        for claim in rows
    ]
    assert errors == [{(0.0, 0.0), (0.2, 0.0)}, {(0.0, 0.0), (0.0, 0.2)}]


def test_with_one_slowdown_model_every_claim_uses_only_that_model() -> None:
    both, one = claims(Grid(seeds=(0,))), claims(ONE)
    assert [claim.text for claim in both] == [claim.text for claim in one]
    assert all(cell.slowdowns == "footnote" for claim in one for cell in claim.cells(0))
    models = [{cell.slowdowns for cell in claim.cells(0)} for claim in both]
    assert all(found in (set(), {"footnote", "analytic"}) for found in models)


@pytest.mark.parametrize("model", MODELS)
def test_analytic_slowdowns_equal_those_of_the_analytic_model(model: str) -> None:
    speeds, analytic = speeds_of("analytic"), AnalyticModel()
    near = Setting(gpus=4, gpu_type="K80", locality=Locality.ISLAND)
    assert speeds.rate(model, near) == pytest.approx(4.0 * speeds.rate(model, dataclasses.replace(near, gpus=1)))
    for locality in (Locality.MACHINE, Locality.RACK, Locality.CLUSTER):
        far = dataclasses.replace(near, locality=locality, machines=1 if locality is Locality.MACHINE else 2)
        slowdown = analytic.rate(model, near) / analytic.rate(model, far)
        assert speeds.rate(model, near) / speeds.rate(model, far) == pytest.approx(max(1.0, slowdown))
