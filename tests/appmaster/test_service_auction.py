"""Auctions over gRPC: offers go to app masters, their agents' bids come back, and leases are the tuner's to divide."""

import asyncio
import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eunomia.contract.bundles import ByBundle
from eunomia.contract.codec import encode
from eunomia.contract.events import JobAdded
from eunomia.contract.valuations import Scores
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.platform.registry import default_registry
from eunomia_appmaster.master.agent import Agent, Known, Standing, plugins_here
from eunomia_appmaster.master.wire import cluster_of, forecast_message, table_message
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.sessions import WAKE_SECONDS, WAKE_SHARE, WOKEN_AT_ONCE, Session, wake

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Master = lab_module.eventually, lab_module.Master

FORECAST = Forecast(
    phases=(Phase(jobs=(JobForecast(iterations_left=100.0, seconds_per_iteration=0.5, least=1, most=4),)),),
    total_gpu_seconds=50.0,
    most=4,
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    overrides = ("rounds.bid_deadline=60s", "rounds.lease=5m")
    with lab_module.lab(tmp_path, "themis", overrides=overrides) as made:
        yield made.ready()


class Bidder(Master):
    """An app master with an agent."""

    def __init__(self, lab: Any, app: str) -> None:
        super().__init__(lab, app)
        lab.submit(app, "{ min = 1, max = 4 }")
        self.welcome = self.register(plugins_here(default_registry()))
        standing = Standing(
            app=app,
            user=self.welcome.user,
            weight=self.welcome.weight,
            user_weight=self.welcome.user_weight,
            arrived_at=self.welcome.arrived_at,
            tuner_kind="none",
        )
        cluster = cluster_of(self.welcome.cluster)
        self.agent = Agent.of(cluster, standing, default_registry(), self.welcome.elasticity, self.welcome.valuation)

    @property
    def known(self) -> Known:
        added = JobAdded(job=f"{self.app}/1", app=self.app, least=1, most=4, iterations=100.0, kind=self.app)
        return Known(jobs={f"{self.app}/1": added}, forecast=FORECAST, rates=())

    def tell(self) -> None:
        """Report the app's one job and its forecast."""
        added = pb.JobAdded(job=f"{self.app}/1", least=1, most=4, iterations=100.0, kind=self.app)
        self.beat_until(lambda: self.offers, jobs_added=[added], forecast=forecast_message(FORECAST))

    def table(self) -> ByBundle:
        return self.agent.bid(self.offers[-1], self.known)

    def bid(self, offer: int | None = None, **changes: Any) -> pb.Bid:
        table = table_message(self.table())
        for name, values in changes.items():
            getattr(table, name)[:] = values
        return pb.Bid(offer=self.offers[-1].id if offer is None else offer, bundles=table)


def test_a_bid_wins_a_lease_that_the_tuner_divides(lab: Any) -> None:
    ana = Bidder(lab, "ana")
    assert ana.welcome.agent_bids
    ana.tell()
    (offer,) = ana.offers
    assert (list(offer.gpus), list(offer.capacity), list(offer.candidates)) == ([0, 1, 2, 3], [4], ["ana/1"])
    assert 0.0 < offer.closes_in_seconds <= 60.0
    ana.beat_until(lambda: ana.leases, bid=ana.bid())
    assert ana.closed == [offer.id]
    (lease,) = ana.leases.values()
    assert not lease.HasField("job")
    assert math.isclose(lease.ends_at - lease.granted_at, 300.0)
    gpus = [container.gpu for container in lease.containers]
    row = pb.JobSlots(job="ana/1", gpus=gpus)
    ana.beat(division=pb.Division(jobs=[row]))
    jobs = lab.seen().jobs
    assert [(job.state, job.slots) for job in jobs] == [("running", len(gpus))]
    answer = ana.beat(division=pb.Division(jobs=[pb.JobSlots(job="ana/1", gpus=[0, 0])]))
    assert "must name each job and each GPU once" in [*answer.refused, *ana.beat().refused][0]
    answer = ana.beat(division=pb.Division(jobs=[pb.JobSlots(job="ana/1", gpus=[])]))
    assert "a job must run on 1 to 4 GPUs, but got 0 (ana/1)" in [*answer.refused, *ana.beat().refused][0]
    assert [(job.state, job.slots) for job in lab.seen().jobs] == [("running", len(gpus))]


def test_an_offer_wakes_the_apps_that_may_bid_but_its_close_wakes_none(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, bob = Bidder(lab, "ana"), Bidder(lab, "bob")
    bob.beat()
    woken: list[str] = []
    stir = Session.stir

    def noted(session: Session, after: float = 0.0) -> None:
        woken.append(session.app)
        stir(session, after)

    monkeypatch.setattr(Session, "stir", noted)
    ana.tell()
    assert set(woken) == {"ana"}, "bob has no job, so the offer is not for its app"
    offer = ana.offers[-1].id
    woken.clear()
    arbiter = lab.arbiter
    arbiter.call(lambda: arbiter.service.sessions["ana"].note_offer(offer))
    assert not arbiter.call(lambda: arbiter.service.sessions["ana"].stale)
    arbiter.call(lambda: arbiter.service.sessions["ana"].note_offer(None))
    assert arbiter.call(lambda: arbiter.service.sessions["ana"].stale), "its next answer says that the offer is closed"
    assert not woken


@pytest.mark.parametrize(("bid_deadline", "apart"), [(2.0, WAKE_SECONDS), (0.035, WAKE_SHARE * 0.001)])
def test_many_app_masters_are_woken_one_by_one_within_a_fraction_of_the_bid_deadline(
    bid_deadline: float, apart: float
) -> None:
    async def moments() -> list[float]:
        loop = asyncio.get_running_loop()
        sessions = [Session(f"app-{number}", 1, bids=True) for number in range(WOKEN_AT_ONCE + 3)]
        began, woken = loop.time(), []
        wake(sessions, bid_deadline)
        assert all(session.stale for session in sessions), "a call that comes meanwhile looks at once"
        for session in sessions:
            await session.changed.wait()
            woken.append(loop.time() - began)
        return woken

    woken = asyncio.run(moments())
    assert woken == sorted(woken)
    assert woken[-1] >= 3 * apart


def test_a_bid_of_an_agent_equals_the_one_that_the_arbiter_computes(lab: Any) -> None:
    ana, bob = Bidder(lab, "ana"), Bidder(lab, "bob")
    ana.tell()
    bob.beat(jobs_added=[pb.JobAdded(job="bob/1", least=1, most=4, iterations=100.0, kind="bob")])

    def own() -> ByBundle:
        arbiter = lab.arbiter.service.driver.arbiter
        offer, stages = arbiter.state.open.offer, arbiter.serving
        arbiter.state.now = offer.made_at  # back to when the offer was made, with what was true then
        waited, contention = arbiter.state.job_ledger.waited, arbiter.state.app_ledger.contention
        waited.flags.writeable = contention.flags.writeable = True
        for view in ana.offers[-1].jobs:
            waited[arbiter.state.job_row(view.job)] = view.waited_seconds
        contention[: offer.contention.size] = offer.contention
        snapshot = arbiter.snapshot()
        made = stages.valuation(snapshot, stages.elasticity(snapshot), offer)
        table: ByBundle = made.form(ByBundle)
        return table.select([made.claims.rows.tolist().index(arbiter.state.app_row("ana"))])

    mine, theirs = ana.table(), lab.arbiter.call(own)
    assert mine.classes.same(theirs.classes)
    for column in ("now", "start", "rho", "part_start", "part_class", "part_gpus", "part_machines"):
        np.testing.assert_array_equal(getattr(mine, column), getattr(theirs, column), err_msg=column)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"offer": 99}, "a bid must name the open offer"),
        ({"rho": [-1.0]}, "rho of a bid must be a positive number"),
        ({"part_gpus": [400]}, "1 to as many GPUs as a machine offers"),
        ({"part_start": [0, 7]}, "offsets of a bid must ascend"),
    ],
)
def test_an_invalid_bid_changes_nothing_and_its_error_is_returned(lab: Any, change: dict[str, Any], why: str) -> None:
    ana = Bidder(lab, "ana")
    ana.tell()
    rows = len(ana.table().rho)
    filled = {key: values * (rows - len(values) + 1) if key == "rho" else values for key, values in change.items()}
    if "part_gpus" in filled:
        filled["part_gpus"] = [400] * len(ana.table().part_gpus)
    answer = ana.beat(bid=ana.bid(**filled))
    assert why in answer.bid_error
    assert not ana.leases
    ana.beat_until(lambda: ana.leases, bid=ana.bid())  # the offer stood open all the time


