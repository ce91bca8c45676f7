"""Computes a bid: the value of an offer to one app, by the profile's elasticity and valuation.

No clock, no protocol.
"""

from eunomia.contract.bundles import ByBundle
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import ElasticityStage, ValuationStage
from eunomia.errors import EunomiaError


class AgentError(EunomiaError):
    """The agent cannot value offers by the profile's valuation."""


def bid_of(snapshot: Snapshot, offer: Offer, elasticity: ElasticityStage, valuation: ValuationStage) -> ByBundle:
    """Value an offer on an app's side.

    Args:
        snapshot: of the app alone, its own app as row 0.
        offer: made out to row 0.
        elasticity: the profile's, bound.
        valuation: the profile's, bound.

    Returns:
        A table of one claim: what the app's unexpired GPUs are worth, and each bundle with them.

    Raises:
        AgentError: the valuation does not value the app.
        EunomiaError: it has no bundles.
    """
    menus = elasticity(snapshot)
    valuations = valuation(snapshot, menus, offer)
    rows = valuations.claims.rows.tolist()
    if 0 not in rows:
        raise AgentError("a valuation must value the app that it is asked for", value=f"rows {rows}")
    return valuations.form(ByBundle).select([rows.index(0)])
