"""``--know regimes``: coming regimes reach stages in their order, with true work and rates, and nothing else does."""

import itertools
from pathlib import Path

import polars as pl
import pytest

from eunomia import Cluster, ComingRegime, Profile, Seconds
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, JobFinished, RegimesAnnounced
from eunomia.errors import InputError
from eunomia.platform.registry import Registry
from eunomia.units import AppId, JobId, UserId
from eunomia_testbed import read_trace, simulate
from eunomia_testbed.simulator import SimulationOptions
from eunomia_testbed.simulator.gavel_rules import gavel_rules
from eunomia_testbed.simulator.options import Reports

PLANNER = Path(__file__).parents[1] / "plugins" / "longest_first.py"
SAMPLES = Path(__file__).parent / "samples"
SITE = Cluster.parse("2x4 V100")
JOB = JobId("a/1")
ALL = ("work", "sizes", "types", "regimes")
HEADER = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration,batch_size,regimes"
TRACE = f"""{HEADER}
slows,0,1,150,1,10,"[[100,10,1],[50,20,4]]"
speeds,0,1,300,2,10,"[[100,10,2],[100,20,1],[100,40,0.5]]"
steady,0,2,260,1,10,
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def planned(trace: Path, **reports: object) -> tuple[dict[str, float], dict[str, float]]:
    """The run times that a planner predicts at the first round, and those that the jobs have, in seconds."""
    registry = Registry.find(paths=[PLANNER], installed=False)
    settings = {"stages.allocation": "longest_first"}
    profile = Profile.load("default", registry=registry, settings=settings)
    options = SimulationOptions(reports=Reports(**reports))  # type: ignore[arg-type]
    result = simulate(read_trace(trace), "1x4 V100", [profile], options=options)
    plan = result.records["longest_first"].filter(pl.col("round") == 1)
    return _by_app(plan), _by_app(result.jobs)


def _by_app(table: pl.DataFrame) -> dict[str, float]:
    return {job.removesuffix("/0"): ran for job, ran in zip(table["job"], table["run_seconds"], strict=True)}


def test_a_planner_predicts_the_run_time_of_every_job_from_known_regimes(trace: Path) -> None:
    predicted, ran = planned(trace, know=ALL)
    assert predicted == pytest.approx(ran)
    assert predicted == pytest.approx({"slows": 300.0, "speeds": 350.0, "steady": 260.0})


@pytest.mark.parametrize("know", ["declared", "measured", "oracle", ("work", "sizes", "types")])
def test_regimes_are_known_only_if_requested(trace: Path, know: object) -> None:
    predicted, _ = planned(trace, know=know)
    assert predicted == pytest.approx({"slows": 150.0, "speeds": 600.0, "steady": 260.0})


def test_a_false_report_on_work_stretches_each_regime(trace: Path) -> None:
    predicted, ran = planned(trace, know=("regimes",), lies={"slows": 2.0})
    assert predicted == pytest.approx(ran | {"slows": 600.0})


@pytest.mark.parametrize(("know", "error"), [(("regimes",), "rates"), (ALL, "rates")])
def test_an_error_on_rates_is_refused_if_regimes_are_known(know: tuple[str, ...], error: str) -> None:
    with pytest.raises(InputError, match="error must not be on what is known, but got rates, with known regimes"):
        Reports(know=know, errors={error: 0.2}).check()  # type: ignore[arg-type]


def test_rules_of_peers_count_coming_regimes_in_steps_of_the_current_batch_size() -> None:
    workload = read_trace(SAMPLES / "shockwave.trace", throughputs=SAMPLES / "throughputs.json")
    rules = gavel_rules(workload, Cluster.parse("8x1 V100"))
    rules.begin(workload.size, 0)
    seen = 0
    for job in range(workload.size):
        change, coming = rules.admitted(job, 0.0), rules.coming(job)
        assert bool(coming) <= (change is not None)
        if change is not None:
            later = sum(one.iterations for one in coming)
            assert 0.0 <= later < change.iterations_left
            batches = [change.batch_size, *(one.batch_size for one in coming)]
            assert all(one != other for one, other in itertools.pairwise(batches))
            seen += len(coming)
    assert seen


# --- the event in the arbiter ----------------------------------------------------------------------------------------


def arbiter(*regimes: ComingRegime) -> Arbiter:
    made = Arbiter(SITE, Profile.load("srtf").stages(SITE), Profile.fallback().stages(SITE))
    app = AppArrived(app=AppId("a"), user=UserId("ana"))
    job = JobAdded(job=JOB, app=AppId("a"), iterations=100.0, seconds_per_iteration=1.0)
    made.step(Seconds(0.0), [app, job])
    assert made.step(Seconds(1.0), [RegimesAnnounced(job=JOB, regimes=regimes)]).faults == ()
    return made


def test_announced_regimes_are_in_checkpoints_and_end_with_their_job() -> None:
    regimes = ComingRegime(iterations=30.0, rate=2.0), ComingRegime(iterations=20.0, rate=0.5, batch_size=64.0)
    made = arbiter(*regimes)
    again = Arbiter(SITE, Profile.load("srtf").stages(SITE), Profile.fallback().stages(SITE))
    again.load(made.save())
    for one in (made, again):
        row = one.state.job_row(JOB)
        (kept,) = [one.snapshot().coming_regimes[row]]
        assert [(part.iterations, part.rate) for part in kept] == [(30.0, 2.0), (20.0, 0.5)]
        assert kept[1].batch_size == 64.0
        one.step(Seconds(2.0), [JobFinished(job=JOB)])
        assert one.snapshot().coming_regimes == {}


def test_a_later_announcement_replaces_the_first() -> None:
    made = arbiter(ComingRegime(iterations=30.0, rate=2.0))
    made.step(Seconds(2.0), [RegimesAnnounced(job=JOB, regimes=())])
    assert made.snapshot().coming_regimes == {}


@pytest.mark.parametrize(
    ("regimes", "rule"),
    [
        ([(101.0, 1.0)], "coming regimes must fit into the job's 100 iterations, but got 101 iterations"),
        ([(60.0, 1.0), (60.0, 1.0)], "coming regimes must fit into the job's 100 iterations, but got 120 iterations"),
        ([(0.0, 1.0)], "iterations of a coming regime must be a number above 0, but got 0.0"),
        ([(float("nan"), 1.0)], "iterations of a coming regime must be a number above 0, but got nan"),
        ([(5.0, -1.0)], "the rate of a coming regime must be a number of 0 or more, but got -1.0"),
        ([(0.1, 1.0)] * 257, "a job must announce at most 256 coming regimes, but got 257"),
    ],
)
def test_invalid_regimes_are_refused_and_change_nothing(regimes: list[tuple[float, float]], rule: str) -> None:
    made = arbiter(ComingRegime(iterations=30.0, rate=2.0))
    wrong = tuple(ComingRegime(iterations=iterations, rate=rate) for iterations, rate in regimes)
    (fault,) = made.step(Seconds(2.0), [RegimesAnnounced(job=JOB, regimes=wrong)]).faults
    assert rule in fault.what
    ((kept,),) = made.snapshot().coming_regimes.values()
    assert kept.iterations == 30.0


def test_regimes_of_a_job_that_ended_are_refused() -> None:
    made = arbiter()
    made.step(Seconds(2.0), [JobFinished(job=JOB)])
    (fault,) = made.step(Seconds(3.0), [RegimesAnnounced(job=JOB, regimes=())]).faults
    assert str(JOB) in fault.what
