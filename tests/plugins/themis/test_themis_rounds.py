"""Themis in the arbiter: rounds, leases, payments and bids of app masters, to the end of every job."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest

from eunomia import Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.bundles import ByBundle, offer_classes
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, BidReceived, Event, ForecastReported, JobAdded
from eunomia.contract.offers import Offer
from eunomia.errors import InputErrors
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Seconds, UserId

Script = list[tuple[float, Event]]


def searches(apps: int, jobs: int, seconds: float, *, most: int = 2) -> tuple[Script, dict[JobId, float]]:
    """Apps of several jobs that arrive a few seconds apart and report their forecasts on arrival."""
    script: Script = []
    work: dict[JobId, float] = {}
    for number in range(apps):
        app = AppId(f"app{number}")
        at = 3.0 * number
        script.append((at, AppArrived(app=app, user=UserId("ana"))))
        each = seconds * (1 + number % 3)
        one = JobForecast(iterations_left=each, seconds_per_iteration=1.0, least=1, most=most)
        phase = Phase(jobs=(one,) * jobs)
        forecast = Forecast(phases=(phase,), total_gpu_seconds=each * jobs, most=most * jobs)
        for job in range(jobs):
            name = JobId(f"{app}/{job}")
            script.append(
                (at, JobAdded(job=name, app=app, least=1, most=most, iterations=each, seconds_per_iteration=1.0))
            )
            work[name] = each
        script.append((at, ForecastReported(app=app, forecast=forecast)))
    return script, work


def themis_arbiter(cluster: str, **settings: object) -> Arbiter:
    given = {"rounds.lease": "20s", "plugins.themis.fairness_knob": 0.25, "rounds.bid_deadline": "none", **settings}
    profile = Profile.load("themis", settings=given)
    world = Cluster.parse(cluster)
    return Arbiter(world, profile.stages(world), Profile.fallback().stages(world), seed=3)


def auctions(decisions: Iterable[Decision]) -> list[dict[str, list[object]]]:
    return [
        {name: list(column) for name, column in record.columns.items()}
        for decision in decisions
        for record in decision.records
        if record.table == "auction"
    ]


@pytest.mark.parametrize("delays", [Delays(), Delays(order=0.3, start=1.0, release=2.0, lost=0.2)])
@pytest.mark.parametrize("cluster", ["1x4 V100", "2x4 V100, 2x2 V100"])
def test_every_app_ends_and_no_round_is_faulty(cluster: str, delays: Delays) -> None:
    script, work = searches(6, 3, 60.0)
    arbiter = themis_arbiter(cluster)
    outcome = Drive(arbiter, work=work, delays=delays).run(script, until=50_000.0)
    assert not [fault for decision in outcome.decisions for fault in decision.faults]
    assert set(outcome.finished) == set(work)
    held = auctions(outcome.decisions)
    contended = [one for one in held if one["bidders"] and one["bidders"][0] >= 2]  # type: ignore[operator]
    paid = [one for one in held if any(pays is not None and pays > 0 for pays in one["pays"])]  # type: ignore[operator]
    assert len(contended) >= 5
    assert paid


def test_two_runs_with_one_seed_are_equal() -> None:
    runs = []
    for _ in range(2):
        script, work = searches(5, 3, 40.0)
        outcome = Drive(themis_arbiter("2x4 V100"), work=work).run(script, until=50_000.0)
        runs.append((outcome.finished, auctions(outcome.decisions)))
    assert runs[0] == runs[1]


def test_with_work_conservation_no_gpu_idles_while_an_app_could_use_it() -> None:
    """In every auction all offered GPUs that an app can use are given out."""
    script, work = searches(8, 4, 50.0)
    outcome = Drive(themis_arbiter("2x4 V100"), work=work).run(script, until=50_000.0)
    early = [one for one in auctions(outcome.decisions) if one["gpus_offered"]][:10]
    for one in early[2:]:
        given = sum(one["gpus_kept"]) + sum(one["gpus_left_over"])  # type: ignore[arg-type]
        assert given == one["gpus_offered"][0]


class Agents:
    """Stand in for app masters: answer each offer with the valuation of the app's own snapshot."""

    def __init__(self, silent: set[str]) -> None:
        self.silent = silent
        self.sent = 0

    def watch(self, run: Drive, decision: Decision) -> None:
        for offer in decision.offers:
            self.answer(run, decision, offer)

    def answer(self, run: Drive, decision: Decision, offer: Offer) -> None:
        arbiter = run.arbiter
        snapshot = arbiter.snapshot()
        assert offer.apps is not None
        for row in offer.apps.tolist():
            name = AppId(str(snapshot.apps.id[row]))
            if name in self.silent:
                continue
            own = snapshot.only(row)
            mine = dataclasses.replace(offer, apps=np.zeros(1, np.int32), contention=offer.contention[[row]])
            menus = arbiter.chosen.elasticity(own)
            form = arbiter.chosen.valuation(own, menus, mine).forms[0]
            run.at(float(decision.now) + 0.5, BidReceived(app=name, offer=offer.id, form=form))
            self.sent += 1


