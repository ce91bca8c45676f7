"""Search spaces: distributions in Optuna's words, sampled at random or walked as a grid.

What a trial gets follows from the seed, its number and the parameter's name alone, so another parameter in the space,
another order or a restart changes nothing.
"""

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal

import numpy as np

from eunomia.errors import InputError
from eunomia.shapes import value

Parameter = float | int | str | bool
"""A value of a hyperparameter."""
Parameters = Mapping[str, Parameter]
Sampler = Literal["random", "grid", "tpe", "cmaes", "gp", "qmc"]
SAMPLERS: tuple[Sampler, ...] = ("random", "grid", "tpe", "cmaes", "gp", "qmc")
OPTUNA_SAMPLERS: tuple[Sampler, ...] = ("tpe", "cmaes", "gp", "qmc")
"""Optuna's: they suggest one trial after another."""


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

    def values(self) -> Sequence[Parameter] | None:
        """All values in order; None where there is no end of them."""
        if self.low == self.high:
            return (self.low,)
        return None if self.step is None else tuple(self.at(index) for index in range(self._steps() + 1))

    def _steps(self) -> int:
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) // Decimal(str(self.step)))

    def at(self, index: int) -> float:
        """Return low and so many steps, in decimal arithmetic: 0.1 + 2 * 0.1 reads 0.3 on a command line."""
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

    def values(self) -> Sequence[Parameter] | None:
        """All values in order."""
        return range(self.low, self.high + 1, self.step)


@value
class Categorical:
    """One of the choices."""

    choices: tuple[Parameter, ...]

    def sample(self, rng: np.random.Generator) -> Parameter:
        """Draw one value."""
        return self.choices[int(rng.integers(0, len(self.choices)))]

    def values(self) -> Sequence[Parameter] | None:
        """All values in the order given."""
        return self.choices


Distribution = Float | Int | Categorical
Space = Mapping[str, Distribution]


def random_point(space: Space, seed: int, trial: int) -> dict[str, Parameter]:
    """Draw the parameters of a trial; the same seed and number draw the same ones."""
    return {
        name: distribution.sample(np.random.default_rng([seed, trial, zlib.crc32(name.encode())]))
        for name, distribution in space.items()
    }


def grid_size(space: Space, *, place: str | None = None) -> int:
    """How many points the grid has.

    Raises:
        InputError: a distribution without end, such as a float without a step.
    """
    size = 1
    for name, distribution in space.items():
        values = distribution.values()
        if values is None:
            raise InputError(f'a grid needs a step or choices for "{name}"', value="none", place=place)
        size *= len(values)
    return size


def grid_point(space: Space, trial: int) -> dict[str, Parameter]:
    """Return point number ``trial`` (from 1) of the grid, the last parameter of the space turning fastest."""
    columns = [distribution.values() or () for distribution in space.values()]
    point = next(itertools.islice(itertools.product(*columns), trial - 1, None))
    return dict(zip(space, point, strict=True))


def trial_seed(seed: int, trial: int) -> int:
    """Return the seed that a trial's script gets, below 2^31 as libraries want it."""
    return int(np.random.default_rng([seed, trial]).integers(0, 2**31))


def arguments(parameters: Parameters) -> list[str]:
    """Write parameters as ``{args}`` does: ``--lr=0.013``, one argument each."""
    return [f"--{name}={text_of(parameter)}" for name, parameter in parameters.items()]


def text_of(parameter: Parameter) -> str:
    """Write one parameter as it stands on a command line; floats round-trip."""
    return str(parameter).lower() if isinstance(parameter, bool) else str(parameter)
