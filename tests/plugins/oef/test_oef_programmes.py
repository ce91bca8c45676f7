"""OEF's programmes against the exact fractions of the paper's own examples, and against its specification."""

from fractions import Fraction

import numpy as np
import pytest

from eunomia.units import Reals
from eunomia_plugins.oef import cooperative
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.cooperative import envy, solve_cooperative
from eunomia_plugins.oef.efficient import solve_efficient
from eunomia_plugins.oef.groups import Groups, divided, merged
from eunomia_plugins.oef.noncooperative import solve_noncooperative
from eunomia_plugins.oef.specification import state_cooperative, state_efficient, state_noncooperative
from strength import examples

EXACT = 1e-9


def groups(*speedup: tuple[float, ...], weight: tuple[float, ...] = ()) -> Groups:
    """One GPU of each type."""
    table = np.array(speedup, dtype=float)
    return Groups(
        speedup=table, weight=np.array(weight or np.ones(len(speedup)), dtype=float), gpus=np.ones(table.shape[1])
    )


def throughput(of: Groups, answer: Answer, true: Groups | None = None) -> Reals:
    found: Reals = ((true or of).speedup * answer.gpus).sum(axis=1)
    return found


def near(*numbers: str | float) -> object:
    return pytest.approx([float(Fraction(number)) for number in numbers], abs=EXACT)


def test_equation_2_gives_the_throughputs_of_the_cooperative_example() -> None:
    of = groups((1, 2), (1, 3), (1, 4))
    answer = solve_cooperative(of)
    assert throughput(of, answer) == near("1", "3/2", "2")
    assert answer.objective == pytest.approx(4.5, abs=EXACT)


def test_equation_5_gives_the_greatest_throughput() -> None:
    of = groups((1, 2), (1, 3), (1, 4))
    assert solve_efficient(of).objective == pytest.approx(5.0, abs=EXACT)


def test_equation_6_is_envy_free_but_rewards_a_user_that_overstates() -> None:
    of = groups((1, 2), (1, 5))
    honest = solve_cooperative(of)
    assert honest.gpus.ravel() == near("1", "1/4", "0", "3/4")
    assert honest.objective == pytest.approx(5.25, abs=EXACT)
    lie = solve_cooperative(groups((1, 4), (1, 5)))
    assert lie.gpus[:, 1] == near("3/8", "5/8")
    assert throughput(of, lie, of) == near("7/4", "25/8")


def test_the_shares_of_figure_2_follow_from_true_and_false_reports() -> None:
    assert solve_cooperative(groups((1, 2), (1, 4))).gpus[:, 1] == near("1/4", "3/4")
    assert solve_cooperative(groups((1, 3), (1, 4))).gpus[:, 1] == near("1/3", "2/3")


def test_a_user_of_weight_two_gets_twice_the_throughput_over_all_its_kinds() -> None:
    weighted = groups((1, 2), (1, 5), weight=(1, 2))
    answer = solve_noncooperative(weighted)
    assert throughput(weighted, answer) == near("5/3", "10/3")
    assert answer.gpus[:, 1] == near("1/3", "2/3")
    kinds = groups((1, 2), (1, 3), (1, 5), (1, 5), weight=(1, 1, 1, 1))
    whole, index = merged(kinds)
    shares = divided(solve_noncooperative(whole).gpus, kinds, whole, index)
    assert (kinds.speedup * shares).sum(axis=1) == near(*["45/37"] * 4)
    assert shares[:, 1] == near("4/37", "15/37", "9/37", "9/37")


def test_without_cooperation_underreporting_pays() -> None:
    of = groups((1, 2), (1, 5))
    assert throughput(of, solve_noncooperative(of)) == near("15/7", "15/7")
    lie = solve_noncooperative(groups((1, 2), (1, 2.01)))
    assert throughput(of, lie, of)[1] == pytest.approx(3.7406, abs=1e-4)


