"""The apps that are shown an offer are chosen by their last auctions, not by what they report in between."""

import dataclasses

import pytest
from test_themis_plugin import auction, four_apps, round_of, themis
from test_themis_rounds import Script, searches, themis_arbiter

from eunomia.contract.events import ForecastReported
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.builders import World
from eunomia.testing.drive import Drive
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
    outcome = Drive(arbiter, work=work).run(script, until=NEXT_BID_SECONDS - 1.0)
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


def far_apart(factor: float) -> World:
    """App a has a job of four GPUs on four machines of one; it says how much slower it is there, times a factor."""
    far = (1.0, 1.0, 1.1 * factor, 1.3 * factor)
    job = JobForecast(iterations_left=1000.0, seconds_per_iteration=4.0, least=4, most=4, slowdown=far)
    known = Forecast(phases=(Phase(jobs=(job,)),), total_gpu_seconds=4000.0, most=4)
    return World("4x1 V100").app("a", contention=2.0, forecast=known).job("a/0", gpus=(4, 4))


def test_an_app_gains_no_rank_by_overstating_its_slowdown() -> None:
    told, exaggerated_far = (auction(themis(), far_apart(factor))[0].memo for factor in (1.0, 10.0))
    assert told.apps["a"] == exaggerated_far.apps["a"]
    own, of_the_paper = (auction(themis(standing_slowdown=True), far_apart(factor))[0].memo for factor in (1.0, 10.0))
    assert own.apps["a"].shared > told.apps["a"].shared
    assert of_the_paper.apps["a"].shared > 5.0 * own.apps["a"].shared


def test_before_its_first_auction_an_app_is_ranked_without_its_reported_slowdown() -> None:
    def shown(factor: float, **options: object) -> list[int]:
        world = four_apps()
        far = (1.0, 1.0, 1.1 * factor, 1.3 * factor)
        job = JobForecast(iterations_left=2000.0, seconds_per_iteration=1.0, least=2, most=4, slowdown=far)
        known = Forecast(phases=(Phase(jobs=(job,) * 2),), total_gpu_seconds=4000.0, most=8)
        world.app("late", arrived=400.0, contention=4.0, forecast=known)
        for number in range(2):
            world.job(f"late/{number}", gpus=(2, 4), arrived=400.0)
        offer = round_of(themis(fairness_knob=0.8, **options), world)[3]
        assert offer.apps is not None
        return offer.apps.tolist()

    assert shown(1.0) == shown(10.0)
    assert shown(1.0, standing_slowdown=True) != shown(10.0, standing_slowdown=True)
