"""``simulate --windows`` and several traces: batch means over parts of a trace, and independent traces of a cluster."""

import heapq
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from eunomia.cli import run
from eunomia.units import Reals
from eunomia_testbed import read_trace
from eunomia_testbed import simulate as simulate_in_python
from eunomia_testbed.evidence.draws import DrawKind
from eunomia_testbed.evidence.evidence import evidence_in
from eunomia_testbed.results import RunData
from eunomia_testbed.running.windows import Windows, windows_of
from eunomia_testbed.workload import Workload


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER"):
        monkeypatch.setenv(name, "")
    yield


def write(name: str, apps: int, seed: int = 4) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(180.0, size=apps))
    lines = ["job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration"]
    lines += [
        f"j{at},u{at % 3},{arrivals[at] - arrivals[0]:.2f},{rng.choice([1, 2])},{rng.integers(50, 900)},1.0"
        for at in range(apps)
    ]
    Path(name).write_text("\n".join(lines) + "\n")


def simulate(*given: str) -> int:
    usual = ["--cluster", "1x4 V100", "--policy", "fifo", "--policy", "srtf", "--no-progress"]
    return run(["simulate", *given, *usual])


def test_windows_count_their_own_apps_and_give_batch_means(capsys: pytest.CaptureFixture[str]) -> None:
    write("jobs.csv", 401)
    assert simulate("jobs.csv", "--windows", "2", "--out", "out") == 0
    shown = capsys.readouterr().out
    assert "2 windows of jobs.csv: 95 % intervals are Student's t." in shown
    assert "a part of the trace, not of the whole" in shown
    found = RunData.load(Path("out"))
    assert found.facts is not None
    assert (found.facts.draws.kind, found.facts.draws.count) == (DrawKind.WINDOWS, 2)
    rows = found.resamples.filter(pl.col("policy") == "fifo")
    assert rows["apps"].to_list() == [200, 201]
    assert rows["makespan_seconds"].null_count() == 2  # of no part alone
    # In order of arrival, the first part does not feel later apps: its figure is that of its apps in the whole trace.
    alone = found.apps.filter(pl.col("policy") == "fifo").sort("arrival_seconds").head(200)["jct_seconds"].mean()
    assert rows["jct_mean_seconds"][0] == pytest.approx(alone)
    summary = pl.read_csv("out/summary.csv", infer_schema_length=None)
    mean = evidence_in(Path("out"), found.facts, summary).figure("fifo", "jct_mean_seconds")
    assert mean is not None and mean.low is not None and mean.count == 2
    assert mean.value == pytest.approx(rows["jct_mean_seconds"].mean())


def test_a_window_includes_half_a_part_before_and_after_it() -> None:
    write("jobs.csv", 600)
    trace = read_trace("jobs.csv")
    windows = windows_of(trace, 3, place="--windows")
    second = windows.workload(trace, 2)
    assert second.apps.id[0] == trace.apps.id[100]
    assert second.apps.id[-1] == trace.apps.id[499]
    assert second.apps.arrival_seconds[0] == 0.0
    assert windows.counted(trace, 2) == frozenset(trace.apps.id[200:400])
    assert windows.workload(trace, 1).apps.id[0] == trace.apps.id[0]
    assert windows.workload(trace, 3).apps.id[-1] == trace.apps.id[599]


def shortest_first(arrivals: Reals, work: Reals, servers: int = 8) -> Reals:
    """Times in the system of a queue that serves the shortest waiting job first, without preemption."""
    free, waiting, times, at = [0.0] * servers, list[tuple[float, int]](), np.empty(work.size), 0
    for _ in range(work.size):
        now = heapq.heappop(free)
        now = now if waiting else max(now, arrivals[at])
        while at < work.size and arrivals[at] <= now:
            heapq.heappush(waiting, (work[at], at))
            at += 1
        length, job = heapq.heappop(waiting)
        times[job] = now + length - arrivals[job]
        heapq.heappush(free, now + length)
    return times