def test_the_cooperative_optimum_can_be_dominated() -> None:
    of = groups((1, 5, 6), (1, 2, 3), (1, 6, 7))
    answer = solve_cooperative(of)
    assert answer.objective == pytest.approx(71 / 6, abs=EXACT)
    assert throughput(of, answer) == near("9/2", "2", "16/3")


def test_without_single_crossing_the_types_of_a_user_need_not_be_adjacent() -> None:
    answer = solve_noncooperative(groups((1, 4, 5), (1, 2, 3)))
    assert answer.gpus.ravel() == near("0", "1", "0", "1", "0", "1")
    assert answer.objective == pytest.approx(8.0, abs=EXACT)


def drawn(seed: int, claims: int, types: int) -> Groups:
    """Speedups of a power law with noise; a tenth of the claims cannot run on some type; weights differ."""
    luck = np.random.default_rng(seed)
    speed = np.sort(luck.uniform(1.0, 8.0, types))
    table = speed ** luck.uniform(0.0, 1.2, (claims, 1)) * luck.lognormal(0.0, 0.08, (claims, types))
    table[luck.random(table.shape) < 0.05] = 0.0
    table[table.max(axis=1) == 0.0, 0] = 1.0
    return Groups(
        speedup=table, weight=luck.integers(1, 4, claims).astype(float), gpus=luck.integers(1, 40, types).astype(float)
    )


@pytest.mark.parametrize("seed", range(6))
def test_fast_paths_equal_the_specification(seed: int) -> None:
    of = drawn(seed, 4 + 5 * seed, 2 + seed % 4)
    for fast, slow in (
        (solve_noncooperative, state_noncooperative),
        (solve_cooperative, state_cooperative),
        (solve_efficient, state_efficient),
    ):
        found = fast(of)
        assert found.objective == pytest.approx(slow(of).objective, rel=1e-6)
        assert found.gap <= 1e-7
        assert (found.gpus >= -EXACT).all()
        assert (found.gpus.sum(axis=0) <= of.gpus * (1.0 + EXACT)).all()


@pytest.mark.parametrize("seed", range(examples(20)))
def test_larger_instances_give_equal_throughputs_or_shares_without_envy(seed: int) -> None:
    of = drawn(100 + seed, 60, 6)
    equal = throughput(of, solve_noncooperative(of)) / of.weight
    assert equal == pytest.approx(np.full(60, equal[0]), rel=1e-7)
    shares = solve_cooperative(of).gpus
    assert envy(of, shares).max() <= 1e-7 * throughput(of, Answer(gpus=shares, objective=0, bound=0, path="")).max()


def test_adding_and_removing_rows_leaves_the_optimum_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few rows to begin with and at a time, and each row that binds not left out again."""
    of = drawn(3, 30, 5)
    whole = solve_cooperative(of)
    for name, number in (("NEIGHBOURS", 1), ("ADDED", 1), ("EVERY", 1), ("FAR", 0.0)):
        monkeypatch.setattr(cooperative, name, number)
    lazily = solve_cooperative(of)
    assert lazily.rounds > whole.rounds
    assert lazily.objective == pytest.approx(whole.objective, rel=1e-9)
    assert envy(of, lazily.gpus).max() <= 1e-6


@pytest.mark.parametrize("solve", [solve_noncooperative, solve_cooperative])
def test_merging_equal_claims_does_not_change_the_optimum(solve: object) -> None:
    one = drawn(7, 8, 3)
    twice = Groups(
        speedup=np.vstack([one.speedup, one.speedup]), weight=np.concatenate([one.weight, one.weight]), gpus=one.gpus
    )
    whole, index = merged(twice)
    assert whole.weight.size == 8
    shares = divided(solve(whole).gpus, twice, whole, index)  # type: ignore[operator]
    assert (twice.speedup * shares).sum() == pytest.approx(solve(twice).objective, rel=1e-9)  # type: ignore[operator]
