"""Makes a counterexample smaller: fewer users, fewer GPU types, rounder numbers."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from eunomia_testbed.audit.instances import AuditInstance, Row
from eunomia_testbed.audit.properties import NOTHING
from eunomia_testbed.audit.violations import Violation

ROUNDS: Final = 12
Judge = Callable[[AuditInstance, Violation], Violation | None]
"""Measures a violation's property on an instance; returns None if the property does not apply."""


def smaller(found: Violation, judge: Judge) -> Violation:
    """Shrink a counterexample step by step, as long as a fifth of the violation remains, and return the last one.

    Args:
        found: the first counterexample.
        judge: measures the violation on a changed instance.
    """
    for _ in range(ROUNDS):
        simpler = next((other for other in _tried(found, judge) if other is not None), None)
        if simpler is None:
            return found
        found = simpler
    return found


def _tried(found: Violation, judge: Judge) -> Iterator[Violation | None]:
    for instance in _simpler(found.instance):
        other = judge(instance, found)
        keeps = other is not None and other.size > max(NOTHING, 0.2 * found.size)
        yield other if keeps else None


def _simpler(instance: AuditInstance) -> Iterator[AuditInstance]:
    """Yield instances that are one step simpler."""
    if instance.users > 2:
        yield from (_fitted(instance.without_user(user), instance) for user in range(instance.users))
    if instance.types > 2:
        yield from (found for kind in range(instance.types) if (found := _without_type(instance, kind)) is not None)
    for digits in (0, 1):
        rounded = tuple(_rounded(row, digits) for row in instance.speedup)
        if rounded != instance.speedup:
            yield dataclasses.replace(instance, speedup=rounded)
    if len(set(instance.weight)) > 1:
        yield dataclasses.replace(instance, weight=(1.0,) * instance.users)
    if max(instance.gpus) > 1 and any(count % instance.users for count in instance.gpus):
        yield _fitted(dataclasses.replace(instance, gpus=(1,) * instance.types), instance)


def _fitted(instance: AuditInstance, before: AuditInstance) -> AuditInstance:
    """Scale GPUs to the number of users, and jobs to GPUs, if ``before`` had multiples of users and enough jobs."""
    gpus = instance.gpus
    if all(count % before.users == 0 for count in before.gpus):
        gpus = tuple(count // before.users * instance.users for count in gpus)
    jobs = instance.jobs
    if min(before.jobs) >= sum(before.gpus):
        jobs = (sum(gpus),) * instance.users
    return dataclasses.replace(instance, gpus=gpus, jobs=jobs)


def _without_type(instance: AuditInstance, kind: int) -> AuditInstance | None:
    """Return the instance without a GPU type, with speedups relative to the new slowest type."""
    kept = [other for other in range(instance.types) if other != kind]
    rows = [tuple(row[other] for other in kept) for row in instance.speedup]
    if any(max(row) <= 0.0 for row in rows):
        return None
    least = [min(item for item in row if item > 0.0) for row in rows]
    speedup = tuple(tuple(round(item / by, 2) for item in row) for row, by in zip(rows, least, strict=True))
    gpus = tuple(instance.gpus[other] for other in kept)
    return _fitted(dataclasses.replace(instance, speedup=speedup, gpus=gpus), instance)


def _rounded(row: Row, digits: int) -> Row:
    return tuple(max(1.0, round(item, digits)) if item > 0.0 else 0.0 for item in row)
