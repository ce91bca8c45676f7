import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import Allocation, Claims, Cluster, DeviceShares, Grants, PluginError, Profile, Seconds, Stage, Unit
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.round.invariants import check_state
from eunomia.testing.builders import World
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, UserId
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.refine.accounts import Account, Seen
from eunomia_plugins.refine.apportion import apportion
from eunomia_plugins.refine.rounding import Rounding, RoundingOptions


def users(world: World, wanted: dict[str, list[float]]) -> Allocation:
    rows = np.array([world._user_rows[name] for name in wanted], np.int32)
    return Allocation(
        claims=Claims(unit=Unit.USER, rows=rows),
        amount=DeviceShares(gpus=np.array(list(wanted.values()), float), since=Seconds(0.0)),
        order=np.arange(rows.size, dtype=np.int32),
    )


def refined(
    world: World, wanted: dict[str, list[float]], *, now: float = 0.0, **options: object
) -> tuple[dict[str, int], Account]:
    snapshot = world.snapshot(now=now)
    plugin = Rounding(RoundingOptions.model_validate({"round_length": "100s", **options}))
    menus = Range(RangeOptions()).eunomia_elasticity(snapshot)
    answer = plugin.eunomia_refine(snapshot, menus, world.offer(now), users(world, wanted))
    assert isinstance(answer.amount, Grants)
    assert isinstance(answer.memo, Account)
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    return {names[claim]: int(answer.amount.gpus[claim]) for claim in answer.order.tolist()}, answer.memo


def test_gpus_go_one_by_one_to_the_claim_furthest_behind() -> None:
    behind, ones = np.array([[1.6], [0.9], [0.5]]), np.ones((3, 1), np.int64)
    assert apportion(behind, ones, np.array([3])).ravel().tolist() == [2, 1, 0]
    assert apportion(behind, ones, np.array([4])).ravel().tolist() == [2, 1, 1]
    assert apportion(behind, ones, np.array([9])).ravel().tolist() == [2, 1, 1]
    assert apportion(behind, ones, np.array([1])).ravel().tolist() == [1, 0, 0]


