"""Close an offer: join the bids of app masters with the valuations of apps that sent no bid."""

import dataclasses

import numpy as np

from eunomia.contract.bundles import ByBundle
from eunomia.contract.claims import Claims
from eunomia.contract.offers import Offer
from eunomia.contract.valuations import Form, Valuations
from eunomia.fold.adopt import close_offer
from eunomia.model.leases import GpuState
from eunomia.store.state import State
from eunomia.units import Ints, Rows, Unit


@dataclasses.dataclass(slots=True)
class Closing:
    """An offer that is closing, without the GPUs that went down while it was open."""

    offer: Offer
    silent: Rows
    """Rows of apps that sent no bid; the valuation stage values them from their last reports."""
    bids: dict[int, Form]
    lost: Ints
    """Machines with GPUs that went down while the offer was open; bid rows that use them are dropped."""

    def joined(self, valuations: Valuations) -> Valuations:
        """Return the bids joined with the valuations of apps that sent none, in order of app row."""
        tables = [form for form in valuations.forms if isinstance(form, ByBundle)]
        bids = {app: form for app, form in self.bids.items() if isinstance(form, ByBundle)}
        if not tables or not bids:
            return valuations
        own = tables[0]
        rows = {int(app): own.select([index]) for index, app in enumerate(valuations.claims.rows.tolist())}
        rows |= {app: bid.without(self.lost) if self.lost.size else bid for app, bid in bids.items()}
        order = sorted(rows)
        weight = None if valuations.claims.weight is None else np.ones(len(order))
        return dataclasses.replace(
            valuations,
            claims=Claims(unit=Unit.APP, rows=np.array(order, dtype=np.int32), weight=weight),
            forms=(ByBundle.joined(own.classes, [rows[app] for app in order]),),
        )


def close_if_due(state: State) -> Closing | None:
    """Close the open offer if all bids are in or the deadline has passed, and return it; None if it stays open."""
    if state.open is None:
        return None
    offer, bids = state.open.offer, state.open.bids
    # Apps that have ended are left out, as their rows may belong to other apps by now.
    ended, asked = state.apps.cells.ended, state.open.asked
    present = [row for row, app in asked.items() if state.app_row(app) == row and not ended[row]]
    waits = any(row not in bids for row in present if state.apps.live.divides[row])
    if waits and state.now < (offer.closes_at or state.now):
        return None
    up = state.holdings.live.state[offer.gpus] != GpuState.DOWN
    gone = np.unique(state.cluster.machine[offer.gpus[~up]]).astype(np.int64)
    silent = np.array([row for row in present if row not in bids], dtype=np.int32)
    kept = offer.gpus[up]
    offer = dataclasses.replace(offer, gpus=kept, free_gpus=int(kept.size), apps=np.array(present, dtype=np.int32))
    close_offer(state)
    return Closing(offer=offer, silent=silent, bids=dict(bids), lost=gone)
