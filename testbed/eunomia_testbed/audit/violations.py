"""The results of an audit: the property that an instance violates, and the size of the violation."""

from collections.abc import Sequence
from enum import Enum

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import did_you_mean, shown
from eunomia_testbed.audit.instances import AuditInstance, Table


class Property(Enum):
    """Properties that the auditor judges; the value is the name for ``--fail-on``."""

    SHARING_INCENTIVE = "sharing_incentive"
    ENVY_FREE = "envy_freeness"
    PARETO_EFFICIENT = "pareto_efficiency"
    WORK_CONSERVING = "work_conservation"
    EFFICIENT = "efficiency"
    OVER_REPORTS = "over_reports"
    UNDER_REPORTS = "under_reports"
    OVER_REPORTS_IN_PAIRS = "over_reports_in_pairs"
    UNDER_REPORTS_IN_PAIRS = "under_reports_in_pairs"

    @property
    def label(self) -> str:
        """Return the property's name in tables."""
        return _LABELS[self]

    @property
    def by_lying(self) -> bool:
        """Return whether violations of the property are profitable lies."""
        return self in LYING

    @property
    def unit(self) -> str:
        """Return the unit of a violation's size, such as ``of a share``."""
        return _UNITS.get(self, "of a share")


LYING = (
    Property.OVER_REPORTS,
    Property.UNDER_REPORTS,
    Property.OVER_REPORTS_IN_PAIRS,
    Property.UNDER_REPORTS_IN_PAIRS,
)
_LABELS = {
    Property.SHARING_INCENTIVE: "sharing incentive",
    Property.ENVY_FREE: "envy-freeness",
    Property.PARETO_EFFICIENT: "Pareto efficiency",
    Property.WORK_CONSERVING: "work conservation",
    Property.EFFICIENT: "efficiency",
    Property.OVER_REPORTS: "strategy-proof, over-reports",
    Property.UNDER_REPORTS: "strategy-proof, under-reports",
    Property.OVER_REPORTS_IN_PAIRS: "strategy-proof, over-reports in pairs",
    Property.UNDER_REPORTS_IN_PAIRS: "strategy-proof, under-reports in pairs",
}
_UNITS = {
    Property.PARETO_EFFICIENT: "more for some, less for none",
    Property.WORK_CONSERVING: "of the GPUs idle",
    Property.EFFICIENT: "below the optimum",
    **dict.fromkeys(LYING, "gained"),
}


@value
class Violation:
    """An instance on which a property does not hold.

    Attributes:
        kind: the property.
        size: the size of the violation; see ``Property.unit``.
        instance: the instance.
        gpus: [user, type] the policy's allocation when all users are honest.
        users: the users that are worse off, the envious and the envied user, or the users that lie.
        reports: [user, type] the reported speedups; None: the true ones.
        other: [user, type] the dominating or best allocation, or the policy's allocation with the lie; None: none.
        seed: seed of the audit.
        over_rounds: whether GPU time in simulated rounds was judged instead of one allocation.
    """

    kind: Property
    size: float
    instance: AuditInstance
    gpus: Table
    users: tuple[int, ...] = ()
    reports: Table | None = None
    other: Table | None = None
    seed: int = 0
    over_rounds: bool = False

    @property
    def rank(self) -> tuple[int, int, int, float]:
        """Return a sort key: fewer users, GPU types and GPUs first, then the larger violation."""
        return (*self.instance.size, -self.size)


def property_of(name: str, place: str, known: Sequence[str] = ()) -> Property:
    """Return the property with a name.

    Raises:
        InputError: there is no such property.
    """
    names = known or [each.value for each in Property]
    if name not in names:
        rule = f"property must be one of: {', '.join(names)}"
        raise InputError(rule, value=f"{shown(name)}{did_you_mean(name, names)}", place=place)
    return Property(name)
