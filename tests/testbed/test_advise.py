"""``eunomia advise``: the answer by goal with its conditions, what fits and what does not, budgets and bad input."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eunomia.cli import run
from eunomia_testbed.advise.study import stand_still
from eunomia_testbed.advise.variations import variations_of, with_wrong_lengths
from eunomia_testbed.evidence.intervals import end_error
from eunomia_testbed.results import RunData
from eunomia_testbed.spec.planning import plan_of
from eunomia_testbed.spec.simulation import spec_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER"):
        monkeypatch.setenv(name, "")
    rng = np.random.default_rng(6)
    arrivals = np.cumsum(rng.exponential(50.0, size=60))
    lines = ["job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration"]
    lines += [f"j{at},u{at % 3},{arrivals[at]:.2f},1,{int(rng.lognormal(4.5, 1.2)) + 1},1.0" for at in range(60)]
    Path("jobs.csv").write_text("\n".join(lines) + "\n")
    yield


POLICIES = ["--policy", "fifo", "--policy", "srtf", "--policy", "las", "--policy", "afs"]


def advise(*more: str) -> int:
    usual = ["--cluster", "1x2 V100", "--cost", "start=5s", "--no-progress", "--out", "out"]
    return run(["advise", "jobs.csv", *usual, *POLICIES, *more])


def test_the_answer_lists_each_goal_with_its_conditions_and_what_would_change_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert advise("--budget", "10m") == 0
    shown = capsys.readouterr().out
    assert "Compared: fifo, srtf, las." in shown
    assert "Left out: afs: all jobs have one size, and it chooses sizes" in shown
    assert re.search(r"Shortest mean JCT +(srtf; next|not decided)", shown)
    assert re.search(r"\d+ resamples of jobs.csv by circular blocks of \d+ apps", shown)
    assert "Condition: Costs: start 5 s." in shown
    assert "Condition: Lengths of jobs are known to srtf." in shown
    for turn in ("costs doubled", "one more machine of 2 V100", "lengths unknown"):
        assert f"Turns: With {turn}: " in shown
    page = Path("out/advice.html").read_text(encoding="utf-8")
    for part in ("The answer, by goal", "Conditions", "What would change it", "Left out", "To repeat it"):
        assert part in page
    assert "http" not in page.replace('"http-equiv"', "")
    facts = json.loads(Path("out/advice.json").read_text(encoding="utf-8"))
    assert facts["schema"] == "eunomia/advise@1"
    assert facts["draws"]["kind"] == "resamples"
    assert facts["draws"]["count"] >= 39
    assert RunData.load(Path("out/trace")).resamples.height == 3 * facts["draws"]["count"]


def test_a_budget_that_is_too_small_gives_no_interval_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert advise("--budget", "1s") == 0
    shown = capsys.readouterr().out
    assert "One run: nothing is known about chance. 0.6 s of CPU time allow no 39 resamples" in shown
    assert re.search(r"--budget \d+m would probably do for all policies", shown)


def test_with_json_only_the_facts_are_printed_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert advise("--budget", "1s", "--json", "--goal", "mean_jct") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["compared"] == ["fifo", "srtf", "las"]
    assert [each["goal"] for each in facts["lines"]] == ["Shortest mean JCT"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--goal", "fast"], "goal must be one of mean_jct, p99_jct, end, work, fairness, moves"),
        (["--seeds", "0-4"], "--seeds must not be given: advice is on a trace"),
        (["--resample", "100"], "--resample must not be given"),
        (["--budget", "soon"], "budget must be"),
        (["--workload", "gavel"], "--workload must not be given"),
    ],
)
def test_bad_input_is_refused(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert advise(*more) == 2
    assert said in capsys.readouterr().err
    assert not Path("out").exists()


def test_if_no_policy_fits_the_error_gives_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["advise", "jobs.csv", "--cluster", "1x2 V100", "--policy", "afs", "--policy", "synergy", "--out", "out"]
    assert run(command) == 2
    said = capsys.readouterr().err
    assert "a policy must suit the trace and the cluster, but got none: afs: all jobs have one size" in said
    assert "synergy: cpus must be given" in said


def test_each_variation_changes_only_the_costs_or_only_the_cluster() -> None:
    given = {"trace": "jobs.csv", "cluster": "1x2 V100", "policies": ("fifo",)}
    plan, _ = plan_of(spec_of({**given, "cost": ("start=5s",)}))
    costs, machine = variations_of(plan)
    assert costs.plan.options.costs.start == 10.0
    assert costs.plan.cluster is plan.cluster
    assert machine.plan.cluster.gpus == 4
    assert machine.plan.options == plan.options
    assert with_wrong_lengths(plan).options.reports.errors == {"work": 0.5}
    free, _ = variations_of(plan_of(spec_of(given))[0])
    assert free.text == "starts that take 30 s, saves and restores 20 s"
    assert free.plan.options.costs.start == 30.0


def test_resampling_continues_while_an_interval_almost_separates_two_policies() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=200)

    def rows(mean: float) -> pl.DataFrame:
        """The lower end of the interval of ln(b / a) is about ``mean`` - 2."""
        both = {"a": np.ones(200), "b": np.exp(mean + noise)}
        frames = [
            pl.DataFrame({"policy": policy, "seed": range(200), "jct_mean_seconds": values})
            for policy, values in both.items()
        ]
        return pl.concat(frames)

    assert stand_still(rows(6.0))
    assert not stand_still(rows(-float(np.percentile(noise, 2.5, method="weibull"))))
    assert stand_still(rows(0.5))  # not decided, whatever the seed


def test_the_error_of_interval_ends_falls_with_the_number_of_resamples() -> None:
    rng = np.random.default_rng(1)
    few, many = (np.mean([end_error(rng.normal(size=size).tolist()) for _ in range(30)]) for size in (40, 400))
    assert many < 0.6 * few
    assert end_error([1.0] * 38) == float("inf")
    assert end_error([1.0] * 39) == 0.0
