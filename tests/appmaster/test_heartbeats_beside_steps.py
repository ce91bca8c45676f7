"""Heartbeats while a step is made: reports of progress and answers without news do not wait for it."""

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.tokens import Role, Tokens

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module: Any = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)


def test_the_signature_of_a_token_and_its_app_are_checked_at_each_call() -> None:
    issues: dict[str, int | None] = {"a": 1}
    tokens = Tokens(b"s" * 16, issue_of=issues.get)
    metadata = (("authorization", f"Bearer {tokens.app('a')}"),)
    for _ in range(3):
        caller = tokens.caller(metadata)
        assert caller is not None
        assert (caller.role, caller.app) == (Role.APP, "a")
    issues["a"] = 2  # its token was issued again: the connection lives on, and the old token is refused
    assert tokens.caller(metadata) is None
    wrong = (("authorization", metadata[0][1][:-1] + "x"),)
    assert tokens.caller(wrong) is None


def test_a_heartbeat_with_progress_is_answered_while_a_step_is_computed(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path) as made:
        lab = made.ready()
        lab.submit("ana", "1")
        master = lab_module.Master(lab, "ana")
        master.register()
        master.beat(jobs_added=[pb.JobAdded(job="ana/1", least=1, most=1, iterations=100.0)])
        lab_module.eventually(lambda: master.beat() and master.leases, "its lease")
        for _ in range(3):  # all news are sent, and acknowledged
            master.beat()
        arbiter = lab.arbiter
        step_ends, holds = asyncio.Event(), asyncio.Event()

        async def step() -> None:
            async with arbiter.service.driver.lock:
                holds.set()
                await step_ends.wait()

        async def begin() -> Any:
            task = asyncio.create_task(step())
            await holds.wait()
            return task

        task = arbiter.run(begin())
        progress = [pb.JobProgress(job="ana/1", iterations_done=40.0, rate=1.0)]
        request = pb.AllocateRequest(app="ana", attempt=1, response_id=master.response_id, jobs_progress=progress)
        answer = master.stub().Allocate(request, metadata=master.token, timeout=30.0)
        assert answer.response_id == master.response_id + 1
        master.response_id = answer.response_id
        release = pb.AllocateRequest(
            app="ana", attempt=1, response_id=master.response_id, release=[pb.Release(lease=1, epoch=99, gpus=[0])]
        )
        with pytest.raises(grpc.RpcError) as waited:  # what needs the arbiter's state waits
            master.stub().Allocate(release, metadata=master.token, timeout=1.0)
        assert waited.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        arbiter.run(_end(step_ends, task))
        lab_module.eventually(lambda: _done(arbiter) == 40.0, "its progress")


async def _end(step_ends: asyncio.Event, task: Any) -> None:
    step_ends.set()
    await task


def _done(arbiter: Any) -> float:
    view = arbiter.service.view
    return float(arbiter.call(lambda: view.jobs.done[view.job_row("ana/1")]))
