"""Explains why a policy cannot have a property, from the policy's contract and allocations."""

from eunomia.contract.contracts import Feature
from eunomia.units import Stage
from eunomia_testbed.audit.auditing import Audit
from eunomia_testbed.audit.violations import LYING, Property

BLIND = "no report of a rate changes what it gives, so it cannot know who gains most from which GPU type"
IN_ORDER = "it serves claims in an order: one allocation gives the first claims all that they can use"
FAIR = (
    "the optimum gives a type to the users that gain most from it, which breaks the {fair} that held on all instances"
)
SCHUMMER = "with Pareto efficiency, which held on all instances, only a dictatorship is strategy-proof (Schummer 1997)"


def reason(made: Audit, kind: Property) -> str:
    """Return why the audited policy cannot have a property that it violates; empty: no reason is known.

    Args:
        made: the audit of the policy.
        kind: the property.
    """
    if kind not in made.tallies or made.tallies[kind].violated == 0:
        return ""
    if kind in (Property.SHARING_INCENTIVE, Property.ENVY_FREE) and _in_order(made):
        return IN_ORDER
    if kind in (Property.PARETO_EFFICIENT, Property.EFFICIENT) and made.insensitive:
        return BLIND
    if kind is Property.EFFICIENT:
        return _fair(made)
    if kind in LYING and made.sensitive and _holds(made, Property.PARETO_EFFICIENT):
        return SCHUMMER
    return ""


def _fair(made: Audit) -> str:
    for fair in (Property.SHARING_INCENTIVE, Property.ENVY_FREE):
        if _holds(made, fair):
            return FAIR.format(fair=fair.label)
    return ""


def _holds(made: Audit, kind: Property) -> bool:
    tally = made.tallies.get(kind)
    return tally is not None and tally.instances > 0 and tally.violated == 0


def _in_order(made: Audit) -> bool:
    contract = made.policy.profile.stages().contract(Stage.ALLOCATION)
    return made.policy.whole and Feature.SCORES in contract.needs
