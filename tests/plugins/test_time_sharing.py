import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia import (
    NEVER,
    Allocation,
    Claims,
    Cluster,
    Grants,
    PluginError,
    Profile,
    Reason,
    Seconds,
    Stage,
    TimeShares,
    Unit,
)
from eunomia.arbiter import Arbiter
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.round.invariants import check_state
from eunomia.testing.builders import World
from eunomia.testing.drive import Drive
from eunomia.units import AppId, JobId, UserId
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.refine.solutions import Solution
from eunomia_plugins.refine.time_sharing import TimeSharing, TimeSharingOptions


def shares(world: World, wanted: dict[str, list[float]]) -> Allocation:
    rows = np.array([world.row(name) for name in wanted], np.int32)
    return Allocation(
        claims=Claims(unit=Unit.JOB, rows=rows),
        amount=TimeShares(share=np.array(list(wanted.values()), float), since=Seconds(0.0)),
        order=np.arange(rows.size, dtype=np.int32),
    )


def refined(
    world: World, wanted: dict[str, list[float]], *, now: float, **options: object
) -> tuple[dict[str, tuple[int, str]], Allocation]:
    snapshot = world.snapshot(now=now)
    plugin = TimeSharing(TimeSharingOptions.model_validate({"round_length": "100s", **options}))
    answer = plugin.eunomia_refine(
        snapshot, Fixed().eunomia_elasticity(snapshot), world.offer(now), shares(world, wanted)
    )
    assert isinstance(answer.amount, Grants)
    kinds = answer.amount.gpu_type
    names = [str(snapshot.jobs.id[row]) for row in answer.claims.rows]
    types = world.cluster.gpu_types
    return {
        names[claim]: (int(answer.amount.gpus[claim]), "" if kinds is None else types[kinds[claim]])
        for claim in answer.order.tolist()
    }, answer


def remembering(world: World, at: float, wanted: dict[str, list[float]], received: dict[str, list[float]]) -> World:
    memo = Solution(
        at=at,
        shares={name: tuple(row) for name, row in wanted.items()},
        received={name: tuple(row) for name, row in received.items()},
    )
    return world.remembers("time_sharing", Stage.REFINE, memo)


def test_the_priority_is_the_share_over_the_time_received_since_the_solution() -> None:
    # Since 100, for 100 s: a had all of a gang of 2 (1.0), b half (0.5). a: 0.6 / 1.0, b: 0.4 / 0.5.
    wanted = {"a/1": [0.6], "b/1": [0.4]}
    world = World("1x2 V100").job("a/1", gpus=2, received=1200.0).job("b/1", gpus=2, received=100.0)
    remembering(world, 100.0, wanted, {"a/1": [1000.0], "b/1": [0.0]})
    got, answer = refined(world, wanted, now=200.0)
    assert got == {"b/1": (2, "")}
    assert answer.verdicts.reasons.tolist() == [Reason.SHARE_USED_UP]
    assert answer.memo is not None
    assert answer.memo.at == 100.0  # type: ignore[attr-defined]


def test_jobs_that_received_no_time_come_first_by_their_share() -> None:
    wanted = {"a/1": [0.1], "b/1": [0.2], "c/1": [0.7]}
    world = World("1x2 V100").job("a/1").job("b/1").job("c/1", received=10.0)
    remembering(world, 0.0, wanted, {})
    assert list(refined(world, wanted, now=100.0)[0]) == ["b/1", "a/1"]


def test_a_job_runs_on_one_type_and_never_where_its_share_is_zero() -> None:
    # GPU types are sorted: P100, V100. a would go first on V100, then has had its turn; b may only use P100.
    wanted = {"a/1": [0.3, 0.6], "b/1": [0.5, 0.0], "c/1": [0.2, 0.0]}
    world = World("1x2 V100, 1x2 P100").job("a/1", gpus=2).job("b/1", gpus=2).job("c/1", gpus=2)
    assert refined(world, wanted, now=0.0)[0] == {"a/1": (2, "V100"), "b/1": (2, "P100")}


def test_a_gang_that_does_not_fit_is_skipped() -> None:
    wanted = {"a/1": [0.9], "b/1": [0.1]}
    world = World("1x4 V100").job("x/1").holds("x/1", 0).job("a/1", gpus=4).job("b/1", gpus=2)
    assert list(refined(world, wanted, now=0.0)[0]) == ["b/1"]


def test_grants_are_protected_until_the_round_ends_at_a_multiple_of_its_length() -> None:
    world = World().job("a/1")
    _, answer = refined(world, {"a/1": [1.0]}, now=230.0)
    assert (answer.lease, answer.protected, answer.wake_at) == (70.0, 70.0, 300.0)
    _, answer = refined(world, {"a/1": [1.0]}, now=np.nextafter(300.0, 0.0))
    assert answer.wake_at == 400.0


