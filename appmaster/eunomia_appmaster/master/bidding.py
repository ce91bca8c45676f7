"""Computes a bid: the value of an offer to one app, by the profile's elasticity and valuation.

This module uses neither a clock nor messages of the protocol.
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
        snapshot: a snapshot of this app alone, in row 0.
        offer: an offer to the app in row 0.
        elasticity: the hook of the profile's elasticity plugin.
        valuation: the hook of the profile's valuation plugin.

    Returns:
        A table of one claim: the value of the app's GPUs under unexpired leases, alone and with each bundle.

    Raises:
        AgentError: the valuation does not value the app.
        EunomiaError: the valuation cannot value bundles.
    """
    menus = elasticity(snapshot)
    valuations = valuation(snapshot, menus, offer)
    rows = valuations.claims.rows.tolist()
    if 0 not in rows:
        raise AgentError("a valuation must value the app that it is asked for", value=f"rows {rows}")
    return valuations.form(ByBundle).select([rows.index(0)])
