"""Volatile Fisher markets: conditions of the equilibrium, fairness and optimality on random markets; the command."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from eunomia.cli import run
from eunomia.errors import InputError, InputErrors
from eunomia_market import Market, Utility, conditions_of, equilibrium, read_market, unfold
from eunomia_market.conditions import finish_time_fairness
from eunomia_market.programme import activities_of
from eunomia_market.stochastic import Chain, StochasticMarket, expected_optimum, joint
from strength import examples

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "markets"
NEAR = 1e-3


@st.composite
def markets(draw: st.DrawFn, *, equal: bool = False) -> Market:
    """Markets of up to five agents, three resources and five rounds; with ``equal``, all budgets are 1."""
    agents, resources, rounds = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    luck = np.random.default_rng(draw(st.integers(0, 10_000)))
    utility = draw(st.sampled_from(list(Utility)))
    worth = luck.choice([0.0, 0.5, 1.0, 2.0, 3.0], size=(agents, resources, rounds), p=[0.2, 0.2, 0.2, 0.2, 0.2])
    worth[:, 0, 0] = 1.0  # so that each agent gets something from the supply
    ones = np.ones((agents, rounds))
    return Market(
        utility=utility,
        resources=tuple("abc"[:resources]),
        names=tuple(f"agent {number}" for number in range(agents)),
        budget=np.ones(agents) if equal else luck.choice([0.5, 1.0, 2.0], size=agents),
        arrives=np.zeros(agents, np.int64),
        supply=luck.choice([1.0, 4.0], size=(resources, rounds)),
        worth=worth,
        rate=ones if utility is Utility.LINEAR else luck.choice([0.5, 1.0, 2.0], size=(agents, rounds)),
    )


@settings(max_examples=examples(25), deadline=None)
@given(markets())
def test_the_programme_gives_an_equilibrium(market: Market) -> None:
    found = equilibrium(market)
    conditions = conditions_of(market, found)
    assert conditions.hold, conditions
    np.testing.assert_allclose(market.utility_of(found.bought), found.utility, rtol=NEAR)


@settings(max_examples=examples(15), deadline=None)
@given(markets())
def test_no_agent_gets_more_unless_another_gets_less(market: Market) -> None:
    found, (owner, gain, use) = equilibrium(market), activities_of(market)
    of_agent = np.zeros((market.budget.size, owner.size))
    of_agent[owner, np.arange(owner.size)] = gain
    relative = of_agent / found.utility[:, None]
    best = linprog(
        -relative.sum(axis=0),
        A_ub=np.vstack([use.reshape(owner.size, -1).T, -relative]),
        b_ub=np.concatenate([market.supply.ravel(), np.full(market.budget.size, -1.0 + NEAR)]),
    )
    assert -best.fun <= market.budget.size * (1.0 + 3.0 * NEAR)


@settings(max_examples=examples(25), deadline=None)
@given(markets(equal=True), st.integers(0, 10_000))
def test_with_equal_budgets_rho_is_at_most_1_and_its_product_minimal(market: Market, seed: int) -> None:
    found = equilibrium(market)
    rho = finish_time_fairness(market, found.utility)
    assert (rho <= 1.0 + NEAR).all()
    owner, gain, use = activities_of(market)
    for _ in range(20):  # any other division of the supply
        levels = np.random.default_rng(seed).exponential(size=owner.size)
        used = (use * levels[:, None, None]).sum(axis=0)
        levels /= np.max(used[market.supply > 0.0] / market.supply[market.supply > 0.0])
        other = np.bincount(owner, weights=gain * levels, minlength=market.budget.size)
        assert np.prod(rho) <= np.prod(finish_time_fairness(market, other)) * (1.0 + NEAR)


def test_rho_exceeds_its_limit_after_surprise_arrivals_but_not_after_known_ones(tmp_path: Path) -> None:
    path = EXAMPLES / "arrivals.toml"
    outcome = unfold(read_market(path))
    assert [start for start, _ in outcome.solved] == [0, 1]
    assert all(conditions.hold for _, conditions in outcome.solved)
    np.testing.assert_allclose(outcome.rho, [0.275, 1.125, 0.75, 0.75], rtol=NEAR)
    known = tmp_path / "known.toml"
    known.write_text(path.read_text().replace('"surprise"', '"known"'))
    (solved,) = unfold(read_market(known)).solved
    assert solved[1].hold


@pytest.mark.parametrize("name", ["adapting", "two-resources", "arrivals"])
def test_the_solution_of_each_example_is_an_equilibrium(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["market", str(EXAMPLES / f"{name}.toml")]) == 0
    assert "equilibrium from round 1" in capsys.readouterr().out
    assert run(["market", str(EXAMPLES / f"{name}.toml"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "eunomia/market@1"
    for agent in facts["agents"]:
        assert agent["spent"] == pytest.approx(agent["budget"], rel=NEAR)


GOOD = """
utility = "linear"
rounds = 2
supply.gpus = 1
[[agents]]
name = "a"
worth.gpus = [1, 2]
"""


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('utility = "linear"', 'utility = "cobb"', 'utility must be linear or leontief, but got "cobb"'),
        ("rounds = 2", "rounds = 0", "rounds must be a whole number from 1 to 256, but got 0"),
        ("supply.gpus = 1", "supply.gpus = -1", "a value must be a number of 0 or more, but got -1"),
        ("supply.gpus = 1", "supply.gpus = nan", "a value must be a number of 0 or more, but got nan"),
        ("supply.gpus = 1", "supply.gpus = [1]", "a list must have a number for each of the 2 rounds, but got 1"),
        ("supply.gpus = 1", "suply.gpus = 1", '"suply"; did you mean "supply"?'),
        ("worth.gpus", "worth.cpus", 'a key must be one of gpus, but got "cpus"; did you mean "gpus"?'),
        ("worth.gpus = [1, 2]", "worth.gpus = 0", "an agent must get utility from the supply of some round"),
        ("worth.gpus", "needs.gpus", "an agent of a linear market must have worth, without needs"),
        ('name = "a"', 'name = ""', "name must be text"),
        ('name = "a"', 'name = "a"\nbudget = 0', "budget must be a number above 0, but got 0"),
        ('name = "a"', 'name = "a"\narrives = 3', "arrives must be a whole number from 1 to 2, but got 3"),
        ("[[agents]]", "[agents]", "[[agents]] must be given 1 to 64 times"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path: Path, old: str, new: str, rule: str) -> None:
    path = tmp_path / "market.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputErrors) as refused:
        read_market(path)
    assert rule in str(refused.value)
    assert run(["market", str(path)]) == 2


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a market must exist"):
        read_market(tmp_path / "nothing.toml")


# --- Appendix F -------------------------------------------------------------------------------------------------------


def adapting_job(budget: float, chance: float) -> Chain:
    """A job that doubles its progress with some chance a round in which it runs; progress follows the amount."""
    stays, turns = np.eye(2), np.array([[1.0 - chance, chance], [0.0, 1.0]])
    gain = np.array([np.zeros((2, 2)), [[0.5, 0.5], [1.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]]])
    moves = np.array([stays, turns, turns])
    return Chain(budget=budget, first=np.array([1.0, 0.0]), moves=moves, gain=gain)


def policies(market: StochasticMarket) -> list[np.ndarray]:
    """The expected utilities of every deterministic policy that depends on round and joint state."""
    first, move, gain = joint(market)
    actions, states = move.shape[0], first.size
    found = []
    for choice in itertools.product(range(actions), repeat=states * market.rounds):
        here, total = first, np.zeros(gain.shape[0])
        for round_ in range(market.rounds):
            act = np.array(choice[round_ * states : (round_ + 1) * states])
            total += (here * gain[:, act, np.arange(states)]).sum(axis=1)
            here = sum(here[state] * move[act[state], state] for state in range(states))
        found.append(total)
    return found


@pytest.mark.parametrize(("budgets", "chances"), [((1.0, 1.0), (0.5, 0.0)), ((1.0, 3.0), (0.25, 0.9))])
def test_the_stochastic_programme_equals_the_best_mixture_of_policies(
    budgets: tuple[float, float], chances: tuple[float, float]
) -> None:
    chains = tuple(adapting_job(*one) for one in zip(budgets, chances, strict=True))
    market = StochasticMarket(chains=chains, amounts=np.array([0.0, 0.5, 1.0]), rounds=1)
    found = expected_optimum(market)
    np.testing.assert_allclose(found.visits[0].sum(axis=1), joint(market)[0], atol=1e-6)
    assert found.objective == pytest.approx(best_mixture(market, np.array(budgets)), abs=1e-4)


def best_mixture(market: StochasticMarket, budget: np.ndarray) -> float:
    """The best objective of any mixture of two deterministic policies, which suffice for two jobs."""
    points = np.unique(np.array(policies(market)).round(12), axis=0)
    return max(
        float(budget @ np.log(part * one + (1.0 - part) * other))
        for one, other in itertools.combinations_with_replacement(points, 2)
        for part in np.linspace(0.0, 1.0, 101)
        if (part * one + (1.0 - part) * other > 0.0).all()
    )


def test_a_market_over_two_rounds_also_has_the_optimum_of_the_best_mixture() -> None:
    steady = Chain(budget=1.0, first=np.ones(1), moves=np.ones((3, 1, 1)), gain=np.array([[[0.0]], [[0.5]], [[1.0]]]))
    chains = (adapting_job(1.0, 0.5), steady)
    market = StochasticMarket(chains=chains, amounts=np.array([0.0, 0.5, 1.0]), rounds=2)
    assert expected_optimum(market).objective == pytest.approx(best_mixture(market, np.ones(2)), abs=1e-3)


@pytest.mark.parametrize("what", ["first", "moves"])
def test_probabilities_that_do_not_sum_to_1_are_refused(what: str) -> None:
    chain = adapting_job(1.0, 0.5)
    wrong = Chain(
        budget=1.0,
        first=chain.first * (2.0 if what == "first" else 1.0),
        moves=chain.moves * (2.0 if what == "moves" else 1.0),
        gain=chain.gain,
    )
    with pytest.raises(InputError, match=f"probabilities of {what} must be at least 0 and sum to 1"):
        expected_optimum(StochasticMarket(chains=(wrong,), amounts=np.array([0.0, 0.5, 1.0]), rounds=2))
