"""``SimulationSpec``: one description behind flags, Python keywords and ``run.json``."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia.platform.profiles import Profile
from eunomia_testbed import SimulationOptions, simulate
from eunomia_testbed.commands.simulate import simulate as command
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.running.result import SimulationKeywords
from eunomia_testbed.spec.simulation import SimulateFlags, SimulationSpec

CLUSTER = "2x8 V100"
SETTINGS = ("--set", "gavel.jobs=12", "--set", "gavel.interarrival=200s")


def workload(seed: int) -> Any:
    return generate_workload("gavel", {"jobs": "12", "interarrival": "200s"}, seed)


def test_flags_and_keywords_are_fields_of_the_spec() -> None:
    carried_out = {"progress", "processes"}
    assert set(SimulationKeywords.__annotations__) - carried_out <= set(SimulationSpec.model_fields)
    python_only = {"options", "models"}
    assert set(inspect.signature(command).parameters) == set(SimulateFlags.model_fields) - python_only


def test_a_script_and_the_command_line_give_the_same_simulation(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--cost", "start=20s", "--know", "measured", "--policy", "srtf", "--seeds", "0-1", "--no-progress"]
    assert run(["simulate", "--workload", "gavel", *SETTINGS, "--cluster", CLUSTER, *flags, "--out", str(out)]) == 0
    same = simulate(workload, CLUSTER, ["srtf"], seeds=range(2), cost=["start=20s"], know="measured")
    written = json.loads((out / "run.json").read_text())["spec"]
    assert written["cost"] == ["start=20s"] and written["know"] == "measured" and written["workload"] == "gavel"
    assert set(written) == {"workload", "cluster", "policies", "settings", "seeds", "cost", "know"}
    facts = same.run.facts
    assert facts is not None and {"cost", "know", "policies"} <= set(facts.spec)
    header, *rows = (out / "summary.csv").read_text().splitlines()
    at = header.split(",").index("makespan_seconds")
    assert [float(row.split(",")[at]) for row in rows] == same.metrics["makespan_seconds"].to_list()


def test_names_that_are_not_fields_are_refused() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'seedz'; did you mean \"seed\""):
        simulate(workload, CLUSTER, seedz=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 3.5}, "seeds must be valid: it must be a list"),
        ({"know": "all"}, r"or a list of work, sizes, types, regimes, amounts, but got \"all\" \(know\)"),
        ({"options": SimulationOptions(), "know": "oracle"}, "options must not stand with a field that they replace"),
        ({"rules": "gavel", "cost": ["start=1s"]}, "must stand without --rules"),
    ],
)
def test_errors_name_the_keyword(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(workload, CLUSTER, ["fifo"], **given)


def test_compare_names_all_differences_except_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["simulate", "--workload", "gavel", *SETTINGS, "--cluster", CLUSTER, "--no-progress", "-q"]
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert run([*common, "--policy", "fifo", "--cost", "start=20s", "--out", one]) == 0
    assert run([*common, "--policy", "srtf", "--error", "0.1", "--out", two]) == 0
    capsys.readouterr()
    assert run(["compare", one, two]) == 0
    shown = capsys.readouterr().out
    assert "cost differs: start=20s against the default" in shown
    assert "error differs: the default against 0.1" in shown
    assert run(["compare", one, one, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differs"] == []


def test_settings_do_not_change_a_profile_that_is_given() -> None:
    with pytest.raises(InputError, match="settings must stand with policies that are given by name"):
        simulate(workload, CLUSTER, [Profile.load("fifo")], settings=["rounds.lease=10m"])
