"""Computes a bid: the value of an offer to one app, by the profile's elasticity and valuation.

It uses neither a clock nor messages of the protocol.
"""

from eunomia.contract.bundles import ByBundle
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import ElasticityStage, ValuationStage
from eunomia.errors import EunomiaError


class AgentError(EunomiaError):
    """The agent cannot value offers with the profile's valuation."""


def bid_of(snapshot: Snapshot, offer: Offer, elasticity: ElasticityStage, valuation: ValuationStage) -> ByBundle:
    """Compute an app's bid for an offer.

    Args:
        snapshot: of this app alone, as row 0.
        offer: to row 0.
        elasticity: the profile's, bound.
        valuation: the profile's, bound.

    Returns:
        A table of one claim: the value of the app's unexpired GPUs alone, and together with each bundle.

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