def relative_bias(load: float, number: int, *, after: bool, trials: int = 100) -> float:
    """Mean difference of a part's figure from that of the same jobs in a queue of five parts, relative to it."""
    apps, rng, found = 1000, np.random.default_rng(27), []
    names = [f"j{at}" for at in range(apps)]
    for _ in range(trials):
        work = rng.lognormal(0.0, 1.0, size=apps)
        arrivals = np.cumsum(rng.exponential(math.exp(0.5) / 8 / load, size=apps))
        trace = Workload.single_jobs(
            "queue", ids=names, arrival_seconds=arrivals, gpus=np.ones(apps, int), iterations=work,
            seconds_per_iteration=np.ones(apps),
        )  # fmt: skip
        windows, whole = Windows(count=5, source="queue"), shortest_first(arrivals, work)
        mine, part = windows.counted(trace, number), windows.workload(trace, number)
        inside = np.array([name in mine for name in part.apps.id])
        end = inside.size if after else np.flatnonzero(inside)[-1] + 1
        times = shortest_first(part.apps.arrival_seconds[:end], part.jobs.iterations[:end])
        found.append(times[inside[:end]].mean() / whole[np.array([name in mine for name in names])].mean() - 1.0)
    return float(np.mean(found))


def test_including_later_apps_makes_the_mean_over_a_part_unbiased() -> None:
    # The first part begins as the whole does, so that the end of the part alone makes the difference.
    assert abs(relative_bias(0.9, 1, after=True)) < 0.004
    assert relative_bias(0.9, 1, after=False) < -0.01
    assert abs(relative_bias(0.8, 3, after=True)) < 0.01


@pytest.mark.slow
def test_several_traces_in_one_simulation_count_as_independent_draws(capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("a.csv", "b.csv", "c.csv")):
        write(name, 60, seed=number)
    assert simulate("a.csv", "b.csv", "c.csv", "--out", "out") == 0
    assert "3 traces: 95 % intervals are Student's t." in capsys.readouterr().out
    found = RunData.load(Path("out"))
    assert found.facts is not None
    assert (found.facts.draws.kind, found.facts.draws.count) == (DrawKind.TRACES, 3)
    assert found.runs() == [(policy, number) for policy in ("fifo", "srtf") for number in range(3)]
    assert [Path(each.path).name for each in found.facts.inputs] == ["a.csv", "b.csv", "c.csv"]
    one = simulate_in_python(read_trace("b.csv"), "1x4 V100", policies=["fifo"]).jobs
    assert found.jobs.filter((pl.col("policy") == "fifo") & (pl.col("seed") == 1))["finish_seconds"].equals(
        one["finish_seconds"]
    )
    several = simulate_in_python([read_trace(f"{name}.csv") for name in "abc"], "1x4 V100", policies=["fifo", "srtf"])
    assert several.run.facts is not None and several.run.facts.draws.kind is DrawKind.TRACES


def test_a_drawn_app_reports_as_falsely_as_its_original() -> None:
    write("jobs.csv", 60)
    trace = read_trace("jobs.csv")
    from eunomia_testbed.spec.planning import plan_of
    from eunomia_testbed.spec.simulation import spec_of

    given = {"workload": trace, "cluster": "1x4 V100", "policies": ["srtf"], "lie": ["j3=2.0"], "resample": 39}
    plan, _ = plan_of(spec_of(given))
    for cell in plan.cells()[1:]:
        workload = plan.workload_of(cell)
        lies = plan.options_of(workload, resampled=True).reports.lies
        assert set(lies) == {app for app in workload.apps.id if app.partition("~")[0] == "j3"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a.csv", "--windows", "1"], "windows must be at least 2, but got 1"),
        (["a.csv", "--windows", "2"], "a trace must have at least 400 apps for 2 windows, 200 for each, but got 60"),
        (["a.csv", "--windows", "2", "--resample", "100"], "--windows must stand without --resample"),
        (["a.csv", "--windows", "2", "--seeds", "0-2"], "--windows must stand with one seed"),
        (["a.csv", "b.csv", "--windows", "2"], "--windows must stand with one trace"),
        (["a.csv", "b.csv", "--resample", "100"], "--resample must stand with one trace"),
        (["a.csv", "b.csv", "--seeds", "0-1"], "--seeds must stand with one trace"),
        (["a.csv", "a.csv"], "several traces must be different ones"),
        (["a.csv", "b.csv", "--workload", "gavel"], "either a trace or --workload"),
    ],
)
def test_bad_input_is_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("a.csv", 60)
    write("b.csv", 60, seed=5)
    assert simulate(*given, "--out", "out") == 2
    assert said in capsys.readouterr().err
    assert not Path("out").exists()
