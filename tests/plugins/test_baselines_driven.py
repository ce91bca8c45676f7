"""The baselines through the arbiter: every job ends, no round faults, and jobs are served in the stated order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import Cluster, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.platform.registry import default_registry
from eunomia.round.invariants import check_state
from eunomia.testing.drive import Delays, Drive, Outcome
from eunomia.units import AppId, JobId, UserId
from strength import examples

Job = tuple[float, int, int, float]
"""Arrival, least, further GPUs, seconds on one GPU."""


def drive(profile: Profile, jobs: list[Job], cluster: str = "2x4 V100", *, delays: Delays | None = None) -> Outcome:
    site = Cluster.parse(cluster)
    arbiter = Arbiter(site, profile.stages(site), Profile.fallback().stages(site))

    def watch(run: Drive, decision: Decision) -> None:
        assert decision.faults == ()
        check_state(run.arbiter.state)

    script: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for number, (arrival, least, more, seconds) in enumerate(jobs):
        app, job = AppId(f"a{number}"), JobId(f"a{number}/0")
        script.append((arrival, AppArrived(app=app, user=UserId("ana"), divides=False)))
        added = JobAdded(
            job=job, app=app, least=least, most=least + more, seconds_per_iteration=1.0, iterations=seconds
        )
        script.append((arrival, added))
        work[job] = seconds
    return Drive(arbiter, work=work, delays=delays, watch=watch).run(script, until=4000.0)


_JOBS = st.lists(
    st.tuples(st.floats(0.0, 60.0), st.integers(1, 4), st.integers(0, 4), st.floats(1.0, 200.0)),
    min_size=1,
    max_size=12,
)
PROFILES = {
    "default": (),
    "spread": (),
    "leases": ("rounds.lease=20s", "stages.elasticity=range"),
    "preemptive": ("plugins.ordered.preemptive=true", "stages.elasticity=range"),
    "las": ("rounds.every=30s",),
    "queues": ("stages.valuation=las", "plugins.las.queues=[40.0, 160.0]", "plugins.ordered.preemptive=true"),
    "stop": ("plugins.ordered.on_misfit=stop",),
    "easy": (),
    "conservative": ("plugins.ordered.on_misfit=conservative", "stages.elasticity=range", "rounds.lease=20s"),
    "srtf": (),
    "srsf": ("stages.elasticity=throughput",),
    "themis_rho": ("rounds.every=30s",),
    "edf": ("stages.valuation=edf", "plugins.ordered.preemptive=true"),
    "random": ("stages.valuation=random", "stages.placement=random", "rounds.lease=20s"),
    "tiresias": (
        "plugins.las.queues=[20.0, 100.0]",
        "plugins.las.promote_knob=2.0",
        "plugins.consolidated.patience=30s",
        "rounds.every=20s",
    ),
    "max_min": (),
    "max_min_time": ("plugins.time_sharing.round_length=20s", "plugins.time_sharing.least_between=50s"),
    "max_min_users": ("plugins.rounding.round_length=20s", "plugins.max_min_users.among=apps"),
    "drf": ("rounds.lease=20s",),
    "isolated": ("stages.allocation=isolated", "plugins.isolated.parts=1"),
}


@pytest.mark.parametrize("name", PROFILES)
@settings(max_examples=examples(15), deadline=None)
@given(jobs=_JOBS, slow=st.booleans())
def test_every_job_ends_and_no_round_faults(name: str, jobs: list[Job], slow: bool) -> None:
    presets = default_registry().presets()
    base = name if name in presets or name == "spread" else "default"
    delays = Delays(order=0.5, start=2.0, release=3.0, lost=0.2) if slow else None
    outcome = drive(Profile.load(base, settings=PROFILES[name]), jobs, delays=delays)
    assert len(outcome.finished) == len(jobs)


def test_jobs_at_the_threshold_of_a_queue_do_not_swap_places_repeatedly() -> None:
    """Three jobs on three GPUs each reach 40 GPU-seconds together; their service differs in the last digit only."""
    jobs: list[Job] = [(60.0, 1, 2, 200.0), (0.0, 1, 2, 100.0), (0.0, 1, 2, 19.470358407904193)]
    jobs += [
        (0.0, 4, 3, 135.90748021729723),
        (60.0, 2, 1, 200.0),
        (60.0, 2, 1, 189.22981473688057),
        (60.0, 3, 4, 200.0),
    ]
    outcome = drive(Profile.load("default", settings=PROFILES["queues"]), jobs)
    assert len(outcome.finished) == len(jobs)
    assert outcome.steps < 1000


def test_fifo_serves_in_order_and_las_lets_the_short_job_pass() -> None:
    jobs = [(0.0, 4, 0, 4000.0), (1.0, 4, 0, 40.0)]
    fifo = drive(Profile.load("default"), jobs, "1x4 V100").finished
    las = drive(Profile.load("las", settings={"rounds.protected": "0s"}), jobs, "1x4 V100").finished
    assert fifo == {"a0/0": 1000.0, "a1/0": 1010.0}
    assert las[JobId("a1/0")] == pytest.approx(11.0)
    assert las[JobId("a0/0")] == pytest.approx(1010.0)


def test_a_job_that_has_just_started_is_demoted_when_it_crosses_a_threshold() -> None:
    """No event occurs between the start at 0 and the crossing at 10 s, so the round must have asked for that time."""
    settings = {"stages.valuation": "las", "plugins.las.queues": [40.0], "plugins.ordered.preemptive": True}
    jobs = [(0.0, 4, 0, 4000.0), (0.0, 4, 0, 40.0)]
    finished = drive(Profile.load("default", settings=settings), jobs, "1x4 V100").finished
    assert finished[JobId("a1/0")] == pytest.approx(20.0, abs=0.01)


def test_srtf_stops_the_long_job_once_for_each_shorter_one() -> None:
    """By the rate of the moment an elastic job on few GPUs looks long, and two jobs would take turns for ever."""
    settings = {"stages.elasticity": "range"}
    jobs = [(0.0, 1, 7, 8000.0), (10.0, 2, 6, 400.0), (20.0, 1, 7, 800.0)]
    outcome = drive(Profile.load("srtf", settings=settings), jobs, "1x8 V100")
    orders = [order for decision in outcome.decisions for order in decision.transitions]
    starts = [order.job for order in orders if order.kind is TransitionKind.START]
    assert len(outcome.finished) == 3
    assert max(starts.count(JobId(f"a{number}/0")) for number in range(3)) <= 3


def test_easy_backfilling_does_not_delay_the_head() -> None:
    """On 4 GPUs, two of them taken for 100 s: a gang of 4 starts at 100 s although short jobs keep coming."""
    jobs = [(0.0, 2, 0, 200.0), (1.0, 4, 0, 400.0), *((2.0 + number, 2, 0, 60.0) for number in range(6))]
    skip = drive(Profile.load("default"), jobs, "1x4 V100").finished
    easy = drive(Profile.load("easy"), jobs, "1x4 V100").finished
    assert easy[JobId("a1/0")] == pytest.approx(200.0)
    assert skip[JobId("a1/0")] > 210.0
    assert min(easy[JobId(f"a{number}/0")] for number in range(2, 8)) < 100.0


def test_range_uses_gpus_that_fixed_leaves_idle() -> None:
    jobs = [(0.0, 4, 0, 400.0), (0.0, 1, 7, 400.0)]
    fixed = drive(Profile.load("default"), jobs, "1x8 V100").finished
    ranged = drive(Profile.load("default", settings={"stages.elasticity": "range"}), jobs, "1x8 V100").finished
    assert fixed[JobId("a1/0")] == 150.0
    assert ranged[JobId("a1/0")] == 100.0
