"""The public interface of the arbiter for code outside core: ``Arbiter``, and a read-only view of its state."""

from eunomia.round.arbiter import Arbiter
from eunomia.round.view import AmountsView, ClusterView, LastVerdict, LeaseView, NamesView, ReportsView

__all__ = ["AmountsView", "Arbiter", "ClusterView", "LastVerdict", "LeaseView", "NamesView", "ReportsView"]
