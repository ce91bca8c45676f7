"""Explanations over gRPC: tried without the driver's lock, and without a trace in the arbiter."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def test_jobs_are_explained_with_what_frees_them(lab: Any) -> None:
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


def test_asking_leaves_no_trace(lab: Any) -> None:
    master = lab.master("ana", "4")
    master.register()
    master.beat(jobs_added=[job("ana/1", 4), job("ana/2", 4)])
    driver = lab.arbiter.service.driver
    before = lab.arbiter.call(lambda: (driver.arbiter.state.version, driver.arbiter.save()))
    assert [one.state for one in explained(lab, "ana")] == ["waiting"]
    after = lab.arbiter.call(lambda: (driver.arbiter.state.version, driver.arbiter.save()))
    assert before[0] != after[0] or before[1] == after[1], "a step came in between, or nothing has changed"
