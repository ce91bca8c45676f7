"""A market instance, and the reader of the TOML file that describes one."""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import builds
from eunomia.platform.layers import is_file, read_text
from eunomia.platform.toml_bounds import SMALL, parse_toml
from eunomia.units import Ints, Reals
from eunomia.words import did_you_mean, shown

MOST_AGENTS: Final = 64
MOST_ROUNDS: Final = 256
MOST_RESOURCES: Final = 8
KEYS: Final = ("utility", "rounds", "arrivals", "supply", "agents")
AGENT_KEYS: Final = ("name", "budget", "arrives", "worth", "needs", "rate")
ARRIVALS: Final = ("known", "surprise")


class Utility(Enum):
    """The utility function of an agent's purchases in one round; utilities of rounds add up (Appendix C)."""

    LINEAR = "linear"
    """The sum over resources of ``worth`` x units bought."""
    LEONTIEF = "leontief"
    """``rate`` x the fraction of the agent's needs that its units cover."""


@builds
class Market:
    """N agents with budgets, and the supply of J resources in T rounds that they buy from."""

    utility: Utility
    resources: tuple[str, ...]
    names: tuple[str, ...]
    budget: Reals
    """[N] budget of each agent."""
    arrives: Ints
    """[N] the first round in which each agent buys; rounds count from 0."""
    supply: Reals
    """[J, T] units of each resource in each round."""
    worth: Reals
    """[N, J, T] linear: utility of one unit; Leontief: units needed for one unit of utility at rate 1."""
    rate: Reals
    """[N, T] Leontief: utility of a round in which all needs are covered; linear: 1."""
    surprise: bool = False
    """Whether arrivals are unexpected: present agents do not know of agents that arrive later."""

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return int(self.supply.shape[1])

    def utility_of(self, units: Reals) -> Reals:
        """Return the utility of [N, J, T] units over all rounds, [N]; rounds before an agent's arrival do not count."""
        if self.utility is Utility.LINEAR:
            by_round = (self.worth * units).sum(axis=1)
        else:
            needs = np.broadcast_to(self.worth, np.broadcast_shapes(self.worth.shape, units.shape))
            part = np.divide(units, needs, out=np.full(needs.shape, np.inf), where=needs > 0.0).min(axis=1)
            by_round = self.rate * np.where(np.isinf(part), 0.0, part)
        total: Reals = (by_round * self.present()).sum(axis=1)
        return total

    def present(self) -> Reals:
        """Return a mask, [N, T]: 1 in the rounds since an agent's arrival, 0 before it."""
        here: Reals = (np.arange(self.rounds) >= self.arrives[:, None]).astype(float)
        return here


def read_market(path: Path) -> Market:
    """Read an instance from a TOML file.

    Raises:
        InputErrors: the file breaks a rule; all errors are listed.
    """
    if not is_file(path):
        there = "a folder" if path.is_dir() else "no such file"
        raise InputError("a market must exist as a file", value=there, place=str(path))
    tree = parse_toml(read_text(path, "a market", SMALL), "a market", place=path.name)
    reader = _Reader(tree, path.name)
    market = reader.market()
    if reader.errors or market is None:
        raise InputErrors(reader.errors)
    return market


