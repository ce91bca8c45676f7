"""Explanations in planted situations: reason, numbers and what frees the job are right, and doing that frees it."""

import dataclasses
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from assembling import assemble
from eunomia import (
    Allocation,
    ChangeCosts,
    Claims,
    Cluster,
    Explanation,
    Grants,
    Menus,
    Offer,
    Profile,
    Reason,
    Scores,
    Snapshot,
    Stage,
    Unit,
    Valuations,
    Verdicts,
    hookimpl,
)
from eunomia.contract.events import JobFailed, JobFinished, JobPaused, JobReported, JobResumed, MachineLost, UserHeld
from eunomia.explain.explaining import past_waits
from eunomia.explain.remedies import REMEDIES
from eunomia.units import JobId, Seconds, UserId

_spec = importlib.util.spec_from_file_location("explain_lab", Path(__file__).parent / "explain_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("explain_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
Lab: Any = lab_module.Lab
Make = Callable[[Cluster], Any]


def profile(name: str = "default", **settings: object) -> Make:
    made = Profile.load(name, settings={key.replace("__", "."): item for key, item in settings.items()})
    return lambda cluster: made.stages(cluster)


class Refusing:
    """Serves candidates by arrival; a rule turns some of them down for a reason of its own."""

    name = "refusing"
    api = 1
    contracts: ClassVar[dict[Stage, Any]] = {}

    def __init__(self, rule: Callable[[Snapshot, int], Reason | None], starts_at: float = math.nan) -> None:
        self.rule, self.starts_at = rule, starts_at

    @hookimpl
    def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
        jobs = offer.candidates
        claims = Claims(unit=Unit.JOB, rows=jobs)
        return Valuations(claims=claims, forms=(Scores(score=snapshot.jobs.arrived[jobs]),))

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        free = int((snapshot.holdings.lease[offer.gpus] == -1).sum())
        rows = [row for row in offer.candidates.tolist() if snapshot.jobs.state[row] == 1]
        gpus, reasons = [], []
        for row in rows:
            reason = self.rule(snapshot, row)
            size = 0 if reason is not None else menus.largest_at_most(row, free)
            free -= size
            gpus.append(size)
            reasons.append(int(reason or Reason.OUTRANKED))
        granted = np.array(gpus, np.int64)
        late = np.flatnonzero(granted == 0)
        claimed = np.array(rows, np.int32)
        planned = math.isfinite(self.starts_at) and snapshot.now < self.starts_at
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=claimed),
            amount=Grants(gpus=granted),
            order=np.flatnonzero(granted > 0).astype(np.int32),
            wake_at=Seconds(self.starts_at) if planned else Seconds(math.inf),
            starts_at=np.where(granted > 0, np.nan, self.starts_at) if planned else None,
            verdicts=Verdicts(rows=claimed[late], reasons=np.array(reasons, np.int32)[late]),
        )

    @hookimpl
    def eunomia_explain(self, job: JobId) -> Explanation:
        return Explanation(text=f"{job} is refused.", numbers={"patience": 3.0}, frees=("a kind word",))


class Broken(Refusing):
    name = "broken"

    def __init__(self) -> None:
        super().__init__(lambda snapshot, row: None)

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        raise ValueError("a hole in the road")

    @hookimpl
    def eunomia_explain(self, job: JobId) -> Explanation:
        raise RuntimeError("not in the mood")


def policy(plugin: Callable[[], Refusing], *, lease: float | None = None, name: str = "refusing") -> Make:
    base = Profile.load("default")
    rounds = dataclasses.replace(base.rounds, lease=None if lease is None else Seconds(lease))

    def make(cluster: Cluster) -> Any:
        stages, made = base.stages(cluster), plugin()
        return dataclasses.replace(
            assemble(
                elasticity=_Fixed(stages), valuation=made, allocation=made, placement=_Packed(stages), rounds=rounds
            ),
            profile=name,
        )

    return make


