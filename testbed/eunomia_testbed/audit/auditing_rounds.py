"""Audits a profile over simulated rounds, by the GPU time that users receive; lies are about rates by GPU type."""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from eunomia_testbed.audit.generators import instances
from eunomia_testbed.audit.instances import AuditInstance
from eunomia_testbed.audit.lies import KINDS, Lie, violation_of
from eunomia_testbed.audit.policy import AuditedPolicy, Received
from eunomia_testbed.audit.properties import JUDGES, table
from eunomia_testbed.audit.rounds import OverTime, over_time, received
from eunomia_testbed.audit.tally import Tally
from eunomia_testbed.audit.violations import Property, Violation

LEAST: Final = 0.05
"""Largest size of a violation over rounds that is ignored, since GPU time is granted in whole rounds."""
LIES: Final = 0x11F
"""Seed of the random stream that draws lies over rounds."""
OVER_ROUNDS: Final = (*JUDGES, Property.OVER_REPORTS, Property.UNDER_REPORTS)


def over_rounds(
    policy: AuditedPolicy, workload: str, *, count: int, until: float, kinds: Sequence[Property]
) -> tuple[dict[Property, Tally], list[OverTime]]:
    """Judge a profile on simulated instances; return the violations by property, and how late users were by instance.

    Args:
        policy: the profile, with the seed of all draws.
        workload: a generator, or ``mixed``.
        count: number of instances.
        until: limit on the CPU time of the process, in seconds. No run starts after it, and an instance with
            unfinished runs does not count.
        kinds: the properties that are judged.
    """
    tallies = {kind: Tally(kind=kind, least=LEAST) for kind in OVER_ROUNDS if kind in kinds}
    times: list[OverTime] = []
    drawn = instances(workload, policy.seed, whole=policy.whole)
    for number in range(count if tallies else 0):
        if time.process_time() > until:
            break
        instance, luck = next(drawn), np.random.default_rng([policy.seed, LIES, number])
        honest = received(policy, instance)
        late = over_time(policy, instance, honest)
        found = _judged(policy, tallies, instance, honest, _lies(instance, luck), until)
        if found is None:
            break
        times.append(late)
        for kind, tally in tallies.items():
            tally.note(found.get(kind))
    return tallies, times


def _judged(
    policy: AuditedPolicy,
    kinds: Collection[Property],
    instance: AuditInstance,
    honest: Received,
    lies: Iterator[Lie],
    until: float,
) -> dict[Property, Violation] | None:
    """Return each property's largest violation; None: the time limit was reached before all lies were tried."""
    best = {kind: judged_over_rounds(policy, kind, instance, honest) for kind in JUDGES if kind in kinds}
    for lie in lies:
        if lie.kind not in kinds:
            continue
        if time.process_time() > until:
            return None
        found = lied_over_rounds(policy, instance, honest, lie)
        if lie.kind not in best or found.size > best[lie.kind].size:
            best[lie.kind] = found
    return best


def _lies(instance: AuditInstance, luck: np.random.Generator) -> Iterator[Lie]:
    """Yield a lie for each user and each kind of lie."""
    for make, alone, _ in KINDS:
        for user in range(instance.users):
            rows = make(instance, user)
            if rows:
                yield Lie(kind=alone, users=(user,), rows=(rows[int(luck.integers(len(rows)))],))


def judged_over_rounds(policy: AuditedPolicy, kind: Property, instance: AuditInstance, honest: Received) -> Violation:
    """Return the violation of one property by the GPU time received (size 0 or less: none)."""
    size, users, other = JUDGES[kind](instance, honest)
    return Violation(
        kind=kind,
        size=size,
        instance=instance,
        gpus=table(honest.gpus),
        users=users,
        other=other,
        seed=policy.seed,
        over_rounds=True,
    )


def lied_over_rounds(policy: AuditedPolicy, instance: AuditInstance, honest: Received, lie: Lie) -> Violation:
    """Return the gain of a lie, in the lying users' throughput over the run, as a violation."""
    outcome = received(policy, instance, lie.reports(instance))
    return violation_of(instance, (honest, outcome), lie, seed=policy.seed, over_rounds=True)


def judged_again_over_rounds(policy: AuditedPolicy, found: Violation) -> Violation:
    """Simulate the instance of a stored violation over rounds again, and return the violation found now."""
    honest = received(policy, found.instance)
    if not found.kind.by_lying or found.reports is None:
        return judged_over_rounds(policy, found.kind, found.instance, honest)
    rows = tuple(found.reports[user] for user in found.users)
    lie = Lie(kind=found.kind, users=found.users, rows=rows)
    return lied_over_rounds(policy, found.instance, honest, lie)
