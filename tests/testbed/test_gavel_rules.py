"""The peers' round rules: published results, and the same as a plain simulation job by job."""

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from gavel_reference import Allocate, Job, Outcome, Rules, Table, read_table, read_trace, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import shared_data

from eunomia import Cluster, Profile
from eunomia.errors import InputError
from eunomia_testbed.performance import GavelThroughputs
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.simulator import SimulatedRun, SimulationOptions, simulate_one
from eunomia_testbed.simulator.gavel_rules import GAVEL, GIVEN, SHOCKWAVE, GavelRuleOptions, gavel_rules, under_rules
from eunomia_testbed.simulator.options import Reports
from eunomia_testbed.traces.reading import read_trace as read_workload
from eunomia_testbed.workload import Workload
from strength import examples

HOURS = 3600.0
TRACE, RATES, PUBLISHED = (
    f"shockwave/{name}"
    for name in ("canonical_120jobs_32gpus.trace", "tacc_throughputs.json.gz", "published_per_job.csv")
)


class Run(NamedTuple):
    """What came of a run, by job in the trace's order."""

    made: SimulatedRun
    jct: npt.NDArray[np.float64]
    rho: npt.NDArray[np.float64]
    """Static: JCT / (time alone * jobs / GPUs)."""

    @property
    def unfair(self) -> float:
        return float(np.mean(self.rho > 1.05))


def run(
    workload: Workload,
    cluster: str,
    policy: str,
    rates: GavelThroughputs,
    options: GavelRuleOptions,
    *,
    by_type: bool = False,
    seed: int = 0,
    plugins: Mapping[str, object] | None = None,
) -> Run:
    site = Cluster.parse(cluster)
    settings = {f"plugins.{key}": item for key, item in (plugins or {}).items()}
    profile = under_rules(Profile.load(policy, settings=settings), options)
    made = simulate_one(
        workload,
        site,
        profile,
        options=SimulationOptions(
            rules=gavel_rules(workload, site, rates, options), reports=Reports(know="oracle" if by_type else "measured")
        ),
        models=rates if by_type else None,
        seed=seed,
    )
    order = np.argsort([int(name.split("/")[0]) for name in workload.jobs.id])
    jct = (made.finish_seconds - workload.jobs.arrival_seconds)[order]
    contention = max(1.0, workload.size / site.gpus)
    return Run(made, jct, jct / (made.exclusive_seconds[order] * contention))


# --- the canonical trace ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def canonical() -> Workload:
    return read_workload(shared_data(TRACE), throughputs=rates(RATES))


def rates(name: str) -> GavelThroughputs:
    return GavelThroughputs.read(shared_data(name)).without_placement()


def published(column: str) -> npt.NDArray[np.float64]:
    with shared_data(PUBLISHED).open() as file:
        return np.array([float(row[column]) for row in csv.DictReader(file)])


def level(now: float, jobs: Sequence[Job], cluster: Mapping[str, int], table: Table) -> list[dict[str, float]]:
    """Max-min over time, blind to speed: the level, and as much more of the time for all as the rest suffices for."""
    total = sum(cluster.values())
    height = min(min(job.gpus for job in jobs), total / len(jobs))
    more = max(0.0, total - height * len(jobs)) / sum(job.gpus for job in jobs)
    parts = [min(1.0, height / job.gpus + more) for job in jobs]
    return [{kind: part * count / total for kind, count in cluster.items()} for part in parts]


def test_max_min_fairness_gives_the_published_result_job_by_job(canonical: Workload) -> None:
    found = run(canonical, "32x1 V100", "max_min_fairness", rates(RATES), SHOCKWAVE)
    assert found.made.faults == ()
    assert found.made.end_seconds == pytest.approx(33208, abs=0.5)
    assert found.jct.mean() == pytest.approx(11274, abs=0.5)
    assert found.rho.max() == pytest.approx(2.947, abs=0.0005)
    assert found.unfair == 0.25
    alike = np.abs(found.jct - published("jct_max_min_fairness")) < 1.0
    assert alike.sum() >= 118  # two of 120 differ by what the solver makes of a tie


