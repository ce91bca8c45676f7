"""Explanations over gRPC: tried without the driver's lock, and without a trace in the arbiter."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia_appmaster.protocol import arbiter_pb2 as pb

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Any]:
    with lab_module.lab(tmp_path) as made:
        yield made.ready()


def explained(lab: Any, name: str) -> list[pb.Explanation]:
    return list(lab.client().Explain(pb.ExplainRequest(job=name), metadata=lab.operator).explanations)


def job(name: str, gpus: int) -> pb.JobAdded:
    return pb.JobAdded(job=name, least=gpus, most=gpus, iterations=100.0)


def test_explain_names_the_reason_of_a_wait_and_what_ends_it(lab: Any) -> None:
    first, other = lab.master("first"), lab.master("other", "4")
    first.register()
    first.beat_until(lambda: first.leases, jobs_added=[job("first/1", 3)])
    first.beat()
    other.register()
    other.beat(jobs_added=[job("other/1", 2), job("other/2", 8)])
    gang, giant = explained(lab, "other")
    assert (gang.job, gang.reason, gang.stage, gang.plugin) == ("other/1", "outranked", "allocation", "ordered")
    assert (gang.numbers["free"], gang.numbers["least"], gang.numbers["place"]) == (1.0, 2.0, 1.0)
    assert [(way.what, way.text) for way in gang.frees] == [
        ("release", "slots 0, 1, 2: first/1 done"),
        ("gpus", "1 more free slot"),
    ]
    assert not gang.starts_in_seconds
    assert (giant.reason, [way.what for way in giant.frees]) == ("no_size_fits", ["nothing"])
    first.beat(jobs_finished=["first/1"])
    other.beat_until(lambda: other.leases)


def test_an_explanation_changes_no_state_of_the_arbiter(lab: Any) -> None:
    master = lab.master("ana", "4")
    master.register()
    master.beat(jobs_added=[job("ana/1", 4), job("ana/2", 4)])
    driver = lab.arbiter.service.driver
    before = lab.arbiter.call(lambda: (driver.arbiter.state.counters.version, driver.arbiter.save()))
    assert [one.state for one in explained(lab, "ana")] == ["waiting"]
    after = lab.arbiter.call(lambda: (driver.arbiter.state.counters.version, driver.arbiter.save()))
    assert before[0] != after[0] or before[1] == after[1], "a step came in between, or nothing has changed"


def refusal(lab: Any, name: str) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        explained(lab, name)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    return str(refused.value.details())


def test_an_unknown_job_is_refused_with_the_names_of_the_known_ones(lab: Any) -> None:
    master = lab.master("CNN-tpe", "1")
    master.register()
    master.beat(jobs_added=[job(f"CNN-tpe/{number}", 1) for number in range(1, 10)])
    few = "CNN-tpe/1, CNN-tpe/2, CNN-tpe/3, CNN-tpe/4, CNN-tpe/5 ... CNN-tpe/9 (9 jobs)"
    assert refusal(lab, "CNN-tpe/99") == f'no job is named "CNN-tpe/99"; CNN-tpe has: {few}'
    meant = 'there are the apps: CNN-tpe; did you mean "CNN-tpe/1"?'
    assert refusal(lab, "cnn-tpe/1") == f'no job is named "cnn-tpe/1"; {meant}'
    master.beat(jobs_finished=[f"CNN-tpe/{number}" for number in range(1, 10)])
    master.finish()
    assert explained(lab, "CNN-tpe/3")[0].state == "finished"
    assert refusal(lab, "CNN-tpe/99") == f'no job is named "CNN-tpe/99"; CNN-tpe has: {few}'


def test_cancelling_an_unknown_app_suggests_the_closest_name(lab: Any) -> None:
    lab.submit("CNN-tpe")
    with pytest.raises(grpc.RpcError) as refused:
        lab.client().Cancel(pb.CancelRequest(app="cnn-tpe"), metadata=lab.operator)
    said = 'no app is named "cnn-tpe"; there are: CNN-tpe; did you mean "CNN-tpe"?'
    assert refused.value.details() == said


def test_an_explanation_shows_why_a_machine_refused_a_retune(lab: Any) -> None:
    master = lab.master("ana", "1")
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[job("ana/1", 1)])
    (slot,) = lab.slots("held")
    lab.launcher.not_tuned[slot] = "a limit of 1.00 GiB is below the 1.50 GiB that ana-1 uses"
    lab.launcher.report()
    words = f"slot {slot} of box7 keeps its CPUs and memory: a limit of 1.00 GiB is below the 1.50 GiB that ana-1 uses"
    lab_module.eventually(lambda: words in explained(lab, "ana/1")[0].text, "the reason")
    lab.launcher.not_tuned.clear()
    lab.launcher.report()
    lab_module.eventually(lambda: "keeps its CPUs" not in explained(lab, "ana/1")[0].text, "no reason any more")
