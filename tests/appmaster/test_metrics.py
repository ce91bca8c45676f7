"""Metrics and health over HTTP: of a real service with machines and apps, and of decisions one by one."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.appmaster.service_lab import PATIENCE_SECONDS, Lab, eventually

from eunomia.contract.decisions import Decision, Fault, RecordTable
from eunomia.errors import InputError
from eunomia.units import Cause, Seconds, Stage, Version
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.gauges import StateGauges
from eunomia_appmaster.service.metrics import Meters
from eunomia_appmaster.service.metrics_server import MetricsServer

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """Every sample by name and labels, as a Prometheus server reads it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def asked(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return int(error.code), error.read().decode()


class Town:
    """A service whose metrics are served."""

    def __init__(self, folder: Path) -> None:
        self.lab = Lab(folder)
        service = self.lab.arbiter.service
        service.meters = Meters()
        service.meters.registry.register(StateGauges(service))

        async def serve() -> MetricsServer:
            assert service.meters is not None
            return MetricsServer(service, service.meters, "127.0.0.1:0")

        self.server = self.lab.arbiter.run(serve())

    def samples(self) -> Samples:
        status, text = asked(self.server.address, "/metrics")
        assert status == 200
        return samples(text)

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))

    def health(self) -> tuple[int, dict[str, object]]:
        status, text = asked(self.server.address, "/health")
        return status, json.loads(text)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    yield made
    made.server.close()
    made.lab.close()


def test_an_arbiter_without_its_machines_reports_that_it_waits_for_them(town: Town) -> None:
    assert town.value("eunomia_ready") == 0.0
    assert town.health() == (
        503,
        {
            "schema": "eunomia/health@1",
            "ready": False,
            "healthy": False,
            "wrong": ["waiting for machines"],
            "nodes": [],
            "missing_slots": [],
            "suspended": [],
            "left_out": [],
            "stalled": [],
        },
    )
    assert asked(town.server.address, "/")[0] == 404


def test_slots_apps_queue_and_stages_have_metrics(town: Town) -> None:
    town.lab.ready()
    assert town.health()[0] == 200
    ana, bob = town.lab.master("ana", "3"), town.lab.master("bob", "2")
    for master, slots in ((ana, 3), (bob, 2)):
        master.register()
        master.beat(jobs_added=[pb.JobAdded(job=f"{master.app}/1", least=slots, most=slots, iterations=100.0)])
    eventually(lambda: town.value("eunomia_slots", state="free") == 1.0, "ana runs")
    eventually(lambda: town.value("eunomia_queue", reason="outranked") == 1.0, "bob waits")
    counted = town.samples()

    def of(name: str, **labels: str) -> float:
        return counted[name, frozenset(labels.items())]

    assert of("eunomia_ready") == 1.0
    assert of("eunomia_apps", state="live") == 2.0
    assert of("eunomia_app_slots", app="ana", user="ana") == 3.0
    assert of("eunomia_app_slots", app="bob", user="ana") == 0.0
    assert of("eunomia_queue", reason="outranked") == 1.0
    assert sum(value for (name, _), value in counted.items() if name == "eunomia_queue") == 1.0
    assert sum(value for (name, _), value in counted.items() if name == "eunomia_slots") == 4.0
    assert sum(value for (name, _), value in counted.items() if name == "eunomia_jobs") == 2.0
    assert of("eunomia_machine_up", machine="box7") == 1.0
    assert of("eunomia_transitions_total", kind="start") == 1.0
    assert of("eunomia_rounds_total", cause="arrived") >= 1.0
    eventually(lambda: town.value("eunomia_steps_total") == town.value("eunomia_journal_step"), "no step in between")
    for stage in ("elasticity", "valuation", "allocation", "placement"):
        assert of("eunomia_stage_seconds_count", stage=stage) >= 1.0
        assert of("eunomia_stage_seconds_sum", stage=stage) > 0.0


def test_a_decision_increments_the_counters_of_faults_refusals_and_gaps() -> None:
    meters = Meters()
    record = RecordTable(plugin="themis", table="auction", columns={"gap": [0.25, 0.25, None]})
    faults = (Fault(plugin="bad", stage=Stage.PLACEMENT, what="raised"), Fault(plugin="", stage=None, what="unknown"))
    decision = Decision(
        now=Seconds(1.0), round=1, version=Version(1), causes=frozenset({Cause.FREED}), faults=faults, records=(record,)
    )
    meters.note(decision, {})
    counted = samples(meters.text().decode())
    assert counted["eunomia_faults_total", frozenset({("plugin", "bad"), ("stage", "placement")})] == 1.0
    assert counted["eunomia_events_refused_total", frozenset()] == 1.0
    assert counted["eunomia_solver_gap", frozenset({("plugin", "themis"), ("table", "auction")})] == 0.25
    assert counted["eunomia_rounds_total", frozenset({("cause", "freed")})] == 1.0


def test_a_stage_is_observed_once_in_each_step_that_calls_it() -> None:
    meters, decision = Meters(), Decision(now=Seconds(1.0), round=1, version=Version(1))
    for spent in ({"offer": 2_000_000_000}, {"offer": 2_000_000_000, "valuation": 5}, {"offer": 3_000_000_000}):
        meters.note(decision, spent)
    counted = samples(meters.text().decode())
    assert counted["eunomia_stage_seconds_count", frozenset({("stage", "offer")})] == 2.0
    assert counted["eunomia_stage_seconds_sum", frozenset({("stage", "offer")})] == 3.0
    assert counted["eunomia_stage_seconds_count", frozenset({("stage", "valuation")})] == 1.0


def test_a_metrics_address_beyond_loopback_needs_certificates(tmp_path: Path) -> None:
    town = Town(tmp_path)
    try:
        service = town.lab.arbiter.service

        async def serve(address: str) -> None:
            MetricsServer(service, Meters(), address)

        with pytest.raises(InputError, match=r"needs TLS.*0\.0\.0\.0:0.*--metrics"):
            town.lab.arbiter.run(serve("0.0.0.0:0"))
        with pytest.raises(InputError, match=r"must be free to be served.*--metrics"):
            town.lab.arbiter.run(serve(town.server.address))
    finally:
        town.server.close()
        town.lab.close()


def test_the_reference_names_every_metric_with_its_type(town: Town) -> None:
    town.lab.ready()
    meters = town.lab.arbiter.service.meters
    assert meters is not None
    families = {family.name: family.type for family in meters.registry.collect()}
    page = (Path(__file__).parents[2] / "docs" / "reference" / "prometheus.md").read_text()
    counted = {}
    for line in page.splitlines():
        if line.startswith("| `eunomia_"):
            name, kind = (cell.strip().strip("`") for cell in line.split("|")[1:3])
            counted[name.removesuffix("_total") if kind == "counter" else name] = kind
    assert counted == families
