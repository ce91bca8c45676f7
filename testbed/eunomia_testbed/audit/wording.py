"""Describes violations in sentences that can be checked by hand."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from eunomia_testbed.audit.instances import Row, Table
from eunomia_testbed.audit.violations import Property, Violation


def size_text(kind: Property, size: float) -> str:
    """Return a violation's size as text, such as ``+181 %`` or ``0.58 of a share``."""
    if kind.by_lying or kind is Property.PARETO_EFFICIENT:
        return f"+{100.0 * size:.3g} %"
    if kind in (Property.WORK_CONSERVING, Property.EFFICIENT):
        return f"{100.0 * size:.3g} % {kind.unit}"
    return f"{size:.2f} {kind.unit}"


def sentence(found: Violation) -> str:
    """Return the instance, the policy's allocation, and its defect as text."""
    over = "On average over rounds: " if found.over_rounds else ""
    return f"{_instance(found)} {over}{_SENTENCES.get(found.kind, _lie)(found)}"


def _instance(found: Violation) -> str:
    instance = found.instance
    rows = [_row(row) for row in instance.speedup]
    speeds = f"{', '.join(rows[:-1])} and {rows[-1]}" if len(rows) > 1 else rows[0]
    counts = " + ".join(str(count) for count in instance.gpus)
    few = "" if min(instance.jobs) >= sum(instance.gpus) else f", with {_row(instance.jobs)} jobs of one GPU"
    weights = "" if len(set(instance.weight)) == 1 else f", weights {_row(instance.weight)}"
    return f"Speedups {speeds} on {counts} GPUs{few}{weights}."


def _incentive(found: Violation) -> str:
    (user,) = found.users
    own, share = _throughput(found, found.gpus)[user], found.instance.equal_share()[user]
    return (
        f"User {user + 1} gets {_gpus(found.gpus[user])}, a throughput of {own:.4f}; an equal share gives {share:.4f}."
    )


def _envy(found: Violation) -> str:
    if not found.users:
        return ""
    user, other = found.users
    own = _throughput(found, found.gpus)[user]
    part = found.instance.weight[user] / found.instance.weight[other]
    theirs = found.instance.throughput_of(user, part * np.array(found.gpus[other]))
    by_weight = "" if part == 1.0 else f", taken {part:g} times for its weight,"
    return (
        f"User {user + 1} gets {_gpus(found.gpus[user])}, a throughput of {own:.4f}; "
        f"what user {other + 1} gets, {_gpus(found.gpus[other])}{by_weight} would give it {theirs:.4f}."
    )


def _dominated(found: Violation) -> str:
    other = found.other or ()
    return (
        f"Users get {_all(found.gpus)}, throughputs {_shown(_throughput(found, found.gpus))}; "
        f"{_all(other)} gives {_shown(_throughput(found, other))}."
    )


def _idle(found: Violation) -> str:
    waiting = " and ".join(f"user {user + 1}" for user in found.users)
    return f"Users get {_all(found.gpus)}; the rest is idle while jobs of {waiting} wait that run there."


def _inefficient(found: Violation) -> str:
    other = found.other or ()
    own, best = sum(_throughput(found, found.gpus)), sum(_throughput(found, other))
    return f"Users get {_all(found.gpus)}, {own:.4f} in all; {_all(other)} gives {best:.4f}."


def _lie(found: Violation) -> str:
    reports, other = found.reports or (), found.other or ()
    honest, lied = _throughput(found, found.gpus), _throughput(found, other)
    stated = [
        f"User {user + 1} reports {_row(reports[user])} for {_row(found.instance.speedup[user])} and truly gets "
        f"{lied[user]:.4f} ({100.0 * (lied[user] / max(honest[user], 1e-12) - 1.0):+.3g} %) of {_gpus(other[user])}"
        for user in found.users
    ]
    return f"Honest, users get {_shown(honest)} of {_all(found.gpus)}. {'; '.join(stated)}."


_SENTENCES: Final[Mapping[Property, Callable[[Violation], str]]] = {
    Property.SHARING_INCENTIVE: _incentive,
    Property.ENVY_FREE: _envy,
    Property.PARETO_EFFICIENT: _dominated,
    Property.WORK_CONSERVING: _idle,
    Property.EFFICIENT: _inefficient,
}


def _throughput(found: Violation, gpus: Table) -> list[float]:
    each: list[float] = found.instance.throughput(np.array(gpus, float)).tolist()
    return each


def _row(row: Row | tuple[int, ...]) -> str:
    return f"({', '.join(f'{item:.6g}' for item in row)})"


def _gpus(row: Row) -> str:
    return f"{_row(tuple(round(item, 4) for item in row))} GPUs"


def _all(rows: Table) -> str:
    return " and ".join(_row(tuple(round(item, 4) + 0.0 for item in row)) for row in rows)


def _shown(numbers: list[float]) -> str:
    return ", ".join(f"{number:.4f}" for number in numbers)