@pytest.mark.parametrize(
    "columns",
    [
        {"part_class": [0, 0], "part_gpus": [4, 4], "part_machines": [1, 1]},
        {"part_class": [0], "part_gpus": [4], "part_machines": [2]},
    ],
)
def test_a_bid_that_claims_a_gpu_twice_changes_nothing_and_its_error_is_returned(
    lab: Any, columns: dict[str, list[int]]
) -> None:
    ana = Bidder(lab, "ana")
    ana.tell()
    before = lab.seen().slots
    parts = len(columns["part_class"])
    answer = ana.beat(bid=ana.bid(rho=[1.0], part_start=[0, parts], **columns))
    rule = "a bid must ask for at most as many machines as its class has, but got 2 (ana)"
    assert answer.bid_error == rule
    assert not ana.leases
    assert lab.seen().slots == before
    assert lab.arbiter.call(lambda: len(lab.arbiter.service.driver.arbiter.state.open.bids)) == 0


def test_an_encoded_value_that_is_not_a_form_of_bid_is_refused(lab: Any) -> None:
    ana = Bidder(lab, "ana")
    ana.tell()
    offer = ana.offers[0].id
    import json

    assert "JSON" in ana.beat(bid=pb.Bid(offer=offer, encoded="{")).bid_error
    event = json.dumps(encode(JobAdded(job="ana/1", app="ana")))
    assert "must be a form" in ana.beat(bid=pb.Bid(offer=offer, encoded=event)).bid_error
    scores = json.dumps(encode(Scores(score=np.array([1.0]))))
    answer = ana.beat(bid=pb.Bid(offer=offer, encoded=scores))
    assert not answer.bid_error or "bid" in answer.bid_error


def test_an_agent_without_the_plugins_gets_no_offers(lab: Any) -> None:
    lab.submit("ana")
    master = Master(lab, "ana")
    assert not master.register([("themis", "0.0.0-other")]).agent_bids
    master.beat(jobs_added=[pb.JobAdded(job="ana/1", least=1, most=1)])
    for _ in range(2):
        master.beat()
    assert not master.offers


def test_an_open_offer_survives_a_restart_and_is_sent_again(lab: Any) -> None:
    ana = Bidder(lab, "ana")
    ana.tell()
    first = ana.offers[0].id
    lab.restart()
    lab.ready()
    ana.register(plugins_here(default_registry()))
    ana.offers.clear()
    ana.beat_until(lambda: ana.offers)
    assert ana.offers[0].id == first
    ana.beat_until(lambda: ana.leases, bid=ana.bid())
