"""Search spaces: distributions as in Optuna, sampled at random or enumerated as a grid.

What a trial gets follows from the seed, its number and the parameter's name alone, so another parameter in the space,
another order or a restart changes nothing.
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
    """A real number from low to high; ``step``: one of low, low + step, ...; ``log``: uniform in the logarithm."""

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
    """A whole number low, low + step, ... up to high; with ``log`` uniform in its logarithm."""

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
    """One of the choices."""

    choices: tuple[Parameter, ...]

    def sample(self, rng: np.random.Generator) -> Parameter:
        """Draw one value."""
        return self.choices[int(rng.integers(0, len(self.choices)))]

    def count(self) -> int:
        """Return the number of choices."""
        return len(self.choices)

    def at(self, index: int) -> Parameter:
        """Return a choice, in the order given."""
        return self.choices[index]


Distribution = Float | Int | Categorical
Space = Mapping[str, Distribution]


def random_point(space: Space, seed: int, trial: int, *, draw: int = 0) -> dict[str, Parameter]:
    """Draw the parameters of a trial; the same seed, number and draw give the same ones."""
    again = [draw] if draw else []
    return {
        name: distribution.sample(np.random.default_rng([seed, trial, zlib.crc32(name.encode()), *again]))
        for name, distribution in space.items()
    }


def grid_size(space: Space, *, place: str | None = None) -> int:
    """Return the number of points in the grid.

    Raises:
        InputError: a distribution without end, such as a float without a step.
    """
    size = 1
    for name, distribution in space.items():
        count = distribution.count()
        if count is None:
            raise InputError(f'a grid needs a step or choices for "{name}"', value="none", place=place)
        size *= count
    return size


def grid_point(space: Space, trial: int) -> dict[str, Parameter]:
    """Return point number ``trial`` (from 1) of the grid, the last parameter of the space turning fastest."""
    point: dict[str, Parameter] = {}
    rest = trial - 1
    for name, distribution in reversed(list(space.items())):
        rest, index = divmod(rest, distribution.count() or 1)
        point[name] = distribution.at(index)
    return {name: point[name] for name in space}


def trial_seed(seed: int, trial: int) -> int:
    """Return the seed that a trial's script gets, below 2^31 as libraries want it."""
    return int(np.random.default_rng([seed, trial]).integers(0, 2**31))


def arguments(parameters: Parameters) -> list[str]:
    """Write parameters as ``{args}`` does: ``--lr=0.013``, one argument each."""
    return [f"--{name}={text_of(parameter)}" for name, parameter in parameters.items()]


def text_of(parameter: Parameter) -> str:
    """Write one parameter as it stands on a command line; floats round-trip."""
    return str(parameter).lower() if isinstance(parameter, bool) else str(parameter)