@pytest.mark.parametrize("least_between", [1000.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_max_min_fairness_equals_the_plain_simulation_in_every_jct(canonical: Workload, least_between: float) -> None:
    options = dataclasses.replace(SHOCKWAVE, least_between_seconds=least_between)
    found = run(canonical, "32x1 V100", "max_min_fairness", rates(RATES), options)
    expected = plain(TRACE, RATES, {"V100": 32}, level, Rules(least_between=least_between))
    assert found.jct == pytest.approx(np.array(expected.jct), abs=1e-6)
    assert found.made.end_seconds == pytest.approx(expected.makespan, abs=1e-6)


def plain(trace: str, table: str, cluster: Mapping[str, int], allocate: Allocate, rules: Rules) -> Outcome:
    return simulate(read_trace(shared_data(trace)), cluster, read_table(shared_data(table)), allocate, rules)


@pytest.mark.slow
def test_solving_at_every_event_gives_the_recorded_figures(canonical: Workload) -> None:
    options = dataclasses.replace(SHOCKWAVE, least_between_seconds=0.0)
    found = run(canonical, "32x1 V100", "max_min_fairness", rates(RATES), options)
    assert found.jct.mean() == pytest.approx(9246, rel=0.01)
    assert found.made.end_seconds == pytest.approx(31888, rel=0.01)
    assert found.rho.max() == pytest.approx(3.257, rel=0.01)
    assert found.unfair == pytest.approx(1 / 6)


class FinishTimeFairness:
    """The same in plain Python, by bisection."""

    def __init__(self) -> None:
        self.notes: dict[int, tuple[float, float, float]] = {}

    def __call__(
        self, now: float, jobs: Sequence[Job], cluster: Mapping[str, int], table: Table
    ) -> list[dict[str, float]]:
        gpus, rows, notes = cluster["V100"], [], {}
        for job in jobs:
            rate, left = table["V100"][job.key], max(0.5, job.total - job.run)
            alone = rate * min(1.0, gpus / len(jobs) / job.gpus)
            past, before, then = self.notes.get(job.number, (0.0, left, 1.0))
            past += (before - left) / then
            notes[job.number] = (past, left, alone)
            rows.append((left / rate, past + left / alone, now - job.admitted, job.gpus))
        self.notes = notes
        low = max((since + work) / alone for work, alone, since, _ in rows)
        high = low
        while _need(rows, high) > gpus:
            low, high = high, 2.0 * high
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _need(rows, middle) > gpus else (low, middle)
        part = [min(1.0, work / (high * alone - since)) for work, alone, since, _ in rows]
        spare = max(0.0, gpus - sum(share * row[3] for share, row in zip(part, rows, strict=True)))
        more = spare / sum(row[3] for row in rows)
        return [{"V100": min(1.0, share + more)} for share in part]


def _need(rows: list[tuple[float, float, float, int]], rho: float) -> float:
    return sum(size * work / (rho * alone - since) for work, alone, since, size in rows)


def test_finish_time_fairness_is_near_the_published_result_and_equals_the_plain_simulation(canonical: Workload) -> None:
    found = run(canonical, "32x1 V100", "finish_time_fairness", rates(RATES), SHOCKWAVE)
    assert found.jct.mean() == pytest.approx(11302, rel=0.03)
    assert found.made.end_seconds == pytest.approx(31929, rel=0.02)
    expected = plain(TRACE, RATES, {"V100": 32}, FinishTimeFairness(), Rules())
    assert found.jct == pytest.approx(np.array(expected.jct), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [
        "max_min_fairness_perf",
        "max_sum_throughput",
        "min_total_duration",
        "allox",
        "gandiva_fair",
        "fifo",
        "srtf",
        "las",
        "max_min_time",
    ],
)
def test_every_baseline_runs_under_the_rules(canonical: Workload, policy: str) -> None:
    found = run(canonical, "32x1 V100", policy, rates(RATES), SHOCKWAVE)
    assert set(found.made.state.tolist()) == {"finished"}
    assert found.made.end_seconds < 45_000
    # What a job does in a round it does in whole steps, none is done twice, and none is left.
    assert found.made.iterations_lost.max() == 0.0


# --- three types --------------------------------------------------------------------------------------------------

HETEROGENEOUS = "8x1 V100, 16x1 P100, 24x1 K80"


@pytest.fixture(scope="module")
def ninety_six() -> Workload:
    return read_workload(shared_data("gavel/max_min_fairness.trace"))


def test_max_min_with_performance_on_three_types_gives_the_published_result(ninety_six: Workload) -> None:
    measured = rates("gavel/simulation_throughputs.json.gz")
    found = run(ninety_six, HETEROGENEOUS, "max_min_fairness_perf", measured, GAVEL, by_type=True)
    assert found.made.end_seconds / HOURS == pytest.approx(17.76, rel=0.02)
    assert found.jct.mean() / HOURS == pytest.approx(4.06, rel=0.03)


@pytest.mark.slow
def test_max_min_without_performance_on_three_types_gives_the_published_result(ninety_six: Workload) -> None:
    measured = rates("gavel/simulation_throughputs.json.gz")
    runs = [
        run(ninety_six, HETEROGENEOUS, "max_min_fairness", measured, GAVEL, by_type=True, seed=seed)
        for seed in range(10)
    ]
    assert np.mean([one.made.end_seconds for one in runs]) / HOURS == pytest.approx(21.4, rel=0.03)
    assert np.mean([one.jct.mean() for one in runs]) / HOURS == pytest.approx(5.53, rel=0.03)


@pytest.mark.slow
def test_three_gpu_types_filled_in_a_given_order_equal_the_plain_simulation(ninety_six: Workload) -> None:
    name = "gavel/simulation_throughputs.json.gz"
    named = {"gavel_rounds.walk": "named"}
    found = run(ninety_six, HETEROGENEOUS, "max_min_fairness", rates(name), GAVEL, by_type=True, plugins=named)
    rules = Rules(round=360.0, restart=0.0, least_between=1920.0)
    cluster = {"V100": 8, "P100": 16, "K80": 24}
    expected = plain("gavel/max_min_fairness.trace", name, cluster, level, rules)
    assert found.jct == pytest.approx(np.array(expected.jct), abs=1e-6)


# --- small random traces --------------------------------------------------------------------------------------------

SPEEDS = {
    ("Alpha", 1): 3.03,
    ("Alpha", 2): 5.57,
    ("Alpha", 4): 9.13,
    ("Beta", 1): 0.71,
    ("Beta", 2): 1.29,
    ("Beta", 4): 2.23,
}
"""Steps a second, with which neither a round nor a restart is a whole number of steps: rounding would decide."""
_JOBS = st.lists(
    st.tuples(st.sampled_from(sorted(SPEEDS)), st.integers(1, 900), st.integers(0, 700)), min_size=1, max_size=8
)


@settings(max_examples=examples(25), deadline=None)
@given(
    _JOBS,
    st.integers(4, 6),
    st.sampled_from([0.0, 20.0]),
    st.sampled_from([0.0, 300.0]),
)
def test_random_traces_equal_the_plain_simulation(
    rows: list[tuple[tuple[str, int], int, int]], gpus: int, restart: float, least_between: float
) -> None:
    rows = sorted(rows, key=lambda row: row[2])
    first = rows[0][2]
    jobs = [
        Job(number=number, family=kind, batch=None, gpus=size, mode="static", total=steps, arrival=float(at - first))
        for number, ((kind, size), steps, at) in enumerate(rows)
    ]
    workload = Workload.single_jobs(
        "random",
        ids=[str(job.number) for job in jobs],
        arrival_seconds=np.array([job.arrival for job in jobs]),
        gpus=np.array([job.gpus for job in jobs]),
        iterations=np.array([float(job.total) for job in jobs]),
        seconds_per_iteration=np.array([1.0 / SPEEDS[job.key] for job in jobs]),
    )
    options = GavelRuleOptions(restart_seconds=restart, least_between_seconds=least_between)
    site = Cluster.parse(f"{gpus}x1 V100")
    made = simulate_one(
        workload,
        site,
        under_rules(Profile.load("max_min_fairness"), options),
        options=SimulationOptions(rules=gavel_rules(workload, site, None, options)),
    )
    rules = Rules(restart=restart, least_between=least_between)
    expected = simulate(jobs, {"V100": gpus}, {"V100": SPEEDS}, level, rules)
    assert (made.finish_seconds - workload.jobs.arrival_seconds).tolist() == pytest.approx(expected.jct, abs=1e-6)
    assert made.faults == ()


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"round_seconds": 0.0}, "a round must take time"),
        ({"restart_seconds": 120.0}, "a restart must be shorter than a round"),
        ({"least_between_seconds": -1.0}, "the time between two solutions must be at least 0"),
        ({"credit": 1.5}, "the credit must be a part of a round"),
        ({"failures": 0}, "a job must be given up after at least 1 round"),
    ],
)
def test_impossible_options_are_refused(changed: dict[str, float], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        dataclasses.replace(SHOCKWAVE, **changed).check()  # type: ignore[arg-type]


def test_settings_that_the_rules_replace_are_named() -> None:
    peer = Peer.named("gavel")
    texts = ["plugins.shockwave_utility.round_length=5m", "plugins.shockwave_utility.k=3", "stages.placement=spread"]
    rule = "options of that name get the rules' own value, which --rule changes"
    assert peer.overruled(texts) == [f"--set plugins.shockwave_utility.round_length does not count: {rule}"]
    written: set[str] = set()
    for policy in ("shockwave", "max_min_fairness"):
        profile = Profile.load(policy)
        before, after = profile.merged.origins, peer.under(profile).merged.origins
        written |= {path[-1] for path in after if path[0] == "plugins" and after[path] != before.get(path)}
    assert written == set(GIVEN)


def test_plugins_get_those_options_of_the_rules_that_they_know() -> None:
    options = dataclasses.replace(SHOCKWAVE, credit=0.25)
    tree = under_rules(Profile.load("max_min_fairness"), options).merged.tree
    assert tree["plugins"]["max_min_fairness"]["least_between"] == "16m40s"
    assert tree["plugins"]["gavel_rounds"] == {
        "walk": "shuffled",
        "round_length": "2m",
        "ends": "executor",
        "credit": 0.25,
    }
    tree = under_rules(Profile.load("fifo"), options).merged.tree
    assert tree["rounds"]["on"] == []
    assert tree["rounds"]["scope"] == "all"


@pytest.mark.parametrize("every", ["2m", "45s", "none"])
def test_the_rules_switch_off_the_periodic_rounds_of_a_preset(every: str) -> None:
    profile = Profile.load("index_rule", settings={"rounds.every": every})
    assert profile.merged.tree["rounds"]["every"] == every
    assert under_rules(profile).merged.tree["rounds"] == under_rules(Profile.load("srtf")).merged.tree["rounds"]
    assert under_rules(profile).merged.tree["rounds"]["every"] == "none"