@given(
    st.lists(st.lists(st.floats(0.0, 5.0), min_size=2, max_size=2), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
)
def test_rounding_stays_within_the_free_gpus_and_one_gpu_of_the_shares(
    behind: list[list[float]], free: list[int]
) -> None:
    wanted, there = np.array(behind), np.array(free)
    real = apportion(wanted, np.ones(wanted.shape, np.int64), there)
    assert np.all(real.sum(axis=0) <= there)
    assert np.all(real < wanted + 1)
    enough = wanted.sum(axis=0) <= there
    assert np.all((real > wanted - 1)[:, enough])


def test_a_gang_is_due_when_half_of_it_is_owed() -> None:
    gang = np.array([[4], [4]])
    assert apportion(np.array([[1.4], [1.6]]), gang, np.array([8])).ravel().tolist() == [0, 4]
    assert apportion(np.array([[7.0], [5.4]]), gang, np.array([8])).ravel().tolist() == [4, 4]


def world() -> World:
    """Three users with a job of up to 4 GPUs each, on 4 GPUs."""
    made = World("1x4 V100")
    for name in ("ana", "bo", "cy"):
        made.app(name, user=name).job(f"{name}/1", gpus=(1, 4))
    return made


def test_shares_are_rounded_so_that_all_gpus_are_granted() -> None:
    got, memo = refined(world(), {"ana": [1.5], "bo": [1.3], "cy": [1.2]})
    assert got == {"ana/1": 2, "bo/1": 1, "cy/1": 1}
    assert memo.ideal == {"ana": (1.5,), "bo": (1.3,), "cy": (1.2,)}


def test_a_claim_catches_up_on_time_that_it_did_not_receive() -> None:
    # For 100 s ana was promised 1.5 GPUs and got 2, bo 1.3 and got 1, cy 1.2 and got 1 for 50 s only.
    made = World("1x4 V100")
    for name, received in (("ana", 200.0), ("bo", 100.0), ("cy", 50.0)):
        made.app(name, user=name).job(f"{name}/1", gpus=(1, 4), received=received)
    memo = Account(
        at=0.0,
        ideal={"ana": (1.5,), "bo": (1.3,), "cy": (1.2,)},
        owed={},
        jobs={f"{name}/1": Seen(name, (0.0,), (1.0,)) for name in ("ana", "bo", "cy")},
    )
    made.remembers("rounding", Stage.REFINE, memo)
    got, after = refined(made, {"ana": [1.5], "bo": [1.3], "cy": [1.2]}, now=100.0)
    # Behind by 1.5 - 0.5 = 1.0, 1.3 + 0.3 = 1.6, 1.2 + 0.7 = 1.9.
    assert got == {"ana/1": 1, "bo/1": 1, "cy/1": 2}
    assert [after.owed[name][0] for name in ("ana", "bo", "cy")] == pytest.approx([-50.0, 30.0, 70.0])


def test_a_job_that_ended_is_charged_for_its_granted_time() -> None:
    made = world()
    memo = Account(at=0.0, ideal={"ana": (2.0,)}, owed={}, jobs={"ana/0": Seen("ana", (5.0,), (1.5,))})
    made.remembers("rounding", Stage.REFINE, memo)
    _, after = refined(made, {"ana": [2.0], "bo": [1.0], "cy": [1.0]}, now=100.0)
    assert after.owed["ana"] == (50.0,)


def test_a_share_too_small_for_any_job_accumulates_and_is_lent_to_others() -> None:
    made = World("1x4 V100").app("ana", user="ana").job("ana/1", gpus=4).app("bo", user="bo")
    made.job("bo/1", gpus=(1, 4)).job("bo/2", gpus=(1, 4), arrived=1.0)
    got, _ = refined(made, {"ana": [1.0], "bo": [3.0]})
    assert got == {"bo/1": 3, "bo/2": 1}
    assert refined(made, {"ana": [1.0], "bo": [3.0]}, leftovers=False)[0] == {"bo/1": 3}


def test_within_a_claim_the_job_that_waited_longest_comes_first() -> None:
    made = World("1x1 V100").app("ana", user="ana").job("ana/1").job("ana/2").job("ana/3", arrived=10.0)
    made._job_ledger.live.last_ran[made.row("ana/1")] = 90.0
    made._job_ledger.live.last_ran[made.row("ana/2")] = 30.0
    assert list(refined(made, {"ana": [1.0]}, now=100.0)[0]) == ["ana/3"]


def test_a_claim_without_enough_jobs_accumulates_nothing() -> None:
    made = World("1x4 V100").app("ana", user="ana").job("ana/1").app("bo", user="bo").job("bo/1", gpus=(1, 4))
    assert refined(made, {"ana": [2.0], "bo": [2.0]})[1].ideal == {"ana": (1.0,), "bo": (2.0,)}


def test_gpus_that_a_claim_keeps_outside_the_offer_count() -> None:
    made = world().holds("ana/1", 0, 1)
    assert refined(made, {"ana": [2.0], "bo": [1.0], "cy": [1.0]})[0] == {"bo/1": 1, "cy/1": 1}


def test_amounts_other_than_device_shares_are_refused() -> None:
    made = world()
    answer = users(made, {"ana": [1.0]})
    wrong = Allocation(claims=answer.claims, amount=Grants(gpus=np.array([1])), order=answer.order)
    menus = Range(RangeOptions()).eunomia_elasticity(made.snapshot())
    with pytest.raises(PluginError, match="rounding must get device shares"):
        Rounding(RoundingOptions()).eunomia_refine(made.snapshot(), menus, made.offer(), wrong)


_TABLE = st.dictionaries(st.text(min_size=1, max_size=5), st.tuples(st.floats(-1e9, 1e9)), max_size=4)


@given(st.floats(0.0, 1e9), _TABLE, _TABLE)
def test_the_memo_is_decoded_as_it_was_encoded(
    at: float, ideal: dict[str, tuple[float]], owed: dict[str, tuple[float]]
) -> None:
    memo = Account(at=at, ideal=dict(ideal), owed=dict(owed), jobs={"a/1": Seen("a", (1.0,), (2.0,))})
    assert Account.from_bytes(memo.version, memo.to_bytes()) == memo


def test_over_time_each_user_receives_its_share() -> None:
    """Three users on 4 GPUs, one with gangs of 4 only: each comes to 4/3 GPUs on average."""
    settings = {
        "stages.allocation": "max_min_users",
        "stages.refiners": ["rounding"],
        "plugins.rounding.round_length": "10s",
        "plugins.rounding.leftovers": False,
    }
    profile = Profile.load("default", settings=settings)
    site = Cluster.parse("1x4 V100")
    arbiter = Arbiter(site, profile.stages(site), Profile.fallback().stages(site))
    script: list[tuple[float, Event]] = []
    work: dict[JobId, float] = {}
    for user, size, count in (("ana", 4, 2), ("bo", 1, 4), ("cy", 1, 4)):
        script.append((0.0, AppArrived(app=AppId(user), user=UserId(user), divides=False)))
        for number in range(count):
            job = JobId(f"{user}/{number}")
            script.append((0.0, JobAdded(job=job, app=AppId(user), least=size, most=size)))
            work[job] = 1e9

    def watch(run: Drive, decision: Decision) -> None:
        assert decision.faults == ()
        check_state(run.arbiter.state)

    Drive(arbiter, work=work, watch=watch).run(script, until=2990.0)
    got = dict.fromkeys(("ana", "bo", "cy"), 0.0)
    for job in work:
        got[job.partition("/")[0]] += arbiter.state.job_ledger.received[arbiter.state.job_row(job)].sum()
    assert got["bo"] == pytest.approx(got["cy"], rel=0.03)
    assert got["ana"] == pytest.approx(got["bo"], rel=0.05)
