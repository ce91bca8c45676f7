"""Counts how often a property is violated, and keeps the violations to show."""

import dataclasses

from eunomia_testbed.audit.properties import NOTHING
from eunomia_testbed.audit.violations import Property, Violation


@dataclasses.dataclass(slots=True)
class Tally:
    """The number of violations of a property, and the violations to show."""

    kind: Property
    instances: int = 0
    violated: int = 0
    total: float = 0.0
    """Sum of the sizes of all violations."""
    largest: Violation | None = None
    smallest: Violation | None = None
    least: float = NOTHING
    """Largest size of a violation that counts as none."""

    def note(self, found: Violation | None) -> None:
        """Count a judged instance; ``found`` is its violation, which may be below ``least``, or None."""
        self.instances += 1
        if found is None or not found.size > self.least:
            return
        self.violated += 1
        self.total += found.size
        if self.largest is None or found.size > self.largest.size:
            self.largest = found
        if self.smallest is None or found.rank < self.smallest.rank:
            self.smallest = found

    @property
    def share(self) -> float:
        """Return the fraction of the instances that violate the property."""
        return self.violated / self.instances if self.instances else 0.0

    @property
    def mean(self) -> float:
        """Return the mean violation over all instances."""
        return self.total / self.instances if self.instances else 0.0