class _Reader:
    """Reads the parsed TOML of an instance, and collects its errors."""

    def __init__(self, tree: Mapping[str, Any], place: str) -> None:
        self.tree, self.place = tree, place
        self.errors: list[InputError] = []
        self._check_keys(tree, KEYS, place)

    def market(self) -> Market | None:
        """Return the market, or None if the file has errors."""
        kind = self._word("utility", [one.value for one in Utility], None)
        arrivals = self._word("arrivals", ARRIVALS, "known")
        rounds = self._count(self.tree.get("rounds"), "rounds", MOST_ROUNDS, self.place)
        supply = self.tree.get("supply")
        if not isinstance(supply, dict) or not 1 <= len(supply) <= MOST_RESOURCES:
            self._wrong(f"[supply] must name 1 to {MOST_RESOURCES} resources", supply, self.place)
        agents = self.tree.get("agents")
        if not isinstance(agents, list) or not 1 <= len(agents) <= MOST_AGENTS:
            self._wrong(f"[[agents]] must be given 1 to {MOST_AGENTS} times", agents, self.place)
        if self.errors:
            return None
        resources = tuple(supply or ())
        units = [self._series(item, rounds, f"{self.place}, [supply].{name}") for name, item in (supply or {}).items()]
        utility = Utility(kind)
        read = [self._agent(agent, number, utility, resources, rounds) for number, agent in enumerate(agents or (), 1)]
        names = [agent["name"] for agent in read]
        for name in sorted({name for name in names if name and names.count(name) > 1}):
            self._wrong("a name must be given once", name, self.place)
        if self.errors:
            return None
        market = Market(
            utility=utility,
            resources=resources,
            names=tuple(names),
            budget=np.array([agent["budget"] for agent in read]),
            arrives=np.array([agent["arrives"] - 1 for agent in read], np.int64),
            supply=np.array(units),
            worth=np.array([agent["worth"] for agent in read]),
            rate=np.array([agent["rate"] for agent in read]),
            surprise=arrivals == "surprise",
        )
        self._check_values(market)
        return market

    def _agent(
        self, agent: object, number: int, utility: Utility, resources: tuple[str, ...], rounds: int
    ) -> dict[str, Any]:
        place = f"{self.place}, agent {number}"
        given: Mapping[str, Any] = agent if isinstance(agent, dict) else {}
        if given is not agent:
            self._wrong("an agent must be a table", agent, place)
        self._check_keys(given, AGENT_KEYS, place)
        name = given.get("name")
        if not isinstance(name, str) or not name:
            self._wrong("name must be text", name, place)
        key, other = ("worth", "needs") if utility is Utility.LINEAR else ("needs", "worth")
        if other in given or (utility is Utility.LINEAR and "rate" in given):
            wrong = other if other in given else "rate"
            self._wrong(f"an agent of a {utility.value} market must have {key}, without {wrong}", wrong, place)
        return {
            "name": name if isinstance(name, str) else "",
            "budget": self._positive(given.get("budget", 1.0), "budget", place),
            "arrives": self._count(given.get("arrives", 1), "arrives", rounds, place),
            "worth": self._by_resource(given.get(key), key, resources, rounds, place),
            "rate": self._series(given.get("rate", 1.0), rounds, f"{place}, rate"),
        }

    def _by_resource(
        self, given: object, key: str, resources: tuple[str, ...], rounds: int, place: str
    ) -> list[list[float]]:
        if not isinstance(given, dict) or not given:
            self._wrong(f"{key} must be a table of resources", given, place)
            return [[0.0] * rounds] * len(resources)
        self._check_keys(given, resources, f"{place}, {key}")
        return [self._series(given.get(name, 0.0), rounds, f"{place}, {key}.{name}") for name in resources]

    def _check_values(self, market: Market) -> None:
        """Record an error for each agent that gains no utility from any purchase."""
        here = market.present()
        worth = market.worth * (market.supply > 0.0 if market.utility is Utility.LINEAR else 1.0)
        useful = worth.max(axis=1) * market.rate * here > 0.0
        if market.utility is Utility.LEONTIEF:
            useful &= ~((market.worth > 0.0) & (market.supply <= 0.0)).any(axis=1)
        for agent in np.flatnonzero(~useful.any(axis=1)).tolist():
            rule = "an agent must get utility from the supply of some round from its arrival on"
            self._wrong(rule, None, f"{self.place}, {market.names[agent]}")

    # --- values ------------------------------------------------------------------------------------------------------

    def _series(self, given: object, rounds: int, place: str) -> list[float]:
        """Return one number per round, given either a single number or a list."""
        numbers = given if isinstance(given, list) else [given] * rounds
        if len(numbers) != rounds:
            self._wrong(f"a list must have a number for each of the {rounds} rounds", len(numbers), place)
        read = [_number(number) for number in numbers]
        for number, one in zip(numbers, read, strict=True):
            if not one >= 0.0:
                self._wrong("a value must be a number of 0 or more", number, place)
                return [0.0] * rounds
        return read

    def _positive(self, given: object, key: str, place: str) -> float:
        number = _number(given)
        if not number > 0.0:
            self._wrong(f"{key} must be a number above 0", given, place)
        return number

    def _count(self, given: object, key: str, most: int, place: str) -> int:
        if type(given) is not int or not 1 <= given <= most:
            self._wrong(f"{key} must be a whole number from 1 to {most}", given, place)
            return 1
        return given

    def _word(self, key: str, words: Iterable[str], otherwise: str | None) -> str:
        given = self.tree.get(key, otherwise)
        if given not in words:
            self._wrong(f"{key} must be {' or '.join(words)}", given, self.place)
        return str(given)

    def _check_keys(self, given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
        for key in given:
            if key not in known:
                value = f'"{key}"{did_you_mean(key, known)}'
                self.errors.append(InputError(f"a key must be one of {', '.join(known)}", value=value, place=place))

    def _wrong(self, rule: str, given: object, place: str) -> None:
        value = "none" if given is None else shown(given)[:80]
        self.errors.append(InputError(rule, value=value, place=place))


def _number(given: object) -> float:
    """Return the value as a float, or NaN if it is no finite number."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        return math.nan
    return float(given)
