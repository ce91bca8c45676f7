"""An instance of the auditor: users with speedups and weights, and GPUs of several types."""

import math
from typing import Any, Self

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import Reals

Row = tuple[float, ...]
Table = tuple[Row, ...]


@value
class AuditInstance:
    """Users that share GPUs; every job takes one GPU, and the jobs of a user are equal.

    Attributes:
        speedup: [user, type] true speed of one GPU, relative to the user's slowest type; 0: its jobs do not run there.
        weight: [user] positive.
        gpus: [type] number of GPUs.
        jobs: [user] number of jobs, which is the most GPUs that the user can use at a time.
        source: the generator.
    """

    speedup: Table
    weight: Row
    gpus: tuple[int, ...]
    jobs: tuple[int, ...]
    source: str = ""

    @property
    def users(self) -> int:
        """Return the number of users."""
        return len(self.weight)

    @property
    def types(self) -> int:
        """Return the number of GPU types."""
        return len(self.gpus)

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the size for comparisons: users, then GPU types, then GPUs."""
        return self.users, self.types, sum(self.gpus)

    def speeds(self) -> Reals:
        """Return the speedups as an array, [user, type]."""
        return np.array(self.speedup, dtype=float).reshape(self.users, self.types)

    def throughput(self, gpus: Reals) -> Reals:
        """Return [user] throughput if each job uses one of the user's fastest GPUs; ``gpus`` is [user, type]."""
        speeds = self.speeds()
        return np.array([_best(speeds[user], gpus[user], self.jobs[user]) for user in range(self.users)])

    def throughput_of(self, user: int, gpus: Reals) -> float:
        """Return a user's throughput on ``gpus``, [type] numbers of GPUs."""
        return _best(np.array(self.speedup[user]), gpus, self.jobs[user])

    def equal_share(self) -> Reals:
        """Return each user's throughput, [user], with its weighted share of every GPU type."""
        part = np.array(self.weight) / sum(self.weight)
        return self.throughput(part[:, None] * np.array(self.gpus, dtype=float))

    def without_user(self, user: int) -> Self:
        """Return the instance without the user at this index; the GPUs stay the same."""
        kept = [row for row in range(self.users) if row != user]
        return type(self)(
            speedup=tuple(self.speedup[row] for row in kept),
            weight=tuple(self.weight[row] for row in kept),
            gpus=self.gpus,
            jobs=tuple(self.jobs[row] for row in kept),
            source=self.source,
        )

    def plain(self) -> dict[str, Any]:
        """Return the instance as plain values for JSON."""
        return {
            "speedup": [list(row) for row in self.speedup],
            "weight": list(self.weight),
            "gpus": list(self.gpus),
            "jobs": list(self.jobs),
            "source": self.source,
        }


def _best(speed: Reals, gpus: Reals, jobs: int) -> float:
    """Return the throughput on the fastest of the GPUs, at most ``jobs`` of them."""
    left, total = float(jobs), 0.0
    for kind in np.argsort(-speed, kind="stable").tolist():
        used = min(left, float(gpus[kind]))
        total += used * float(speed[kind])
        left -= used
    return total


def instance_from(plain: object, place: str) -> AuditInstance:
    """Read and check an instance.

    Args:
        plain: the result of ``AuditInstance.plain``, as read from JSON.
        place: the file, for errors.

    Raises:
        InputError: a part is missing, or a number is invalid.
    """
    if not isinstance(plain, dict):
        raise InputError("an instance must be a JSON object", value=type(plain).__name__, place=place)
    speedup = tuple(_numbers(row, "speedup", place) for row in _list(plain, "speedup", place))
    weight = _numbers(_list(plain, "weight", place), "weight", place)
    gpus = _numbers(_list(plain, "gpus", place), "gpus", place)
    jobs = _numbers(_list(plain, "jobs", place), "jobs", place)
    _check(speedup, weight, gpus, jobs, place)
    return AuditInstance(
        speedup=speedup,
        weight=weight,
        gpus=tuple(int(count) for count in gpus),
        jobs=tuple(int(count) for count in jobs),
        source=str(plain.get("source", "")),
    )


def _list(plain: dict[str, Any], key: str, place: str) -> list[object]:
    found = plain.get(key)
    if not isinstance(found, list) or not found:
        raise InputError(f"{key} must be a list that is not empty", value=repr(found), place=place)
    return found


def _numbers(row: object, key: str, place: str) -> Row:
    if not isinstance(row, list):
        raise InputError(f"{key} must hold lists of numbers", value=repr(row), place=place)
    for item in row:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item) or item < 0:
            raise InputError(f"{key} must be finite numbers of at least 0", value=repr(item), place=place)
    return tuple(float(item) for item in row)


def _check(speedup: Table, weight: Row, gpus: Row, jobs: Row, place: str) -> None:
    users = len(weight)
    if len(speedup) != users or len(jobs) != users or any(len(row) != len(gpus) for row in speedup):
        rule = "speedup must have a row for each user and a column for each GPU type"
        shape = f"{len(speedup)} rows for {users} weights, {len(jobs)} numbers of jobs and {len(gpus)} types"
        raise InputError(rule, value=shape, place=place)
    if any(max(row) <= 0.0 for row in speedup):
        raise InputError("each user must run on some GPU type", value="a row of zeros", place=f"{place}, speedup")
    if min(weight) <= 0.0:
        raise InputError("weight must be positive", value=f"{min(weight):g}", place=place)
    for key, counts in (("gpus", gpus), ("jobs", jobs)):
        if any(count != int(count) or count < 1 for count in counts):
            raise InputError(f"{key} must be whole numbers of at least 1", value=repr(list(counts)), place=place)