class _Fixed:
    name = "fixed"

    def __init__(self, stages: Any) -> None:
        self.stages = stages

    @hookimpl
    def eunomia_elasticity(self, snapshot: Snapshot) -> Menus:
        return self.stages.elasticity(snapshot)  # type: ignore[no-any-return]


class _Packed:
    name = "packed"

    def __init__(self, stages: Any) -> None:
        self.stages = stages

    @hookimpl
    def eunomia_placement(self, snapshot: Snapshot, menus: Menus, offer: Offer, allocation: Allocation) -> Any:
        return self.stages.placement(snapshot, menus, offer, allocation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One situation: a job that waits, and what has to be said of it."""

    build: Callable[[], Lab]
    job: str
    reason: Reason
    frees: tuple[str, ...]
    """Ways that must be among those named; each is done in a fresh copy of the situation, and must free the job."""
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    says: str = ""
    starts: tuple[float, float] | None = None
    plugin: str | None = None


WORK = {"iterations": 100.0, "seconds_per_iteration": 1.0}


def two_types() -> Cluster:
    return Cluster.parse("1x2 V100, 1x2 P100")


def lab(cluster: str | Cluster = "1x4 V100", make: Make | None = None, **options: Any) -> Lab:
    return Lab(cluster, make or profile(), **options)


def build(*steps: Callable[[Lab], Any], site: Callable[[], Lab] = lab) -> Callable[[], Lab]:
    """Builds the situation again at each call."""

    def made() -> Lab:
        town = site()
        for step in steps:
            step(town)
        return town

    return made


def comes(name: str, gpus: int | tuple[int, int] = 1, **job: Any) -> Callable[[Lab], None]:
    return lambda town: town.submit(name, gpus, **job)


def happens(*events: Any) -> Callable[[Lab], Any]:
    return lambda town: town.step(*events)


def after(seconds: float) -> Callable[[Lab], None]:
    return lambda town: town.pass_to(town.now + seconds)


def loses(machine: int) -> Callable[[Lab], Any]:
    return lambda town: town.step(MachineLost(machine=town.cluster.machines[machine].name))


def finished(*jobs: str) -> Callable[[Lab], Any]:
    return happens(*[JobFinished(job=JobId(job)) for job in jobs])


STOP = profile(plugins__ordered__on_misfit="stop")
LAS = profile(
    "las",
    rounds__lease="60s",
    rounds__every="none",
    rounds__protected="0s",
    plugins__las__queues=[],
    plugins__ordered__preemptive=False,
)
SIX_MINUTES = profile("las")
AT_ENDS = profile("las", rounds__when_unprotected=True)
TURNS = profile("las", rounds__every="60s", rounds__protected="0s")
THEMIS: dict[str, object] = {"rounds.lease": "10s", "rounds.bid_deadline": "none", "stages.elasticity": "fixed"}


def themis(**settings: object) -> Make:
    made = Profile.load("themis", settings=THEMIS | {key.replace("__", "."): item for key, item in settings.items()})
    return lambda cluster: made.stages(cluster)


def refusing(rule: Callable[[Snapshot, int], Reason | None], **options: Any) -> Make:
    plugin = {key: options.pop(key) for key in ("starts_at",) if key in options}
    return policy(lambda: Refusing(rule, **plugin), **options)


def before(time: float, reason: Reason) -> Callable[[Snapshot, int], Reason | None]:
    """Refuse everybody's second job until then."""
    return lambda snapshot, row: reason if row > 0 and snapshot.now < time else None


def anybody(snapshot: Snapshot, row: int) -> None:
    return None


def unmeasured(snapshot: Snapshot, row: int) -> Reason | None:
    return None if row in snapshot.measured else Reason.NOT_PROFILED


def every(seconds: float, rule: Callable[[Snapshot, int], Reason | None]) -> Make:
    made = policy(lambda: Refusing(rule))

    def make(cluster: Cluster) -> Any:
        stages = made(cluster)
        return dataclasses.replace(stages, rounds=dataclasses.replace(stages.rounds, every=Seconds(seconds)))

    return make


def search(name: str, jobs: int = 2) -> Callable[[Lab], None]:
    return lambda town: town.submit(name, jobs=jobs, divides=True, kind=name, **WORK)


def disobeys(town: Lab) -> None:
    town.obeys = False


def undivided(town: Lab) -> None:
    town.divides = False


CASES = {
    "too large for the cluster": Case(
        build=build(comes("a", 3), comes("b", 8)),
        job="b/0",
        reason=Reason.NO_SIZE_FITS,
        frees=("nothing",),
        numbers={"least": 8, "capacity": 4, "widest": 4},
        says="It needs at least 8 slots; the cluster has 4, at most 4 on one machine.",
    ),
    "too large while a machine is down": Case(
        build=build(loses(1), comes("b", 8), site=lambda: lab("2x4 V100")),
        job="b/0",
        reason=Reason.NO_SIZE_FITS,
        frees=("machine_back",),
        numbers={"least": 8, "capacity": 4},
    ),
    "a type that nobody has": Case(
        build=build(comes("b", 1, gpu_type="A100")),
        job="b/0",
        reason=Reason.NO_GPU_OF_TYPE,
        frees=("nothing",),
        numbers={"capacity": 0, "free": 0},
    ),
    "a type that is busy": Case(
        build=build(
            comes("a", 2, gpu_type="V100", **WORK),
            comes("b", 2, gpu_type="V100"),
            site=lambda: lab(two_types(), refusing(anybody)),
        ),
        job="b/0",
        reason=Reason.NO_GPU_OF_TYPE,
        frees=("release", "gpus"),
        numbers={"least": 2, "free": 0, "capacity": 2},
        says="It needs 2 slots of V100; 0 of 2 of that type are free.",
        starts=(50.0, 50.0),
    ),
    "free slots of two types": Case(
        build=build(
            comes("a", 1, gpu_type="V100"), comes("b", 3), site=lambda: lab("1x3 V100, 1x2 P100", refusing(anybody))
        ),
        job="b/0",
        reason=Reason.FRAGMENTED,
        frees=("release", "gpus"),
        numbers={"least": 3, "free": 4, "largest": 2},
        says="It needs 3 slots together; 4 are free, at most 2 of them on one machine.",
        plugin="packed",
    ),
    "CPUs of the machine are used": Case(
        build=build(
            comes("a", 1, cpus_per_gpu=6.0), comes("b", 1, cpus_per_gpu=4.0), site=lambda: lab("1x4 V100 8cpu 64GiB")
        ),
        job="b/0",
        reason=Reason.CPUS_SHORT,
        frees=("cpus", "release"),
        numbers={"cpus_asked": 4, "cpus_left": 2},
        says="It needs 4 CPUs with 1 slot; machines with free slots have at most 2.",
        plugin="packed",
    ),
    "memory of the machine is used": Case(
        build=build(
            comes("a", 1, memory_gib_per_gpu=60.0),
            comes("b", 2, memory_gib_per_gpu=8.0),
            site=lambda: lab("1x4 V100 8cpu 64GiB"),
        ),
        job="b/0",
        reason=Reason.MEMORY_SHORT,
        frees=("memory", "release"),
        numbers={"memory_asked": 16, "memory_left": 4},
        plugin="packed",
    ),
    "behind a gang that runs": Case(
        build=build(comes("a", 3), comes("b", 2)),
        job="b/0",
        reason=Reason.OUTRANKED,
        frees=("release", "gpus"),
        numbers={"least": 2, "free": 1, "others_waiting": 0, "place": 1},
        says="It wants 2 slots; 1 free now, and no other job waits.",
        plugin="ordered",
    ),
    "behind a gang whose end is known": Case(
        build=build(comes("a", 3, **WORK), after(10.0), comes("b", 2)),
        job="b/0",
        reason=Reason.OUTRANKED,
        frees=("release",),
        starts=(100.0 / 3.0 - 10.0,) * 2,
    ),
    "third in the queue": Case(
        build=build(comes("a", 3), comes("b", 2), comes("c", 2), comes("d", 2)),
        job="d/0",
        reason=Reason.OUTRANKED,
        frees=(),
        numbers={"others_waiting": 2, "place": 3},
        says="It wants 2 slots; 1 free now, and it is number 3 of 3 in the order of service, behind b/0 and c/0.",
    ),
    "behind one who waits for more": Case(
        build=build(comes("a", 3), comes("b", 2), comes("c", 1), site=lambda: lab(make=STOP)),
        job="c/0",
        reason=Reason.OUTRANKED,
        frees=("release", "order"),
        numbers={"others_waiting": 1, "place": 2, "free": 1},
    ),
    "two gangs have to leave": Case(
        build=build(comes("a", 2), comes("b", 2), comes("c", 4), site=lambda: lab("1x5 V100")),
        job="c/0",
        reason=Reason.OUTRANKED,
        frees=("release", "gpus"),
        numbers={"least": 4, "free": 1},
    ),
    "an elastic job": Case(
        build=build(comes("a", 3), comes("b", (2, 4)), site=lambda: lab(make=profile(stages__elasticity="range"))),
        job="b/0",
        reason=Reason.OUTRANKED,
        frees=("release", "gpus"),
        numbers={"least": 2, "free": 1},
        says="It wants 2 to 4 slots; 1 free now, and no other job waits.",
    ),
    "the lease of one who had more": Case(
        build=build(comes("a", 4), after(20.0), comes("b", 4), site=lambda: lab("1x5 V100", LAS)),
        job="b/0",
        reason=Reason.OUTRANKED,
        frees=("lease_end", "release", "gpus"),
        starts=(40.0, 40.0),
    ),
    "the protected part of a lease": Case(
        build=build(after(100.0), comes("a", 2), after(60.0), comes("b", 2), site=lambda: lab("1x2 V100", SIX_MINUTES)),
        job="b/0",
        reason=Reason.AWAITING_ROUND,
        frees=("protection_end", "release", "gpus"),
        starts=(300.0, 560.0),
    ),
    "the protected part of a lease, and a round at its end": Case(
        build=build(after(100.0), comes("a", 2), after(60.0), comes("b", 2), site=lambda: lab("1x2 V100", AT_ENDS)),
        job="b/0",
        reason=Reason.AWAITING_ROUND,
        frees=("protection_end", "release", "gpus"),
        starts=(300.0, 300.0),
    ),
    "a running job that will have had more": Case(
        build=build(
            comes("b", 2, **WORK), after(20.0), comes("a", 2, **WORK), after(10.0), site=lambda: lab("1x2 V100", TURNS)
        ),
        job="b/0",
        reason=Reason.OUTRANKED,
        frees=("round", "gpus"),
        starts=(30.0, 30.0),
    ),
    "the offer went to others": Case(
        build=build(search("a"), search("b"), search("c"), after(10.0), site=lambda: lab("1x2 V100", themis())),
        job="c/1",
        reason=Reason.NOT_OFFERED,
        frees=("lease_end",),
        plugin="themis",
    ),
    "others gained more": Case(
        build=build(
            search("a", 1),
            search("b", 1),
            search("c", 1),
            after(10.0),
            site=lambda: lab("1x2 V100", themis(plugins__themis__fairness_knob=0.0)),
        ),
        job="b/0",
        reason=Reason.OUTBID,
        frees=("lease_end", "release", "gpus"),
        numbers={"least": 1, "free": 0, "rho": 0.4},
        plugin="themis",
    ),
    "won and paid": Case(
        build=build(
            comes("a", 1),
            comes("b", 1),
            site=lambda: lab("1x4 V100", refusing(before(5.0, Reason.HELD_BACK), lease=10.0)),
        ),
        job="b/0",
        reason=Reason.HELD_BACK,
        frees=("round",),
        says="b won slots, and they were kept back as its payment for what other apps lost by that.",
        starts=(10.0, 10.0),
    ),
    "had its share until the next period": Case(
        build=build(
            comes("a", 1),
            comes("b", 1),
            after(10.0),
            site=lambda: lab("1x4 V100", every(10.0, before(15.0, Reason.SHARE_USED_UP))),
        ),
        job="b/0",
        reason=Reason.SHARE_USED_UP,
        frees=("round",),
        numbers={"received": 0},
        starts=(10.0, 10.0),
    ),
    "planned": Case(
        build=build(
            comes("a", 1),
            comes("b", 1),
            after(10.0),
            site=lambda: lab("1x4 V100", refusing(before(40.0, Reason.PLANNED_LATER), starts_at=40.0)),
        ),
        job="b/0",
        reason=Reason.PLANNED_LATER,
        frees=("plan",),
        numbers={"planned_in": 30},
        says="The plan lets it start in 30 s.",
        starts=(30.0, 30.0),
    ),
    "booked behind a gang whose end is known": Case(
        build=build(
            comes("a", 3, **WORK),
            comes("b", 4, **WORK),
            site=lambda: lab(make=profile(plugins__ordered__on_misfit="easy")),
        ),
        job="b/0",
        reason=Reason.PLANNED_LATER,
        frees=("plan", "release"),
        plugin="ordered",
        starts=(100.0 / 3.0,) * 2,
    ),
    "granted what others leave": Case(
        build=build(comes("a", 4), disobeys, comes("b", 4), after(61.0), site=lambda: lab("1x4 V100", LAS)),
        job="b/0",
        reason=Reason.AWAITING_RELEASE,
        frees=("release",),
        numbers={"granted": 4, "pending": 4},
        says="It was granted 4 slots; the last holders still have 4 of them.",
        starts=(0.0, 29.0),
        plugin="",
    ),
    "paused, with room": Case(
        build=build(comes("b", 1), happens(JobPaused(job=JobId("b/0")))),
        job="b/0",
        reason=Reason.PAUSED_BY_APP,
        frees=("resume",),
        says="Its app b does not want it to run now.",
        plugin="",
    ),
    "of a suspended app": Case(
        build=build(comes("b", 1), happens(JobPaused(job=JobId("b/0"), suspended="its folder takes too much"))),
        job="b/0",
        reason=Reason.SUSPENDED,
        frees=("resume",),
        says="Its app b is suspended.",
        plugin="",
    ),
    "paused, without room": Case(
        build=build(comes("b", 1), happens(JobPaused(job=JobId("b/0"))), comes("a", 4)),
        job="b/0",
        reason=Reason.PAUSED_BY_APP,
        frees=(),
    ),
    "never measured": Case(
        build=build(comes("b", 1), site=lambda: lab(make=refusing(unmeasured))),
        job="b/0",
        reason=Reason.NOT_PROFILED,
        frees=("measured",),
        says="No rate of it is known at 1 slot.",
    ),
    "failed a moment ago": Case(
        build=build(comes("b", 2), happens(JobFailed(job=JobId("b/0"), again_in=Seconds(20.0))), after(5.0)),
        job="b/0",
        reason=Reason.BACKING_OFF,
        frees=("pause_end",),
        numbers={"again_in": 15},
        says="It failed, and is tried again in 15 s.",
        starts=(15.0, 15.0),
        plugin="",
    ),
    "failed, and the cluster is full": Case(
        build=build(
            comes("b", 2),
            happens(JobFailed(job=JobId("b/0"), again_in=Seconds(20.0))),
            comes("a", 4, **WORK),
        ),
        job="b/0",
        reason=Reason.BACKING_OFF,
        frees=(),
        starts=(20.0, 25.0),
    ),
    "its user's GPU hours are used up": Case(
        build=build(comes("b", 2), happens(UserHeld(user=UserId("ana"), until=Seconds(20.0))), after(5.0)),
        job="b/0",
        reason=Reason.GPU_HOURS,
        frees=("pause_end",),
        numbers={"again_in": 15},
        says="The slot-hours that the operator gave its user for this day are used up; it goes on in 15 s.",
        starts=(15.0, 15.0),
        plugin="",
    ),
    "came between two rounds": Case(
        build=build(after(5.0), comes("b", 1), site=lambda: lab(make=profile(rounds__every="30s"))),
        job="b/0",
        reason=Reason.AWAITING_ROUND,
        frees=("round",),
        numbers={"free": 4, "offered": 0},
        starts=(25.0, 25.0),
        plugin="",
    ),
    "came to a full cluster": Case(
        build=build(comes("a", 4, **WORK), comes("b", 1)),
        job="b/0",
        reason=Reason.AWAITING_ROUND,
        frees=("release", "gpus"),
        numbers={"free": 0},
        starts=(25.0, 25.0),
    ),
    "a machine is down and the rest is taken": Case(
        build=build(loses(1), comes("a", 4), comes("b", 2), site=lambda: lab("2x4 V100")),
        job="b/0",
        reason=Reason.AWAITING_ROUND,
        frees=("release", "gpus", "machine_back"),
    ),
    "an offer is open": Case(
        build=build(search("a", 1), site=lambda: lab("1x2 V100", themis(rounds__bid_deadline="2s"))),
        job="a/0",
        reason=Reason.AWAITING_ROUND,
        frees=("offer_end",),
        numbers={"offered": 2, "closes_in": 2},
        says="An offer of 2 slots is out with the apps; it is decided within 2 s.",
        starts=(2.0, 2.0),
    ),
    "its app has a slot for it": Case(
        build=build(undivided, search("a", 1), site=lambda: lab("1x2 V100", themis())),
        job="a/0",
        reason=Reason.AWAITING_ROUND,
        frees=("division",),
    ),
    "a plugin that fails": Case(
        build=build(comes("b", 1), site=lambda: lab(make=policy(Broken, name="broken"), fallback=profile())),
        job="b/0",
        reason=Reason.PLUGIN_FAULT,
        frees=("profile", "fallback"),
        numbers={"faults": 1, "faults_allowed": 3},
        plugin="broken",
        starts=(90.0, 90.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_explanation_has_the_right_reason_and_numbers(name: str) -> None:
    case = CASES[name]
    why = case.build().explain(case.job)
    assert why.reason is case.reason, why
    assert {key: why.numbers.get(key) for key in case.numbers} == pytest.approx(case.numbers), why
    assert case.says in (why.sentence, ""), why.sentence
    assert {remedy.what for remedy in why.frees} >= set(case.frees), why.frees
    assert {remedy.what for remedy in why.frees} <= set(REMEDIES)
    if case.plugin is not None:
        assert why.plugin == case.plugin
    if case.starts is not None:
        assert why.starts_in == pytest.approx(case.starts), why


@pytest.mark.parametrize("name", CASES)
def test_following_a_remedy_lets_the_job_start(name: str) -> None:
    case = CASES[name]
    said = case.build().explain(case.job)
    enough = [
        at for at, remedy in enumerate(said.frees) if remedy.what not in NOT_DONE and "then it waits" not in remedy.text
    ]
    for at in enough:
        town = case.build()
        assert not town.freed(case.job)
        why = town.explain(case.job)
        assert why.frees == said.frees, "the same question has the same answer"
        if why.frees[at].what == "profile":
            town.use(profile())
        else:
            town.do(why, why.frees[at])
        assert town.freed(case.job), (why.frees[at], town.arbiter.state.reason(town.row(case.job)))


NOT_DONE = ("nothing", "text", "cpus", "memory")
"""Ways that are no event of their own: CPUs come back with the release next to them."""


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.frees == ("nothing",)])
def test_freed_gpus_do_not_start_a_job_without_a_named_remedy(name: str) -> None:
    case = CASES[name]
    town = case.build()
    holders = [gpu for gpu in range(town.cluster.gpus) if town.arbiter.state.holdings.live.app[gpu] >= 0]
    if holders:
        town.finish(holders)
    assert not town.freed(case.job)
    assert town.explain(case.job).starts_in is None


def test_every_reason_for_waiting_occurs_in_a_scenario() -> None:
    assert {case.reason for case in CASES.values()} == set(Reason)
    assert len(CASES) >= 30


def test_pauses_and_failures_are_not_attributed_to_the_plugin_of_an_earlier_verdict() -> None:
    town = build(comes("a", 3), comes("b", 2))()
    assert town.explain("b/0").plugin == "ordered"
    town.step(JobPaused(job=JobId("b/0")))
    why = town.explain("b/0")
    assert (why.reason, why.plugin, why.stage, why.starts_in) == (Reason.PAUSED_BY_APP, "", None, None)
    town.step(JobResumed(job=JobId("b/0")))
    assert town.explain("b/0").reason is not Reason.PAUSED_BY_APP


def test_a_job_that_its_own_app_starts_has_a_verdict_of_that_time() -> None:
    town = build(undivided, search("a", 1), after(5.0), site=lambda: lab("1x2 V100", themis()))()
    town.divide("a", _0=(0,))
    town.step(JobReported(job=JobId("a/0"), iterations_done=1.0, rate=1.0), at=9.0)
    assert float(town.arbiter.view.verdict(town.row("a/0")).at) == 5.0


def test_a_plugin_explains_its_own_verdict() -> None:
    town = build(comes("b", 1), site=lambda: lab(make=refusing(unmeasured)))()
    why = town.explain("b/0")
    assert (why.said, why.numbers["patience"]) == ("b/0 is refused.", 3.0)
    assert [remedy.text for remedy in why.frees if remedy.what == "text"] == ["a kind word"]


def test_the_order_of_service_is_explained_by_the_plugin_that_decides_it() -> None:
    why = CASES["the lease of one who had more"].build().explain("b/0")
    assert why.said == (
        "A job that fits may pass jobs that do not. A running job is not stopped for others before its lease ends. "
        "It has received 0 gpu-seconds; jobs that received less come first."
    )
    assert why.text.endswith(why.said)
    assert why.numbers["attained"] == 0.0


def test_explain_answers_even_if_the_plugin_fails_to_explain() -> None:
    why = CASES["a plugin that fails"].build().explain("b/0")
    assert why.said == ""
    assert "a hole in the road" in why.sentence


def test_a_running_job_has_no_reason_to_wait() -> None:
    town = build(comes("a", 3), after(5.0))()
    why = town.explain("a/0")
    assert (why.state, why.reason, why.frees, why.starts_in, why.seconds) == ("running", None, (), None, 5.0)


def test_an_unknown_job_is_refused() -> None:
    with pytest.raises(KeyError):
        lab().explain("b/0")


def test_explanations_do_not_change_later_decisions() -> None:
    asked, left_alone = (
        build(search("a"), search("b"), search("c"), site=lambda: lab("1x2 V100", themis()))() for _ in "ab"
    )
    for _ in range(6):
        for job in ("a/0", "b/1", "c/0"):
            asked.explain(job)
        for town in (asked, left_alone):
            town.pass_to(town.now + 10.0)
        assert asked.arbiter.save() == left_alone.arbiter.save()


def test_past_waits_are_counted_in_rounds() -> None:
    town = build(comes("a", 4, **WORK), comes("b", 2), comes("c", 4), comes("d", 2))()
    town.finish([0, 1, 2, 3])
    assert past_waits(town.rounds, "b") == []  # nothing was on offer when it came: it was never turned down
    assert town.explain("c/0").reason is not None


def test_a_suspended_job_must_release_its_gpus_within_the_time_that_its_menus_give() -> None:
    def slow(cluster: Cluster) -> Any:
        stages = LAS(cluster)
        release = ChangeCosts(release=Seconds(90.0))
        return dataclasses.replace(
            stages, elasticity=lambda snapshot: dataclasses.replace(stages.elasticity(snapshot), change=release)
        )

    made = build(comes("a", 4), disobeys, comes("b", 4), after(61.0), site=lambda: lab("1x4 V100", slow))()
    leaving = [order for decision in made.rounds for order in decision.transitions if order.leaving.size]
    granted = made.now - 1.0
    assert [order.deadline for order in leaving] == [granted + 90.0]
    why = made.explain("b/0")
    assert (why.reason, why.starts_in) == (Reason.AWAITING_RELEASE, (0.0, 89.0))
