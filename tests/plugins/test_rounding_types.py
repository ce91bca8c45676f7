"""``rounding`` on several GPU types: what a claim gives up, where its jobs stay, and time shares pooled by group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import (
    Allocation,
    Claims,
    DeviceShares,
    Grants,
    Menus,
    PluginError,
    Scope,
    Seconds,
    Stage,
    TimeShares,
    Unit,
)
from eunomia.testing.builders import World
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.refine.accounts import Account
from eunomia_plugins.refine.claimants import view_of
from eunomia_plugins.refine.demand import on_faster_gpus, usable
from eunomia_plugins.refine.pooling import pooled
from eunomia_plugins.refine.rounding import Rounding, RoundingOptions

TYPES = ("K80", "P100", "V100")


def world(jobs: int, speeds: tuple[float, float, float] = (1.0, 2.0, 3.0)) -> World:
    """A user with jobs of one GPU and these speeds on K80, P100 and V100, four GPUs of each."""
    made = World("1x4 K80, 1x4 P100, 1x4 V100").app("ana", user="ana")
    for number in range(jobs):
        made.job(f"ana/{number}", gpus=1, arrived=float(number))
        for kind, rate in zip(TYPES, speeds, strict=True):
            made.measures(f"ana/{number}", 1, rate, gpu_type=kind)
    return made


def menus_of(made: World) -> Menus:
    return Fixed().eunomia_elasticity(made.snapshot())


def shared(made: World, gpus: list[float]) -> Allocation:
    """Device shares of the only user."""
    rows = np.array([0], np.int32)
    amount = DeviceShares(gpus=np.array([gpus]), since=Seconds(0.0))
    return Allocation(claims=Claims(unit=Unit.USER, rows=rows), amount=amount, order=np.array([0], np.int32))


def granted(
    made: World, gpus: list[float], *, owed: list[float] | None = None, leftovers: bool = True
) -> dict[str, str]:
    """By job, the type of the GPU that it gets."""
    if owed is not None:
        made.remembers("rounding", Stage.REFINE, Account(at=0.0, ideal={}, owed={"ana": tuple(owed)}, jobs={}))
    snapshot = made.snapshot()
    plugin = Rounding(RoundingOptions.model_validate({"round_length": "100s", "leftovers": leftovers}))
    offer = made.offer(scope=Scope.ALL)
    answer = plugin.eunomia_refine(snapshot, menus_of(made), offer, shared(made, gpus))
    assert isinstance(answer.amount, Grants) and answer.amount.gpu_type is not None
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    return {names[claim]: TYPES[int(answer.amount.gpu_type[claim])] for claim in sorted(answer.order.tolist())}


def test_a_claim_with_too_few_jobs_gives_up_its_slowest_types() -> None:
    made = world(5)
    view = view_of(made.snapshot(), menus_of(made), made.offer(), shared(made, [4.0, 4.0, 4.0]).claims)
    assert usable(np.array([[4.0, 4.0, 4.0]]), view).tolist() == [[0.0, 1.0, 4.0]]
    assert usable(np.array([[1.0, 2.0, 2.0]]), view).tolist() == [[1.0, 2.0, 2.0]]


def test_among_equally_fast_types_a_claim_keeps_those_that_its_jobs_hold() -> None:
    made = world(1, (1.0, 1.0, 1.0)).holds("ana/0", 5)
    view = view_of(made.snapshot(), menus_of(made), made.offer(), shared(made, [4.0, 4.0, 4.0]).claims)
    assert usable(np.array([[4.0, 4.0, 4.0]]), view).tolist() == [[0.0, 1.0, 0.0]]


@given(
    st.lists(st.floats(0.0, 4.0), min_size=3, max_size=3),
    st.integers(1, 12),
    st.permutations([1.0, 2.0, 3.0]),
)
def test_a_claim_keeps_the_fastest_part_of_its_share(share: list[float], jobs: int, speeds: list[float]) -> None:
    made = world(jobs, (speeds[0], speeds[1], speeds[2]))
    view = view_of(made.snapshot(), menus_of(made), made.offer(), shared(made, share).claims)
    kept = usable(np.array([share]), view)[0]
    assert kept.sum() == pytest.approx(min(sum(share), jobs))
    assert ((kept >= 0.0) & (kept <= np.array(share) + 1e-12)).all()
    cut = [kind for kind in range(3) if kept[kind] < share[kind] - 1e-9]
    assert all(kept[slow] == 0.0 for fast in cut for slow in range(3) if speeds[slow] < speeds[fast])


def test_the_only_job_of_a_user_gets_the_fastest_type_though_owed_a_slow_one() -> None:
    assert granted(world(1), [4.0, 4.0, 4.0], owed=[70.0, 20.0, 0.0]) == {"ana/0": "V100"}


def test_running_jobs_stay_on_their_types_if_their_claim_has_gpus_there() -> None:
    made = world(3).holds("ana/0", 0).holds("ana/1", 8).holds("ana/2", 4)
    stay = granted(made, [1.0, 1.0, 1.0], leftovers=False)
    assert stay == {"ana/0": "K80", "ana/1": "V100", "ana/2": "P100"}
    made = world(3).holds("ana/0", 0).holds("ana/2", 8)
    stay = granted(made, [0.0, 1.0, 2.0], leftovers=False)
    assert stay == {"ana/0": "V100", "ana/1": "P100", "ana/2": "V100"}


def two_users(**gangs: tuple[int, ...]) -> World:
    """Users on four K80 and four V100, on which jobs are twice as fast; by user the GPUs of each job."""
    made = World("1x4 K80, 1x4 V100")
    for user, sizes in gangs.items():
        made.app(user, user=user)
        for number, gpus in enumerate(sizes):
            made.job(f"{user}/{number}", gpus=gpus, arrived=float(number))
            for kind, rate in (("K80", 1.0), ("V100", 2.0)):
                made.measures(f"{user}/{number}", gpus, gpus * rate, gpu_type=kind)
    return made


def refined(made: World, shares: list[list[float]]) -> tuple[dict[str, str], Account]:
    """By job, the type of its GPUs; and the account."""
    snapshot = made.snapshot()
    given = Allocation(
        claims=Claims(unit=Unit.USER, rows=np.arange(len(shares), dtype=np.int32)),
        amount=DeviceShares(gpus=np.array(shares), since=Seconds(0.0)),
        order=np.arange(len(shares), dtype=np.int32),
    )
    plugin = Rounding(RoundingOptions.model_validate({"round_length": "100s"}))
    answer = plugin.eunomia_refine(snapshot, menus_of(made), made.offer(scope=Scope.ALL), given)
    assert isinstance(answer.amount, Grants) and answer.amount.gpu_type is not None and isinstance(answer.memo, Account)
    served = [(str(snapshot.jobs.id[answer.claims.rows[claim]]), claim) for claim in sorted(answer.order.tolist())]
    return {job: ("K80", "V100")[int(answer.amount.gpu_type[claim])] for job, claim in served}, answer.memo


def test_a_job_on_a_slow_type_moves_to_a_faster_unclaimed_gpu() -> None:
    # Bo can use one of his three V100, so two are idle: ana's second job needs no K80.
    types, account = refined(two_users(ana=(1, 1), bo=(1,)), [[4.0, 1.0], [0.0, 3.0]])
    assert types == {"ana/0": "V100", "ana/1": "V100", "bo/0": "V100"}
    assert account.ideal == {"ana": (0.0, 2.0), "bo": (0.0, 1.0)}  # ana owes no V100 for it later


def test_no_job_moves_to_a_faster_gpu_that_is_in_a_share() -> None:
    # Bo saves up 1.4 V100 a round for a gang of four. Of the three that are idle one is in no share.
    types, account = refined(two_users(ana=(1, 1, 1, 1), bo=(4,)), [[4.0, 1.0], [0.0, 1.4]])
    assert sorted(types.values()) == ["K80", "K80", "V100", "V100"]
    assert account.ideal == {"ana": (2.0, 2.0), "bo": (0.0, 1.4)}


def test_a_gang_moves_whole_or_not_at_all() -> None:
    types, _ = refined(two_users(ana=(2,), bo=(1,)), [[4.0, 0.0], [0.0, 4.0]])
    assert types["ana/0"] == "V100"
    types, _ = refined(two_users(ana=(4,), bo=(1,)), [[4.0, 0.0], [0.0, 4.0]])
    assert types["ana/0"] == "K80"


def test_of_two_jobs_the_one_that_holds_the_faster_gpu_keeps_it() -> None:
    made = two_users(ana=(1,), bo=(1,), cy=(3,)).holds("bo/0", 4)
    types, _ = refined(made, [[2.0, 0.0], [2.0, 0.0], [0.0, 4.0]])
    assert types == {"ana/0": "K80", "bo/0": "V100", "cy/0": "V100"}


@given(
    st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=5),
    st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=3),
    st.floats(0.0, 4.0),
    st.floats(0.0, 4.0),
)
def test_jobs_move_only_to_faster_types_and_no_gpu_is_granted_twice(
    ana: list[int], bo: list[int], slow: float, fast: float
) -> None:
    made = two_users(ana=tuple(ana), bo=tuple(bo))
    claims = Claims(unit=Unit.USER, rows=np.arange(2, dtype=np.int32))
    view = view_of(made.snapshot(), menus_of(made), made.offer(scope=Scope.ALL), claims)
    ideal = usable(np.array([[slow, fast], [4.0 - slow, 4.0 - fast]]), view)
    before = np.zeros((view.jobs.size, 2), np.int64)
    for job, gpus in enumerate(view.size.tolist()):
        kind = int(job % 2)
        if before[:, kind].sum() + gpus <= view.free[kind]:
            before[job, kind] = gpus
    after = on_faster_gpus(view, before, ideal)
    assert (after.sum(axis=0) <= view.free).all()
    assert after.sum(axis=1).tolist() == before.sum(axis=1).tolist()
    assert (after[:, 1] >= before[:, 1]).all()
    moved = int((after - before)[:, 1].sum())
    assert moved <= np.floor(4.0 - ideal[:, 1].sum() + 1e-9)


def test_time_shares_are_summed_by_user_and_kind() -> None:
    made = World("1x4 K80, 1x4 V100").app("ana", user="ana").app("bo", user="bo")
    made.job("ana/0", gpus=2, kind="cnn").job("ana/1", gpus=4, kind="cnn").job("ana/2", gpus=1, kind="rnn")
    made.job("bo/0", gpus=1, kind="cnn")
    snapshot = made.snapshot()
    share = np.array([[0.5, 0.25], [0.0, 0.5], [1.0, 0.0], [0.0, 0.1]])
    given = Allocation(
        claims=Claims(unit=Unit.JOB, rows=made.active()),
        amount=TimeShares(share=share, since=Seconds(0.0)),
        order=np.arange(4, dtype=np.int32),
    )
    found = pooled(snapshot, Fixed().eunomia_elasticity(snapshot), given)
    assert isinstance(found.amount, DeviceShares) and found.claims.unit is Unit.GROUP
    assert found.claims.job_kind is not None
    named = {
        (str(snapshot.users.id[user]), snapshot.kinds[kind]): gpus
        for user, kind, gpus in zip(found.claims.rows, found.claims.job_kind, found.amount.gpus.tolist(), strict=True)
    }
    assert named == {("ana", "cnn"): [1.0, 2.5], ("ana", "rnn"): [1.0, 0.0], ("bo", "cnn"): [0.0, 0.1]}


def test_amounts_other_than_time_shares_are_refused() -> None:
    made = world(1)
    with pytest.raises(PluginError, match="must get time shares of jobs, but got DeviceShares of users"):
        pooled(made.snapshot(), menus_of(made), shared(made, [1.0, 1.0, 1.0]))
