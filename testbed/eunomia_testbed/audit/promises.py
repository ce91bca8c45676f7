"""Tests an allocation's promises to users; the conformance suite imports this module at run time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from eunomia.contract.contracts import Promise
from eunomia.platform.profiles import Profile
from eunomia_testbed.audit.auditing import audit
from eunomia_testbed.audit.generators import MIXED
from eunomia_testbed.audit.policy import AuditedPolicy
from eunomia_testbed.audit.violations import Property
from eunomia_testbed.audit.wording import sentence

AUDITED: Final[Mapping[Promise, Property]] = {
    Promise.SHARING_INCENTIVE: Property.SHARING_INCENTIVE,
    Promise.ENVY_FREE: Property.ENVY_FREE,
    Promise.PARETO_EFFICIENT: Property.PARETO_EFFICIENT,
    Promise.STRATEGY_PROOF_OVER: Property.OVER_REPORTS,
    Promise.STRATEGY_PROOF_UNDER: Property.UNDER_REPORTS,
}
"""The property by which each promise is judged."""
INSTANCES: Final = 24
"""Number of instances on which promises are judged."""
SEED: Final = 11


def broken_promises(profile: Profile, promised: Iterable[Promise], *, seconds: float) -> Iterator[tuple[str, str]]:
    """Yield each broken promise: its rule, and the smallest counterexample in words.

    Args:
        profile: the profile that uses the allocation.
        promised: promises of the allocation; those without an entry in ``AUDITED`` are ignored.
        seconds: limit on the CPU time of the audit.
    """
    kinds = [AUDITED[promise] for promise in promised if promise in AUDITED]
    if not kinds:
        return
    made = audit(AuditedPolicy(profile, seed=SEED), MIXED, count=INSTANCES, seconds=seconds, kinds=kinds)
    for kind, tally in made.tallies.items():
        if tally.smallest is not None:
            yield f"{kind.label} must hold where it is promised", sentence(tally.smallest)
