"""Moving a state between two members: read in the sender's memory on one machine, otherwise sent."""

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from eunomia_appmaster.training.live import memory, transfer
from eunomia_appmaster.training.live.groups import PeerGroup
from eunomia_appmaster.training.live.memory import MOST_PIECES, Memory, memory_of, read, readable

HOST = torch.device("cpu")
on_linux = pytest.mark.skipif(memory._libc() is None, reason="the system lacks process_vm_readv")


def state() -> dict[str, Any]:
    torch.manual_seed(5)
    return {
        "step": 7,
        "large": torch.randn(300, 200),
        "turned": torch.randn(200, 300).t(),
        "half": torch.randn(50_000).to(torch.bfloat16),
        "small": [torch.tensor(3.0), torch.arange(9)],
        "text": "x" * (transfer.HEAD_BYTES + 1),
    }


@pytest.fixture
def groups() -> Iterator[list[PeerGroup]]:
    """Two members of a group, in two threads of this process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    made: list[Any] = [None, None]

    def make(rank: int) -> None:
        own = TCPStore("127.0.0.1", store.port, is_master=False, wait_for_workers=False)
        made[rank] = PeerGroup(own, rank, 2, host="127.0.0.1", timeout_seconds=20.0, peers=Quiet())
        made[rank].warm_up()

    run_both(lambda: make(0), lambda: make(1))
    yield made
    for group in made:
        group.close()


class Quiet:
    """Peers that are never gone."""

    def gone(self) -> str:
        return ""

    def waits(self, for_peers: bool) -> None:
        pass


def run_both(one: Any, other: Any) -> None:
    threads = [threading.Thread(target=each) for each in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()


def moved(groups: list[PeerGroup], room: list[torch.Tensor]) -> dict[str, Any]:
    given, got = state(), []
    run_both(
        lambda: transfer.StateTransfer(groups[0], given, 1).finish(),
        lambda: got.append(transfer.receive(groups[1], 0, HOST, room)),
    )
    (taken,) = got
    assert (taken["step"], taken["text"]) == (given["step"], given["text"])
    for name in ("large", "turned", "half"):
        assert torch.equal(taken[name], given[name]), name
    assert [each.tolist() for each in taken["small"]] == [each.tolist() for each in given["small"]]
    return dict(taken)


@on_linux
def test_a_state_is_read_where_it_is(groups: list[PeerGroup], monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[bool] = []
    monkeypatch.setattr(transfer, "read", lambda *given: results.append(read(*given)) or results[-1])
    room = transfer.room_for(transfer.layout_of(state()))
    own = {each.data_ptr() for each in room}
    taken = moved(groups, room)
    assert results == [True]
    assert {taken[name].data_ptr() for name in ("large", "turned", "half")} == own and not room


@pytest.mark.parametrize("lost", ["no call", "another process", "gone"])
def test_a_state_is_sent_where_it_cannot_be_read(
    groups: list[PeerGroup], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    changed = {"no call": {"process": 0}, "another process": {"cookie": b"another" * 2}, "gone": {"process": 2**22 + 1}}
    monkeypatch.setattr(transfer, "memory_of", lambda tensors: dataclasses.replace(memory_of(tensors), **changed[lost]))
    moved(groups, [])


def give(to: Connection, count: int) -> None:
    """Keep tensors in a process, until it is ended."""
    torch.manual_seed(count)
    tensors = [torch.randn(1000) for _ in range(count)]
    with readable():
        to.send(memory_of(tensors))
        to.recv()


@on_linux
def test_another_process_is_read_until_it_ends() -> None:
    count = MOST_PIECES + 3
    here, there = get_context("fork").Pipe()
    child = get_context("fork").Process(target=give, args=(there, count))
    child.start()
    given: Memory = here.recv()
    torch.manual_seed(count)
    wanted = [torch.randn(1000) for _ in range(count)]
    found = [torch.zeros(1000) for _ in range(count)]
    assert given.process == child.pid != os.getpid()
    assert read(given, found)
    assert all(torch.equal(*pair) for pair in zip(wanted, found, strict=True))
    assert not read(dataclasses.replace(given, process=os.getpid()), found), "another process has another cookie"
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert not read(given, found)


@on_linux
def test_a_piece_is_divided_among_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LEAST_BYTES", 1 << 10)
    monkeypatch.setattr(memory, "MOST_BYTES", 3001)
    wanted = [torch.arange(number, dtype=torch.int64) for number in (1, 700, 5000, 3)]
    found = [torch.zeros_like(each) for each in wanted]
    parts = list(memory._parts(memory_of(wanted), found))
    assert max(sum(size for _, _, size in part) for part in parts) <= 3001
    assert read(memory_of(wanted), found)
    assert all(torch.equal(*pair) for pair in zip(wanted, found, strict=True))
