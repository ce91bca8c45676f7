"""Searches for profitable lies: misreported speedups by which a user, or both users of a pair, gain."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

import numpy as np

from eunomia.model.shapes import value
from eunomia.units import Reals
from eunomia_testbed.audit.instances import AuditInstance, Row, Table
from eunomia_testbed.audit.policy import AuditedPolicy, Received
from eunomia_testbed.audit.properties import table
from eunomia_testbed.audit.violations import Property, Violation

OVER: Final = (1.25, 2.0, 4.0)
"""Factors on the speedups of all types but the slowest, in lies that overstate."""
UNDER: Final = (0.02, 0.25, 0.5, 0.9)
"""Factors on the excess of each speedup over that of the slowest type, in lies that understate."""
BESIDES: Final = 1.005
"""Factor by which a lie is above, or below, another user's speedups."""
TRIED: Final = 3
"""Greatest number of lies tried for each user and kind of lie."""


@value
class Lie:
    """The reports of one user, or of two that lie together, and the property that a gain from them violates."""

    kind: Property
    users: tuple[int, ...]
    rows: Table
    """The reported speedups, one row for each user in ``users``."""

    def reports(self, instance: AuditInstance) -> Table:
        """Return [user, type] the reports of all users: the lies, and the others' true speedups."""
        stated = dict(zip(self.users, self.rows, strict=True))
        return tuple(stated.get(user, row) for user, row in enumerate(instance.speedup))


def over_reports(instance: AuditInstance, user: int) -> list[Row]:
    """Return reports, each [type], that overstate a user's speedups except on its slowest type.

    Faster types are scaled by a factor, or set just above another user's speedups.
    """
    own, slowest = _own(instance, user)
    fast = (np.arange(own.size) != slowest) & (own > 0.0)
    rows = [np.where(fast, own * factor, own) for factor in OVER]
    rows += [np.where(fast, np.maximum(own, other * BESIDES), own) for other in _others(instance, user)]
    return _distinct(rows, own)


def under_reports(instance: AuditInstance, user: int) -> list[Row]:
    """Return reports, each [type], that understate a user's speedups: scaled down, or close to another user's."""
    own, slowest = _own(instance, user)
    least = own[slowest]
    rows = [np.where(own > 0.0, least + (own - least) * factor, 0.0) for factor in UNDER]
    for other in _others(instance, user):
        near = [np.maximum(least, other * factor) for factor in (BESIDES, 1.0 / BESIDES)]
        rows += [np.where(own > 0.0, np.minimum(own, row), 0.0) for row in near]
    return _distinct(rows, own)


def _own(instance: AuditInstance, user: int) -> tuple[Reals, int]:
    """Return a user's speedups and its slowest type, which every report states truthfully."""
    own = np.array(instance.speedup[user])
    return own, int(np.where(own > 0.0, own, np.inf).argmin())


def _others(instance: AuditInstance, user: int) -> list[Reals]:
    return [np.array(row) for other, row in enumerate(instance.speedup) if other != user]


def _distinct(rows: list[Reals], own: Reals) -> list[Row]:
    rounded = dict.fromkeys(tuple(np.round(row, 4).tolist()) for row in rows)
    return [row for row in rounded if row != tuple(own.tolist())]


KINDS: Final = (
    (over_reports, Property.OVER_REPORTS, Property.OVER_REPORTS_IN_PAIRS),
    (under_reports, Property.UNDER_REPORTS, Property.UNDER_REPORTS_IN_PAIRS),
)


def lies_of(instance: AuditInstance, luck: np.random.Generator) -> Iterator[Lie]:
    """Yield a few lies of each user and of each pair of users; a lie either overstates or understates.

    Args:
        instance: the instance with the true speedups.
        luck: random generator that chooses the lies to try.
    """
    for make, alone, in_pairs in KINDS:
        rows = [make(instance, user) for user in range(instance.users)]
        for user, mine in enumerate(rows):
            for at in luck.permutation(len(mine))[:TRIED].tolist():
                yield Lie(kind=alone, users=(user,), rows=(mine[at],))
        for pair in combinations(range(instance.users), 2):
            if all(rows[user] for user in pair):
                stated = tuple(rows[user][int(luck.integers(len(rows[user])))] for user in pair)
                yield Lie(kind=in_pairs, users=pair, rows=stated)


def gain_of(policy: AuditedPolicy, instance: AuditInstance, honest: Received, lie: Lie) -> Violation:
    """Return as a violation the relative gain in true throughput from a lie; for a pair, the smaller gain."""
    outcome = policy.outcome(instance, lie.reports(instance))
    return violation_of(instance, (honest, outcome), lie, seed=policy.seed)


def violation_of(
    instance: AuditInstance, given: tuple[Received, Received], lie: Lie, *, seed: int, over_rounds: bool = False
) -> Violation:
    """Return a lie as a violation, sized by the gain; ``given``: the allocations without and with the lie."""
    honest, outcome = given
    before, after = instance.throughput(honest.gpus), instance.throughput(outcome.gpus)
    share = instance.equal_share()
    gains = [float((after[user] - before[user]) / max(before[user], 0.01 * share[user])) for user in lie.users]
    return Violation(
        kind=lie.kind,
        size=min(gains),
        instance=instance,
        gpus=table(honest.gpus),
        users=lie.users,
        reports=lie.reports(instance),
        other=table(outcome.gpus),
        seed=seed,
        over_rounds=over_rounds,
    )
