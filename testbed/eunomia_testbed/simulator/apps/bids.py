"""Answers offers as live app masters do: the profile's valuation stage values what each app can see."""

import dataclasses

import numpy as np

from eunomia.contract.events import BidReceived, Event, ForecastReported
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.contract.valuations import Form
from eunomia.errors import EunomiaError
from eunomia.units import NONE, OfferId, Stage
from eunomia_appmaster.master.bidding import bid_of
from eunomia_testbed.simulator.apps.masters import Masters
from eunomia_testbed.simulator.simulation_state import SimulationState


class Bidders:
    """The simulated app masters that bid.

    Args:
        sim: the state of the simulation.
        masters: the app masters.
    """

    def __init__(self, sim: SimulationState, masters: Masters) -> None:
        self._sim, self._masters = sim, masters
        self._stages: dict[int, Stages] = {}
        self.silent = 0
        """Number of bids that are missing because the valuation failed."""

    def answer(self, offer: Offer, now: float) -> None:
        """Answer an offer on behalf of every app to which the offer is sent."""
        view = self._sim.arbiter.view
        if not self._is_open(offer):
            return
        asked = view.names.apps.values() if offer.apps is None else offer.apps.tolist()
        masters = [row for row in sorted(asked) if view.apps.divides[row]]
        if not masters:
            return
        snapshot = view.show()
        for row in masters:
            self._answer(snapshot, offer, row, self._sim.rows.apps[view.app_id(row)], now)

    def _is_open(self, offer: Offer) -> bool:
        opened = self._sim.arbiter.view.open_offer
        return opened is not None and opened.id == offer.id

    def _answer(self, snapshot: Snapshot, offer: Offer, row: int, app: int, now: float) -> None:
        events: list[Event] = []
        own = snapshot.only(row)
        known = self._masters.of(app).forecast(now)
        if known is not None:
            events.append(ForecastReported(app=self._sim.rows.app_ids[app], forecast=known))
            own = dataclasses.replace(own, reports=dataclasses.replace(own.reports, forecasts={0: known}))
        form = self._value(own, _made_out_to(offer, snapshot, own, row), app)
        if form is not None:
            events.append(BidReceived(app=self._sim.rows.app_ids[app], offer=OfferId(offer.id), form=form))
        seconds = self._sim.options.answer_seconds
        if seconds > 0.0:
            self._sim.agenda.call(now + seconds, lambda then: self._send_late(app, offer, events))
        else:
            self._send(events)
            self._sim.urgent = True

    def _send(self, events: list[Event]) -> None:
        self._sim.out += events

    def _send_late(self, app: int, offer: Offer, events: list[Event]) -> None:
        """Send a delayed answer, unless the app has ended; bids are left out if the offer has closed."""
        if self._sim.apps.has_ended(app):
            return
        is_open = self._is_open(offer)
        self._send([event for event in events if is_open or not isinstance(event, BidReceived)])

    def _value(self, own: Snapshot, offer: Offer, app: int) -> Form | None:
        stages = self._stages.get(app)
        if stages is None:
            stages = self._stages[app] = self._sim.profile.stages()
        try:
            with self._sim.notes.asking(stages.names[Stage.VALUATION], "bid of an app"):
                return bid_of(own, offer, stages.elasticity, stages.valuation)
        except EunomiaError:
            if self._sim.arbiter.strict:
                raise
            self.silent += 1  # the arbiter values an app without a bid from the app's last reports
            return None

    def forget(self, app: int) -> None:
        """Delete the plugins of an ended app."""
        self._stages.pop(app, None)


def _made_out_to(offer: Offer, snapshot: Snapshot, own: Snapshot, row: int) -> Offer:
    """Return the offer from one app's view: the app has row 0, and its jobs are numbered within the app."""
    rows = {name: index for index, name in enumerate(own.jobs.id) if name is not None}
    mine = offer.candidates[snapshot.jobs.app[offer.candidates] == row].tolist()
    candidates = [rows[snapshot.jobs.id[job]] for job in mine if snapshot.jobs.id[job] in rows]
    contention = offer.contention[row] if row < offer.contention.size and row != NONE else 1.0
    return dataclasses.replace(
        offer,
        apps=np.zeros(1, dtype=np.int32),
        candidates=np.array(candidates, dtype=np.int32),
        contention=np.array([contention]),
    )