@pytest.mark.parametrize("silent", [set(), {"app1", "app3"}])
def test_app_masters_can_bid_and_silent_ones_are_valued_by_the_arbiter(silent: set[str]) -> None:
    script, work = searches(5, 3, 40.0)
    arbiter = themis_arbiter("2x4 V100", **{"rounds.bid_deadline": "2s"})
    agents = Agents(silent)
    run = Drive(arbiter, work=work, watch=agents.watch, delays=Delays(release=1.0))
    outcome = run.run(script, until=50_000.0)
    assert set(outcome.finished) == set(work)
    faults = [fault.what for decision in outcome.decisions for fault in decision.faults]
    # A bid is half a second on its way; where its app ended meanwhile, it is refused, and nothing else is.
    late = "BidReceived: an event must name an app that has not ended"
    assert [what for what in faults if not what.startswith(late)] == []
    assert len(faults) <= 1
    assert agents.sent > 10
    names = {app for one in auctions(outcome.decisions) for app, bid in zip(one["app"], one["bid"], strict=True) if bid}
    assert names == {f"app{number}" for number in range(5)}


@pytest.mark.parametrize("claims", [0, 2])
def test_a_bid_of_several_claims_or_for_other_machines_is_refused(claims: int) -> None:
    script, _ = searches(2, 2, 40.0)
    arbiter = themis_arbiter("2x4 V100", **{"rounds.bid_deadline": "2s"})
    offer = arbiter.step(Seconds(0.0), [event for _, event in script]).offers[0]
    classes = offer_classes(arbiter.state.cluster, offer)
    many = ByBundle.of(classes, [1.0] * claims, [[]] * claims)
    other = ByBundle.of(classes.without([0]), [1.0], [[]])
    for form, said in ((many, "must be of one claim"), (other, "group the machines as its offer does")):
        bid = BidReceived(app=AppId("app0"), offer=offer.id, form=form)
        decision = arbiter.step(Seconds(0.5), [bid])
        assert any(said in fault.what for fault in decision.faults)
        assert decision.closed is None


def test_a_bid_of_an_app_master_has_the_values_that_the_arbiter_computes() -> None:
    """Bids that arrive at once give the same first auction as valuing in process."""
    first = []
    for deadline in ("none", "2s"):
        script, work = searches(5, 3, 40.0)
        arbiter = themis_arbiter("2x4 V100", **{"rounds.bid_deadline": deadline})
        agents = Agents(set())
        outcome = Drive(arbiter, work=work, watch=agents.watch).run(script, until=400.0)
        one = auctions(outcome.decisions)[0]
        first.append([one[name] for name in ("app", "rho_now", "bid_table", "gpus_won", "kept")])
    assert first[0] == first[1]


def test_random_placement_is_refused_since_it_honours_no_pins() -> None:
    with pytest.raises(InputErrors, match="spread"):
        themis_arbiter("2x4 V100", **{"stages.placement": "spread"})


def test_the_profile_loads_and_shows_its_options() -> None:
    profile = Profile.load("themis")
    assert profile.rounds.lease == 600.0
    assert "fairness_knob" in profile.resolved()
