"""What app masters know, and by how much their reports are off: ``--know``, ``--error``, ``--lie``."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.testbed.simulator_lab import runs

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import Locality
from eunomia_testbed import simulate
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.performance import Setting
from eunomia_testbed.simulator import Reports, SimulationOptions, assemble

SITE = Cluster.parse("3x4 V100, 2x4 K80")


class Scaling:
    """A performance model: half as fast beyond a machine, a third on a K80, and sublinear in GPUs."""

    models = ("net",)

    def rate(self, model: str, setting: Setting) -> float:
        slow = 2.0 if setting.locality >= Locality.RACK else 1.0
        return float(setting.gpus**0.5) / (slow * (3.0 if setting.gpu_type == "K80" else 1.0))


def elastic() -> Any:
    """Three jobs of 1 to 6 GPUs."""
    made = runs([(0.0, 6, 100.0)] * 3, models=["net"] * 3, reference_type="V100")
    return dataclasses.replace(made, jobs=dataclasses.replace(made.jobs, least=np.ones(3, dtype=np.int64)))


def rates(reports: Reports, job: int = 0, seed: int = 0) -> Mapping[tuple[int, str, Locality], float]:
    """The rates that an app master reports when its job arrives."""
    options = SimulationOptions(reports=reports)
    engine = assemble(elastic(), SITE, Profile.load("fifo"), options, models=Scaling(), seed=seed)
    found: list[Any] = list(engine.sim.reporter.profiled(job))
    return {(event.gpus, event.gpu_type, event.locality): event.rate for event in found}


def reported_work(reports: Reports, seed: int = 0) -> list[float]:
    """The work that app masters report, over the true one."""
    engine = assemble(elastic(), SITE, Profile.load("fifo"), SimulationOptions(reports=reports), seed=seed)
    return [engine.sim.reporter.jobs.added(job).iterations / 100.0 for job in range(3)]


def test_the_fact_sizes_gives_rates_of_all_sizes_on_the_type_of_the_job() -> None:
    known = rates(Reports(know=("sizes",)))
    assert {size for size, _, _ in known} == {1, 2, 3, 4, 5, 6}
    assert {kind for _, kind, _ in known} == {"V100"}
    assert known[5, "V100", Locality.RACK] == pytest.approx(known[5, "V100", Locality.ISLAND] / 2.0)


def test_the_fact_types_gives_rates_of_all_types_at_the_largest_size() -> None:
    known = rates(Reports(know=("types",)))
    assert {(size, kind) for size, kind, _ in known} == {(6, "V100"), (6, "K80")}
    assert known[6, "K80", Locality.ISLAND] == pytest.approx(known[6, "V100", Locality.ISLAND] / 3.0)


def test_the_oracle_knows_all_facts() -> None:
    assert rates(Reports(know="oracle")) == rates(Reports(know=("work", "sizes", "types")))
    assert len({(size, kind) for size, kind, _ in rates(Reports(know="oracle"))}) == 12
    assert rates(Reports(know="measured")) == rates(Reports(know=("work",))) == {}


@pytest.mark.parametrize("know", ["measured", ("types",), ("sizes",)])
def test_rates_that_are_not_known_from_the_beginning_are_measured(know: Any) -> None:
    assert Reports(know=know).measures
    assert not Reports(know=("sizes", "types")).measures and not Reports(know="declared").measures


def test_a_setting_without_a_known_batch_size_is_measured_once() -> None:
    options = SimulationOptions(reports=Reports(know="measured"))
    reporter = assemble(elastic(), SITE, Profile.load("fifo"), options, models=Scaling()).sim.reporter
    reporter._work.on[0], reporter._work.pace[0] = (0, 1), 2.0
    told = []
    for _ in range(2):
        reporter.jobs.batch[0] = float("nan")  # another NaN each time, as a compiled build makes
        told.append([type(event).__name__ for event in reporter.ran(0, 1.0)])
    assert told == [["RateMeasured", "JobReported"], ["JobReported"]]


def test_slowdowns_are_known_if_sizes_are() -> None:
    def slowdown(*facts: Any) -> object:
        options = SimulationOptions(reports=Reports(know=facts))
        return assemble(elastic(), SITE, Profile.load("fifo"), options, models=Scaling()).sim.reporter.slowdown(0)

    assert slowdown("sizes") == (1.0, 1.0, 2.0, 2.0)
    assert slowdown("types") is None


def test_an_error_of_work_does_not_change_rates() -> None:
    off = Reports(know="oracle", errors={"work": 0.2})
    assert rates(off) == rates(Reports(know="oracle"))
    both = Reports(know="oracle", error=0.2)
    assert reported_work(off) == reported_work(both) and rates(both) != rates(off)
    assert all(0.8 <= each <= 1.2 and each != 1.0 for each in reported_work(off))


@pytest.mark.parametrize(("what", "varies"), [("types", 1), ("sizes", 0), ("slowdowns", 2)])
def test_errors_of_rates_are_drawn_separately_by_type_or_by_size_or_distance(what: str, varies: int) -> None:
    true, off = rates(Reports(know="oracle")), rates(Reports(know="oracle", errors={what: 0.2}))
    factors: dict[Any, set[float]] = {}
    for setting, rate in off.items():
        factors.setdefault(setting[varies], set()).add(round(true[setting] / rate, 9))
    assert all(len(found) == 1 and 0.8 <= min(found) <= 1.2 for found in factors.values())
    assert len({min(found) for found in factors.values()}) > 1
    assert off == rates(Reports(know="oracle", errors={what: 0.2}))  # the same whenever it is asked for
    assert reported_work(Reports(know="oracle", errors={what: 0.2})) == [1.0] * 3


def test_a_false_report_on_a_type_changes_only_rates_of_that_type() -> None:
    true, lied = rates(Reports(know="oracle")), rates(Reports(know="oracle", type_lies={"a": {"K80": 2.0}}))
    ratios = {kind: lied[6, kind, Locality.ISLAND] / true[6, kind, Locality.ISLAND] for kind in ("V100", "K80")}
    assert ratios == pytest.approx({"V100": 1.0, "K80": 2.0})
    assert rates(Reports(know="oracle", type_lies={"b": {"K80": 2.0}})) == true


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--know", "work,sises"], 'types, regimes, amounts, but got "sises"; did you mean "sizes"? (--know)'),
        (["--know", "oracle,work"], "declared, measured and oracle must stand alone"),
        (["--know", "work", "--error", "0.2"], "error must not be on what is known, but got work, with known work"),
        (["--know", "sizes", "--error", "slowdowns=0.1"], "error must not be on what is known"),
        (["--know", "types", "--lie", "gavel-0001.V100=2"], "a lie must not be on what is known"),
        (["--know", "work", "--lie", "gavel-0001=2"], "a lie must not be on what is known"),
        (["--error", "types=0.1"], "error of types must stand with rates that are known"),
        (["--lie", "gavel-0001.V100=2"], "a lie on a GPU type must stand with rates that are known"),
        (["--error", "wrok=0.2"], 'work, rates, types, sizes, slowdowns, but got "wrok=0.2"; did you mean "work"?'),
        (["--error", "work=0.2", "--error", "work=0.1"], "error of work must be given once"),
        (["--error", "0.2,work=0.1"], "must stand without a bare number"),
        (["--error", "1.5"], "error must be at least 0 and less than 1, but got 1.5 (--error)"),
        (["--error", "sizes=1.5", "--know", "oracle"], "error of sizes must be at least 0 and less than 1"),
        (["--know", "oracle", "--lie", "gavel-0001.V10=2"], 'must be one of V100, but got "V10"; did you mean "V100"?'),
        (["--lie", "gavle-0001=2"], "a lie must be of an app of the workload"),
    ],
)
def test_contradictions_and_unknown_words_are_refused(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = generate_workload("gavel", {"jobs": 5}, 0).apps.id[1]
    flags = [flag.replace("gavel-0001", app) for flag in flags]
    common = ["--workload", "gavel", "--set", "gavel.jobs=5", "--cluster", "2x4 V100", "--out", str(tmp_path / "run")]
    assert run(["simulate", *common, "--policy", "fifo", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_python_accepts_the_same_words_as_the_command_line() -> None:
    workload = generate_workload("gavel", {"jobs": 5}, 0)
    found = simulate(workload, "2x4 V100", ["srtf"], know="work,sizes", error=["rates=0.0"], lie=[])
    assert found.run.facts is not None and found.run.facts.spec["know"] == "work,sizes"
    with pytest.raises(InputError, match=r"but got work, with known work \(error\)"):
        simulate(workload, "2x4 V100", ["srtf"], know="work", error=0.2)


def test_the_screen_shows_what_the_rules_of_a_peer_system_imply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--workload", "gavel", "--set", "gavel.jobs=3", "--cluster", "4x1 V100", "--rules", "gavel"]
    policies = ["--policy", "max_min_fairness", "--policy", "gandiva_fair", "--policy", "fifo"]
    assert run(["simulate", *common, *policies, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().err
    assert "rules of gavel: app masters know all rates (--know oracle), since --know is not given" in shown
    assert "gandiva_fair is not the peer's policy of that name: here it gives tickets to users" in shown
    assert "rules of gavel: fifo decides in every round: its allocation has no least_between" in shown
    told = ["--policy", "max_min_fairness", "--know", "measured", "--out", str(tmp_path / "told")]
    assert run(["simulate", *common, *told]) == 0
    assert "rules of gavel" not in capsys.readouterr().err