@given(st.floats(0.0, 1e7), st.floats(1.0, 1e5))
def test_a_lease_never_ends_after_its_round(now: float, length: float) -> None:
    from eunomia_plugins.refine.turns import turn

    this = turn(now, length)
    assert this.lease > 0.0
    assert now + this.lease <= this.ends_at
    assert this.ends_at - now <= length * (1 + 1e-6)


def test_new_shares_wait_until_the_last_ones_are_old_enough() -> None:
    wanted = {"a/1": [0.9], "b/1": [0.1]}
    world = remembering(World("1x1 V100").job("a/1").job("b/1"), 0.0, {"a/1": [0.1], "b/1": [0.9]}, {})
    got, answer = refined(world, wanted, now=100.0, least_between="101s")
    assert list(got) == ["b/1"]
    assert answer.memo.at == 0.0  # type: ignore[union-attr]
    got, answer = refined(world, wanted, now=101.0, least_between="101s")
    assert list(got) == ["a/1"]
    assert answer.memo.at == 101.0  # type: ignore[union-attr]


def test_an_option_gives_a_new_job_no_priority_or_that_of_an_equal_share() -> None:
    world = World("1x1 V100").job("a/1", received=50.0).job("new/1", received=20.0)
    remembering(world, 0.0, {"a/1": [1.0]}, {})
    wanted = {"a/1": [0.5], "new/1": [0.5]}
    # a: 1.0 / 0.5; new: nothing, or 0.5 / 0.2.
    assert list(refined(world, wanted, now=100.0, new_jobs="last")[0]) == ["a/1"]
    assert list(refined(world, wanted, now=100.0, new_jobs="equal")[0]) == ["new/1"]


def test_amounts_other_than_time_shares_of_jobs_are_refused() -> None:
    world = World().app("a").job("a/1")
    answer = shares(world, {"a/1": [1.0]})
    plugin = TimeSharing(TimeSharingOptions())
    menus = Fixed().eunomia_elasticity(world.snapshot())
    for wrong in (
        dataclasses.replace(answer, claims=Claims(unit=Unit.APP, rows=answer.claims.rows)),
        dataclasses.replace(answer, amount=Grants(gpus=np.array([1]))),
    ):
        with pytest.raises(PluginError, match="time_sharing must get time shares of jobs"):
            plugin.eunomia_refine(world.snapshot(), menus, world.offer(), wrong)


_ROWS = st.dictionaries(st.text(min_size=1, max_size=6), st.tuples(st.floats(0, 1), st.floats(0, 1e9)), max_size=5)


@given(st.floats(0.0, 1e9), _ROWS, _ROWS)
def test_the_memo_is_decoded_as_it_was_encoded(
    at: float, wanted: dict[str, tuple[float, ...]], received: dict[str, tuple[float, ...]]
) -> None:
    memo = Solution(at=at, shares=wanted, received=received)
    assert Solution.from_bytes(memo.version, memo.to_bytes()) == memo


PROFILE = {
    "stages.allocation": "max_min_time",
    "stages.refiners": ["time_sharing"],
    "plugins.time_sharing.round_length": "10s",
}


def test_over_time_gangs_get_their_max_min_shares() -> None:
    """Three gangs of 4 and one of 2 on 4 GPUs: a level of 1 GPU each on average, so 1/4 and 1/2 of the time."""
    profile = Profile.load("default", settings=PROFILE)
    site = Cluster.parse("1x4 V100")
    arbiter = Arbiter(site, profile.stages(site), Profile.fallback().stages(site))
    script: list[tuple[float, Event]] = []
    sizes = {"a": 4, "b": 4, "c": 4, "d": 2}
    for name, size in sizes.items():
        script.append((0.0, AppArrived(app=AppId(name), user=UserId("ana"), divides=False)))
        script.append((0.0, JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=size, most=size)))

    def watch(run: Drive, decision: Decision) -> None:
        assert decision.faults == ()
        check_state(run.arbiter.state)

    work = {JobId(f"{name}/0"): 1e9 for name in sizes}
    Drive(arbiter, work=work, watch=watch).run(script, until=1990.0)
    state = arbiter.state
    parts = {name: state.job_ledger.attained[state.job_row(JobId(f"{name}/0"))] / state.now for name in sizes}
    assert parts["a"] == pytest.approx(parts["b"], abs=0.02)
    assert parts["a"] == pytest.approx(parts["c"], abs=0.02)
    # d cannot run next to a gang of 4: in two rounds of five it runs alone, and two GPUs idle.
    assert parts["d"] == pytest.approx(2 * parts["a"], abs=0.03)
    assert sum(parts.values()) == pytest.approx(1.0, abs=0.02)
    assert arbiter.state.counters.stage_wake_at < NEVER
