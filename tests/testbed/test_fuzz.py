"""Hostile messages: a few thousand of a fixed seed here; a command sends a million (see docs/reference/protocol.md)."""

import random

import pytest
from google.protobuf.message import DecodeError

from chaos.fuzz.mutation import damaged, twisted
from chaos.fuzz.run import run
from chaos.fuzz.strategies import drawn
from eunomia_appmaster.protocol import arbiter_pb2 as pb


@pytest.fixture
def _logs() -> object:
    import structlog

    before = structlog.get_config()
    yield None
    structlog.configure(**before)


@pytest.mark.slow
@pytest.mark.usefixtures("_logs")
def test_hostile_messages_break_neither_the_service_nor_other_apps() -> None:
    found = list(run(5000, seed=7))
    assert sum(part.messages for part in found) == 5000
    assert found[3].part == "to a launcher"
    for part in found:
        assert part.faults == ()
        assert "INTERNAL" not in part.codes
        assert part.witness_changed == 0
        assert part.kinds["bytes damaged"] > part.messages // 5
    assert found[0].codes["OK"] > 1000  # many go deep enough to be folded in
    assert found[0].kinds["over a real connection"] > 10


def test_mutations_give_damaged_and_readable_messages() -> None:
    rng = random.Random(1)
    first = pb.AllocateRequest(app="a", jobs_added=[pb.JobAdded(job="a/1", least=1, most=2)], jobs_finished=["a/1"])
    readable = 0
    for _ in range(300):
        try:
            pb.AllocateRequest.FromString(damaged(first.SerializeToString(), [first.SerializeToString()], rng))
            readable += 1
        except DecodeError:
            pass
    assert 30 < readable < 290
    made = {twisted(first, [first], rng).SerializeToString() for _ in range(300)}
    assert len(made) > 150
    assert first.app == "a"


def test_hypothesis_generates_messages_with_every_field() -> None:
    made = drawn([pb.AllocateRequest], 60, 1)
    fields = {field.name for message in made for field, _ in message.ListFields()}
    assert len(fields) > 12
    assert {message.SerializeToString() for message in made} == {
        m.SerializeToString() for m in drawn([pb.AllocateRequest], 60, 1)
    }
