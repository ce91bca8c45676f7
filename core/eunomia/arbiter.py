"""The door to the arbiter for code outside of core: ``Arbiter``, and the read-only view of what it knows."""

from eunomia.round.arbiter import Arbiter
from eunomia.round.view import AmountsView, ClusterView, LastVerdict, LeaseView, NamesView, ReportsView

__all__ = ["AmountsView", "Arbiter", "ClusterView", "LastVerdict", "LeaseView", "NamesView", "ReportsView"]
