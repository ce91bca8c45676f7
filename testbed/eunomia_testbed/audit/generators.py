"""Generators of instances: users with ordered speedups, noisy speedups of models, adversarial corner cases."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia.units import Reals
from eunomia.words import did_you_mean, shown
from eunomia_testbed.audit.instances import AuditInstance

TYPE_SPEEDS: Final = (1.0, 1.7, 2.6, 4.0)
"""Speed of each GPU type relative to the slowest; a user's speedup is a power of it."""
NOISE: Final = 0.15
"""Standard deviation of the log-normal noise on the speedups of ``models``."""


def _ordered(luck: np.random.Generator, users: int, types: int) -> Reals:
    """Return [user, type] speedups that are powers of the type's speed.

    A user that gains more from one faster type than another user does gains more from all of them.
    """
    power = np.sort(luck.uniform(0.1, 1.6, users))
    found: Reals = np.array(TYPE_SPEEDS[:types])[None, :] ** power[:, None]
    return found


def _models(luck: np.random.Generator, users: int, types: int) -> Reals:
    """Return [user, type] noisy powers of the types' speeds, so that users rank the types differently."""
    found: Reals = _ordered(luck, users, types) * luck.lognormal(0.0, NOISE, (users, types))
    return found


def _corners(luck: np.random.Generator, users: int, types: int) -> Reals:
    """Return [user, type] speedups of one corner case: near-equal users, an extreme one, reversed orders, a zero."""
    kind = int(luck.integers(4))
    table = _ordered(luck, users, types)
    if kind == 0:
        table = np.tile(table[:1], (users, 1)) * luck.uniform(1.0, 1.04, (users, types))
    elif kind == 1:
        table[-1, 1:] *= luck.integers(3, 12)
    elif kind == 2:
        table[0] = table[0, ::-1]
    elif types > 2:
        table[0, int(luck.integers(types))] = 0.0
    return table


Draw = Callable[[np.random.Generator, int, int], Reals]
FEW_JOBS: Final = "few_jobs"
"""Generator of instances like those of ``models``, in which users have at most as many jobs as their GPU share."""
GENERATORS: Final[Mapping[str, Draw]] = {"ordered": _ordered, "models": _models, "corners": _corners, FEW_JOBS: _models}
MIXED: Final = "mixed"
"""Name that selects all generators in which users have enough jobs; they alternate."""


def chosen_generators(name: str) -> tuple[str, ...]:
    """Return the generators that a value of ``--workload`` selects.

    Raises:
        InputError: there is no such generator.
    """
    if name == MIXED:
        return tuple(each for each in GENERATORS if each != FEW_JOBS)
    if name not in GENERATORS:
        known = [MIXED, *GENERATORS]
        rule = f"workload must be one of: {', '.join(known)}"
        raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, known)}", place="--workload")
    return (name,)


def instances(workload: str, seed: int, *, whole: bool) -> Iterator[AuditInstance]:
    """Yield an endless sequence of instances; the n-th depends only on the arguments and n.

    Args:
        workload: a generator, or ``mixed``.
        seed: seed of the draws.
        whole: whether each user's equal share is a whole number of GPUs of every type.
    """
    names = chosen_generators(workload)
    for number in _numbers():
        name = names[number % len(names)]
        yield draw(name, np.random.default_rng([seed, number]), whole=whole)


def draw(name: str, luck: np.random.Generator, *, whole: bool) -> AuditInstance:
    """Draw one instance of a generator: 2 to 4 users, 2 to 3 GPU types, speedups with two decimals."""
    users, types = int(luck.integers(2, 5)), int(luck.integers(2, 4))
    table = GENERATORS[name](luck, users, types)
    slowest = np.where(table > 0.0, table, np.inf).min(axis=1, keepdims=True)
    speedup = np.round(table / slowest, 2)
    gpus = [users * int(count) if whole else int(count) for count in luck.integers(1, 3, types)]
    weighted = name == "corners" and not whole and luck.random() < 0.3
    weight = luck.integers(1, 4, users).astype(float) if weighted else np.ones(users)
    return AuditInstance(
        speedup=tuple(map(tuple, speedup.tolist())),
        weight=tuple(weight.tolist()),
        gpus=tuple(gpus),
        jobs=(max(1, sum(gpus) // users),) * users if name == FEW_JOBS else (sum(gpus),) * users,
        source=name,
    )


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1
