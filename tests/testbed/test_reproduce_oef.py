"""OEF as a paper: what allocations come to by hand, lies, changes and placements in small runs, and all verdicts."""

import json
from pathlib import Path

import numpy as np
import pytest
from real_data import shared_data

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.reproduce.oef.cells import ALLOCATION, LEAVES, ROUNDS, OefCell, OefFigures, run_cell
from eunomia_testbed.reproduce.oef.paper import PAPER, ROWS, OefGrid, make_cell
from eunomia_testbed.reproduce.oef.tenants import GAVEL, PRINTED, Group, Tenants, ending, endless, speeds_of
from eunomia_testbed.reproduce.paper import Runs, cells_of
from eunomia_testbed.reproduce.verdicts import Verdict

LIE = 1.5
RATES = "gavel/simulation_throughputs.json.gz"


def cell(what: str, policy: str, **more: object) -> OefCell:
    return make_cell(OefGrid(hours=2.0), {"what": what, "policy": policy, "speeds": PRINTED, "tenants": 4, **more}, 0)


def test_speedups_equal_the_two_numbers_printed_in_the_paper() -> None:
    four = Tenants(speeds=PRINTED, throughputs="", count=4, seed=0)
    assert four.models == ("LSTM", "Transformer", "ResNet", "VGG")
    relative = four.speedups(four.models)
    assert relative[0, 2] == pytest.approx(2.15)
    assert relative[3, 2] == pytest.approx(1.39)
    assert (relative[:, 0] == 1.0).all()
    assert four.cluster().gpus == 24


def test_gavel_speeds_are_relative_to_the_slowest_type_of_each_model() -> None:
    truth = speeds_of(GAVEL, str(shared_data(RATES)))
    assert len(truth.models) == 26
    relative = Tenants(speeds=GAVEL, throughputs=str(shared_data(RATES)), count=4, seed=0).speedups(truth.models)
    assert relative.min(axis=1) == pytest.approx(np.ones(26))
    assert int((relative[:, 1] > relative[:, 2]).sum()) == 8


def test_max_min_gives_each_tenant_a_quarter_of_every_type() -> None:
    found = run_cell(cell(ALLOCATION, "max_min"))
    four = Tenants(speeds=PRINTED, throughputs="", count=4, seed=0)
    assert found.throughput == pytest.approx((2.0 * four.speedups(four.models).sum(axis=1)).tolist())
    assert found.promised == pytest.approx(found.total)


def test_a_tenant_that_overstates_lowers_its_own_throughput_and_the_total() -> None:
    honest, lying = (run_cell(cell(ALLOCATION, "noncooperative", lie=lie)) for lie in (1.0, LIE))
    assert max(honest.throughput) - min(honest.throughput) < 1e-6
    assert lying.throughput[0] < honest.throughput[0] < min(lying.throughput[1:])
    assert lying.total < honest.total


def test_rounds_approach_the_shares_and_redistribute_gpus_of_a_tenant_that_leaves() -> None:
    shares, rounds = (run_cell(cell(what, "noncooperative", change=LEAVES)) for what in (ALLOCATION, ROUNDS))
    assert rounds.before == pytest.approx(shares.before, rel=0.1)
    assert rounds.throughput[3] == 0.0
    # The last stretch is 40 minutes long here: eight rounds, so a tenant may be a few GPU-rounds off.
    assert sum(rounds.throughput) == pytest.approx(shares.total, rel=0.1)


def test_jobs_that_end_have_the_work_of_the_generator_in_gpu_seconds() -> None:
    fifty = Tenants(speeds=PRINTED, throughputs="", count=50, seed=0)
    jobs = ending(fifty)
    assert jobs.size > 800
    assert float(jobs.jobs.iterations.sum()) == pytest.approx(24 * 3 * 86_400.0, rel=0.01)
    owner = jobs.apps.user[jobs.jobs.app]
    assert all(len(set(jobs.jobs.model[owner == user].tolist())) == 1 for user in range(50))


def test_groups_of_a_tenant_have_equal_gangs() -> None:
    four = Tenants(speeds=PRINTED, throughputs="", count=4, seed=1)
    made = endless(four, [Group(tenant=0, model="LSTM"), Group(tenant=0, model="VGG", arrives=60.0)])
    assert made.users.id == ["tenant1"]
    one, other = made.jobs.most.reshape(2, -1)
    assert one.tolist() == other.tolist()


def test_claims_without_runs_are_not_measured() -> None:
    runs: Runs[OefGrid, OefCell, OefFigures] = Runs(grid=OefGrid(), done={})
    found = {claim.measure(runs).verdict for claim in PAPER.claims(OefGrid())}
    assert found == {Verdict.UNMEASURED, Verdict.NOT_MEASURABLE}


def figures(own: OefCell) -> OefFigures:
    """As the paper has it: cooperative OEF is better by what is printed."""
    factor = {"cooperative": 1.2 if own.what == ALLOCATION else 1.32, "noncooperative": 1.1}.get(own.policy, 1.0)
    return OefFigures(
        before=(1.0,) * 4,
        throughput=(factor,) * 4,
        with_others=(0.9,) * 4,
        with_first=(factor / 1.58,) * 4,
        promised=4.0 * factor,
        mean_jct_seconds=81.0 if own.policy == "cooperative" else 100.0,
        mixed=0.5,
        cpu_seconds=0.1 if own.policy == "cooperative" else 0.05,
    )


def test_every_claim_is_measured_once_its_cells_have_run() -> None:
    grid = OefGrid(throughputs="some.json")
    claims = PAPER.claims(grid)
    runs = Runs(grid=grid, done={one.key: figures(one) for one in cells_of(grid.seeds, claims)})
    rows = [(claim, claim.measure(runs)) for claim in claims]
    missing = {row[2] for group in ROWS.file.missing for row in group.rows}
    assert {claim.text for claim, one in rows if one.text == "-"} == missing
    gains = [one for claim, one in rows if claim.figure == "Fig 8" and not claim.goal]
    assert {one.text for one in gains} == {"+20.0 %", "+32.0 %"}
    assert {one.verdict for one in gains} == {Verdict.HOLDS}
    assert {one.beside["Gavel's speeds"] for one in gains} == {"holds: +20.0 %", "holds: +32.0 %"}
    assert {one.verdict for claim, one in rows if claim.figure == "Fig 9"} == {Verdict.HOLDS}
    assert {one.text for claim, one in rows if claim.figure == "Fig 9"} == {"-19.0 %"}
    construction = {claim.figure for claim, one in rows if one.verdict is Verdict.BY_CONSTRUCTION}
    assert construction == {"Fig 4a", "Fig 6"}  # Figure 5(b) does not hold with these figures
    lies = {one.verdict for claim, one in rows if claim.figure == "Fig 4b" and claim.printed == "-10 %"}
    assert lies == {Verdict.FAILS}


def test_missing_rates_are_named_with_the_way_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"throughputs must be the file of Gavel's measured rates .*--set throughputs"):
        speeds_of(GAVEL, str(tmp_path / "none.json"))


def test_a_small_run_writes_a_page_with_its_fixed_settings(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["reproduce", "oef", "--seeds", "0", "--only", "fig6", "--only", "fig5a", "--set", "hours=2"]
    assert run([*given, "--out", str(out), "-q", "-j", "1"]) == 0
    claims = json.loads((out / "claims.json").read_text())["claims"]
    assert [claim["figure"] for claim in claims] == ["Fig 5a", "Fig 5a", "Fig 5a", "Fig 6", "Fig 6"]
    assert "8 + 8 + 8 GPUs" in (out / "report.html").read_text()
