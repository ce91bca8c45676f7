"""The agent on the app's side gives the arbiter's own rows, offer after offer, over the wire's messages."""

import numpy as np
import pytest

from eunomia import Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.bundles import ByBundle
from eunomia.contract.decisions import Decision
from eunomia.contract.events import AppArrived, BidReceived, Event, ForecastReported, JobAdded, RateMeasured
from eunomia.contract.offers import Offer
from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.platform.registry import Registry
from eunomia.testing.drive import Delays, Drive
from eunomia.units import AppId, JobId, Locality, UserId
from eunomia_appmaster.master.agent import Agent, AgentError, Known, Standing, plugins_here
from eunomia_appmaster.master.outbox import RateReport
from eunomia_appmaster.master.wire import cluster_of, table_message
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.messages import bid_of, cluster_message, offer_message

REGISTRY = Registry.find(installed=False)
THEMIS = pb.StagePlugin(name="themis", options_json='{"fairness_knob": 0.25}')
RANGE = pb.StagePlugin(name="range")
ARRIVED = {f"app{number}": 3.0 * number for number in range(4)}


def script() -> list[tuple[float, Event]]:
    """Searches of two phases that come one after the other."""
    events: list[tuple[float, Event]] = []
    for number, (name, at) in enumerate(ARRIVED.items()):
        events.append((at, AppArrived(app=AppId(name), user=UserId("ana"), tuner_kind="successive_halving")))
        events += [(at, event) for event in jobs_of(name, number)]
        events.append((at, ForecastReported(app=AppId(name), forecast=forecast_of(number))))
        events.append((at + 1.0, measured(name)))
    return events


def jobs_of(name: str, number: int) -> list[JobAdded]:
    return [
        JobAdded(
            job=JobId(f"{name}/{job}"), app=AppId(name), least=1 + number % 2, most=3, iterations=40.0 * (1 + number),
            seconds_per_iteration=1.0,
        )
        for job in (1, 2, 3)
    ]  # fmt: skip


def forecast_of(number: int) -> Forecast:
    one = JobForecast(iterations_left=40.0, seconds_per_iteration=1.0 + number, least=1 + number % 2, most=3)
    return Forecast(phases=(Phase(jobs=(one,) * 3), Phase(jobs=(one,))), total_gpu_seconds=160.0 * (1 + number), most=9)


def measured(name: str) -> RateMeasured:
    return RateMeasured(job=JobId(f"{name}/1"), gpus=2, locality=Locality.ISLAND, rate=1.7, gpu_type="V100")


def known(name: str) -> Known:
    seen = measured(name)
    rate = RateReport(job=seen.job, gpus=seen.gpus, locality=seen.locality, gpu_type=seen.gpu_type, rate=seen.rate)
    number = list(ARRIVED).index(name)
    return Known(jobs={each.job: each for each in jobs_of(name, number)}, forecast=forecast_of(number), rates=[rate])


class Agents:
    """Answer each offer by agents, and hold every answer against the arbiter's own valuation."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster_of(cluster_message(cluster))
        self.compared = 0
        self.rows = 0

    def watch(self, run: Drive, decision: Decision) -> None:
        for offer in decision.offers:
            self.answer(run, decision, offer)

    def answer(self, run: Drive, decision: Decision, offer: Offer) -> None:
        arbiter = run.arbiter
        snapshot = arbiter.snapshot()
        menus = arbiter.chosen.elasticity(snapshot)
        valuations = arbiter.chosen.valuation(snapshot, menus, offer)
        table = valuations.form(ByBundle)
        for claim, row in enumerate(valuations.claims.rows.tolist()):
            name = AppId(str(snapshot.apps.id[row]))
            standing = Standing(
                app=name,
                user=UserId("ana"),
                weight=1.0,
                user_weight=1.0,
                arrived_at=ARRIVED[name],
                tuner_kind="successive_halving",
            )
            agent = Agent.of(self.cluster, standing, REGISTRY, RANGE, THEMIS)
            message = offer_message(arbiter.view, offer, row, decision.now)
            bid = agent.bid(pb.Offer.FromString(message.SerializeToString()), known(name))
            assert bid.classes.same(table.classes)
            assert float(bid.now[0]) == float(table.now[claim])
            assert list(bid.bundles(0)) == list(table.bundles(claim))
            self.compared += 1
            self.rows += bid.rho.size
            event = bid_of(name, pb.Bid(offer=offer.id, bundles=table_message(bid)))
            assert isinstance(event, BidReceived)
            run.at(float(decision.now) + 0.2, event)


@pytest.mark.parametrize("cluster", ["2x4 V100", "1x2 V100, 1x3 V100, 1x4 V100"])
def test_an_agent_computes_the_same_rows_as_the_arbiter(cluster: str) -> None:
    town = Cluster.parse(cluster)
    settings = {"rounds.lease": "15s", "rounds.bid_deadline": "2s", "plugins.themis.fairness_knob": 0.25}
    profile = Profile.load("themis", settings=settings)
    arbiter = Arbiter(town, profile.stages(town), Profile.fallback().stages(town), seed=3)
    work = {job.job: job.iterations for number, name in enumerate(ARRIVED) for job in jobs_of(name, number)}
    agents = Agents(town)
    run = Drive(arbiter, work=work, watch=agents.watch, delays=Delays(release=1.0, start=0.5))
    outcome = run.run(script(), until=400.0)
    assert not [fault for decision in outcome.decisions for fault in decision.faults]
    assert agents.compared > 10
    assert agents.rows > 30


def test_an_agent_without_the_plugin_returns_an_error_that_names_it() -> None:
    standing = Standing(
        app=AppId("a"), user=UserId("u"), weight=1.0, user_weight=1.0, arrived_at=0.0, tuner_kind="none"
    )
    town = Cluster.parse("1x2 V100")
    for plugin, said in (
        (pb.StagePlugin(name="themes"), 'no "themes"'),
        (pb.StagePlugin(name="packed"), 'no "packed"'),
        (pb.StagePlugin(name="themis", version="99"), 'must have "themis" in version 99'),
    ):
        with pytest.raises(AgentError, match=said):
            Agent.of(town, standing, REGISTRY, RANGE, plugin)
    assert {"themis", "range", "fifo"} <= {name for name, _ in plugins_here(REGISTRY)}


def test_an_agent_can_value_an_offer_for_an_app_without_reports() -> None:
    standing = Standing(
        app=AppId("a"), user=UserId("u"), weight=1.0, user_weight=1.0, arrived_at=0.0, tuner_kind="none"
    )
    agent = Agent.of(Cluster.parse("1x2 V100"), standing, REGISTRY, RANGE, THEMIS)
    job = pb.JobView(job="a/1", state=1, least=1, most=2, iterations=10.0)
    made = pb.Offer(
        id=4, gpus=[0, 1], candidates=["a/1"], free_gpus=2, lease_seconds=10.0, capacity=[2], contention=1.0,
        closes_at=3.0, now=1.0, jobs=[job],
    )  # fmt: skip
    bid = agent.bid(made, Known(jobs={}, forecast=None, rates=()))
    assert bid.sizes.tolist() == [1, 2]
    assert np.all(np.diff(bid.rho) < 0)
