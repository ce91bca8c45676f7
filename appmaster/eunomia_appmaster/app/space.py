"""Search spaces: distributions as in Optuna, sampled at random or enumerated as a grid.

A trial's value of a parameter depends only on the seed, the trial's number and the parameter's name, so the value does
not change if parameters are added or reordered, or after a restart.
"""

import math
import zlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value

Parameter = float | int | str | bool
"""A value of a hyperparameter."""
Parameters = Mapping[str, Parameter]
Sampler = Literal["random", "grid", "tpe", "cmaes", "gp", "qmc"]
SAMPLERS: tuple[Sampler, ...] = ("random", "grid", "tpe", "cmaes", "gp", "qmc")
OPTUNA_SAMPLERS: tuple[Sampler, ...] = ("tpe", "cmaes", "gp", "qmc")
"""Optuna's samplers, which suggest trials one after another."""


@value
class Float:
    """A real number from ``low`` to ``high``; with ``step`` one of low, low + step, ...; with ``log`` log-uniform."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def sample(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        if self.step is not None:
            return self.at(int(rng.integers(0, self._steps() + 1)))
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return min(max(drawn, self.low), self.high)
        return float(rng.uniform(self.low, self.high))

    def count(self) -> int | None:
        """Return the number of values; None: infinitely many."""
        if self.low == self.high:
            return 1
        return None if self.step is None else self._steps() + 1

    def _steps(self) -> int:
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) // Decimal(str(self.step)))

    def at(self, index: int) -> float:
        """Return ``low`` plus ``index`` steps, in decimal arithmetic, so that 0.1 + 2 * 0.1 prints as 0.3."""
        if not index:
            return self.low
        return float(Decimal(str(self.low)) + index * Decimal(str(self.step)))


@value
class Int:
    """A whole number from ``low`` to ``high`` in steps of ``step``; with ``log`` log-uniform."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def sample(self, rng: np.random.Generator) -> int:
        """Draw one value."""
        if self.log:
            drawn = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
            return min(max(round(drawn), self.low), self.high)
        return self.low + self.step * int(rng.integers(0, (self.high - self.low) // self.step + 1))

    def count(self) -> int:
        """Return the number of values."""
        return len(range(self.low, self.high + 1, self.step))

    def at(self, index: int) -> int:
        """Return ``low`` plus ``index`` steps."""
        return self.low + index * self.step


@value
class Categorical:
    """A parameter with a fixed set of choices."""

    choices: tuple[Parameter, ...]

    def sample(self, rng: np.random.Generator) -> Parameter:
        """Draw one value."""
        return self.choices[int(rng.integers(0, len(self.choices)))]

    def count(self) -> int:
        """Return the number of choices, which is the size of this dimension of a grid."""
        return len(self.choices)

    def at(self, index: int) -> Parameter:
        """Return the choice at an index, in the order given."""
        return self.choices[index]


Distribution = Float | Int | Categorical
Space = Mapping[str, Distribution]


def random_point(space: Space, seed: int, trial: int, *, draw: int = 0) -> dict[str, Parameter]:
    """Draw the parameters of a trial; the same seed, trial number and draw give the same parameters."""
    again = [draw] if draw else []
    return {
        name: distribution.sample(np.random.default_rng([seed, trial, zlib.crc32(name.encode()), *again]))
        for name, distribution in space.items()
    }


def grid_size(space: Space, *, place: str | None = None) -> int:
    """Return the number of points in the grid.

    Raises:
        InputError: a distribution has infinitely many values, such as a float without a step.
    """
    size = 1
    for name, distribution in space.items():
        count = distribution.count()
        if count is None:
            raise InputError(f'a grid needs a step or choices for "{name}"', value="none", place=place)
        size *= count
    return size


def grid_point(space: Space, trial: int) -> dict[str, Parameter]:
    """Return point number ``trial`` (from 1) of the grid, the last parameter of the space varying fastest."""
    point: dict[str, Parameter] = {}
    rest = trial - 1
    for name, distribution in reversed(list(space.items())):
        rest, index = divmod(rest, distribution.count() or 1)
        point[name] = distribution.at(index)
    return {name: point[name] for name in space}


def trial_seed(seed: int, trial: int) -> int:
    """Return the random seed of a trial's script, below 2^31, as libraries require."""
    return int(np.random.default_rng([seed, trial]).integers(0, 2**31))


def arguments(parameters: Parameters) -> list[str]:
    """Return parameters as the arguments that replace ``{args}``: one each, such as ``--lr=0.013``."""
    return [f"--{name}={text_of(parameter)}" for name, parameter in parameters.items()]


def text_of(parameter: Parameter) -> str:
    """Return a parameter's value as text for a command line; reading a float back gives the same value."""
    return str(parameter).lower() if isinstance(parameter, bool) else str(parameter)
