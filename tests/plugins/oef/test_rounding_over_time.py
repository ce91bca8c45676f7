"""``rounding`` over many rounds: no claim strays far from its share, and none waits long."""

from collections.abc import Iterator

import numpy as np
import pytest
from rounding_runs import KINDS, TYPES, longest_wait_allowed, run, shares, with_a_loss

from eunomia.units import Reals
from eunomia_plugins.refine.apportion import apportion
from strength import examples

ROUNDS = pytest.mark.parametrize("rounds", [60, pytest.param(1000, marks=pytest.mark.slow)])


@ROUNDS
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_of_one_gpu_receive_their_share_within_one_gpu_round(kind: str, rounds: int) -> None:
    promised = shares(1, 5, 8, kind)
    seen = run("1x8 K80, 1x8 P100, 1x8 V100", {user: [1] * 24 for user in range(5)}, promised, rounds)
    assert len(seen.ideal) == rounds
    assert seen.deviation() < 1.0 + 1e-6
    if kind == "fixed":
        assert (seen.waits() <= longest_wait_allowed(1, promised(0))).all()


@ROUNDS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [False, True], ids=["users with all sizes", "users with one size"])
def test_gangs_receive_their_share_within_the_size_of_the_largest_gang(kind: str, rounds: int, own: bool) -> None:
    promised = shares(2, 6, 16, kind, even=0.5)
    sizes = {user: [2 ** (user % 4)] * (48 >> user % 4) if own else [1, 2, 4, 8] * 4 for user in range(6)}
    seen = run(TYPES, sizes, promised, rounds)
    assert seen.deviation() < 8.0
    assert seen.mixed == 0
    if kind == "fixed":
        assert (seen.waits() <= longest_wait_allowed(8, promised(0))).all()


@ROUNDS
def test_no_user_starves_with_gangs_of_three_and_five(rounds: int) -> None:
    promised = shares(5, 6, 16, "fixed")
    seen = run(TYPES, {user: [3 + 2 * (user % 2)] * 14 for user in range(6)}, promised, rounds)
    assert (seen.waits() <= longest_wait_allowed(5, promised(0))).all()


@ROUNDS
@pytest.mark.parametrize("gang", [1, 8])
def test_shares_are_received_also_after_a_lost_machine_and_a_killed_arbiter(gang: int, rounds: int) -> None:
    promised, events = with_a_loss(rounds)
    restarts = frozenset({rounds // 2, rounds // 2 + 1, rounds - 5})
    sizes = {user: [gang] * (48 // gang) for user in range(5)}
    seen = run(TYPES, sizes, promised, rounds, events=events, restarts=restarts)
    assert len(seen.ideal) == rounds
    assert seen.deviation() < max(1.0 + 1e-6, gang)


def on_paper(gangs: list[int], gpus: int, promised: Iterator[Reals]) -> float:
    """The largest deviation of users with gangs of one size, on one type, without jobs and machines."""
    gang, owed, most = np.array(gangs)[:, None], np.zeros((len(gangs), 1)), 0.0
    for row in promised:
        behind = owed + row[:, None]
        owed = behind - apportion(behind, gang, np.array([gpus]))
        most = max(most, float(np.abs(owed).max()))
    return most


@pytest.mark.parametrize("seed", range(examples(12)))
def test_with_jobs_of_one_gpu_no_claim_deviates_by_more_than_a_gpu(seed: int) -> None:
    luck = np.random.default_rng(seed)
    users, gpus = int(luck.integers(2, 30)), int(luck.integers(1, 40))
    even = float(luck.choice([0.1, 0.3, 1.0]))
    drawn = (luck.dirichlet(np.full(users, even)) * gpus for _ in range(1000))
    assert on_paper([1] * users, gpus, drawn) < 1.0 + 1e-6


def test_few_gangs_run_on_two_types_unlike_with_rounding_that_ignores_types() -> None:
    """Gangs of 1 to 6 with shares of all types; printed: the part of job-rounds on GPUs of two types."""
    promised = shares(4, 5, 16, "each round")
    gangs = {user: [1 + (user + number) % 6 for number in range(20)] for user in range(5)}
    apart, mixing = (run(TYPES, gangs, promised, 50, mixed=on) for on in (False, True))
    assert apart.mixed == 0
    assert mixing.mixed <= 0.02 * mixing.served
    assert apart.ignoring >= 0.2 * apart.served
    for seen in (apart, mixing):
        print(f"{seen.served} job-rounds, mixed {seen.mixed}, {seen.ignoring} if types were ignored")


def test_a_gang_that_fits_on_no_type_runs_on_two_if_allowed() -> None:
    promised = np.array([[2.0, 2.0], [2.0, 2.0]])
    gangs = {0: [6], 1: [1] * 8}
    without, mixing = (run("1x4 K80, 1x4 V100", gangs, lambda _: promised, 24, mixed=on) for on in (False, True))
    assert without.received[-1][0].sum() == 0.0
    assert mixing.mixed > 0
    assert mixing.received[-1][0].sum() >= 24 * 3.0
