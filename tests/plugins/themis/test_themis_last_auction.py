"""The apps that are shown an offer are chosen by their last auctions, not by what they report in between."""

import dataclasses

import pytest
from test_themis_rounds import Script, searches, themis_arbiter

from eunomia.contract.events import ForecastReported
from eunomia.model.forecasts import Forecast
from eunomia.testing.drive import drive
from eunomia.units import AppId, JobId
from eunomia_plugins.themis.last_auction import Expected, LastAuctions

LIAR = AppId("app0")
"""It bids in the first auction, and honestly in no other before its leases of that auction end twice."""
NEXT_BID_SECONDS = 120.0


def exaggerated(forecast: Forecast) -> Forecast:
    """A hundred times the work that is left, with the same total."""
    phases = tuple(
        dataclasses.replace(
            phase,
            jobs=tuple(dataclasses.replace(job, iterations_left=100.0 * job.iterations_left) for job in phase.jobs),
        )
        for phase in forecast.phases
    )
    return dataclasses.replace(forecast, phases=phases)


def bidders(script: Script, work: dict[JobId, float]) -> list[tuple[float, set[object]]]:
    """Time and bidders of each auction before the liar bids with what it says by then."""
    arbiter = themis_arbiter("2x4 V100", **{"plugins.themis.fairness_knob": 0.75, "rounds.lease": "60s"})
    outcome = drive(arbiter, script, work=work, until=NEXT_BID_SECONDS - 1.0)
    return [
        (decision.now, {app for app, bid in zip(*map(record.columns.get, ("app", "bid")), strict=True) if bid})
        for decision in outcome.decisions
        for record in decision.records
        if record.table == "auction"
    ]


def test_an_app_gains_no_offer_by_exaggerating_between_auctions() -> None:
    script, work = searches(4, 2, 400.0)
    forecast = next(event.forecast for _, event in script if isinstance(event, ForecastReported) and event.app == LIAR)
    lie = (30.0, ForecastReported(app=LIAR, forecast=exaggerated(forecast)))
    honest, lying = bidders(script, work), bidders([*script, lie], work)
    assert lying == honest
    assert sum(LIAR not in names and bool(names) for time, names in honest if time > 30.0) >= 2


def test_waiting_after_an_auction_raises_rho_and_running_does_not() -> None:
    expected = Expected(shared=1000.0, ideal=500.0, at=100.0)
    assert expected.rho(400.0, 0.0, 60.0) == pytest.approx(2.0)
    assert expected.rho(400.0, 60.0, 60.0) == pytest.approx(1060.0 / 500.0 * 2.0)
    assert expected.rho(130.0, 60.0, 60.0) == pytest.approx(1030.0 / 500.0 * 2.0)


def test_the_memo_is_restored_from_its_bytes() -> None:
    memo = LastAuctions(apps={"b": Expected(3.0, 2.0, 1.0), "a": Expected(1.5, 0.1, 7.25)})
    assert LastAuctions.from_bytes(1, memo.to_bytes()) == memo
