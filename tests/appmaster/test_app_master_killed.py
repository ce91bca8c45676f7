"""Apps that failed under earlier versions are taken up again; a search whose app master is killed again and again."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, ended_by, eventually, live, ready, supervisor, tiny_app, went_on

from eunomia_appmaster import Client
from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service.app_record import MASTER_ENDED

QUICK = ("--no-zygote", "--stop-seconds", "2", "--restart-pause-seconds", "0.1")
_floors = serving_lab.floors


def failed(made: Supervisor, arbiter: Client, name: str) -> None:
    """Have an app fail as it did under earlier versions, by a report in its app master's name."""
    folder = made.state_dir / "apps" / name / "appmaster"
    request = pb.FinishApplicationMasterRequest(
        app=name,
        attempt=4,
        final_application_status=pb.FAILED,
        diagnostics=f"{MASTER_ENDED}: signal 9; `eunomia resume {name}` takes it up again",
    )
    with grpc.insecure_channel(made.address) as channel:
        token = (("authorization", f"Bearer {read_token(next(folder.glob('token.*')))}"),)
        rpc.ApplicationMasterProtocolStub(channel).FinishApplicationMaster(request, metadata=token, timeout=30.0)
    eventually(lambda: arbiter.app(name).state == "failed", "the end of the app")
    eventually(lambda: not live(made, masters=False), "the worker leaves")
    eventually(lambda: not live(made, masters=True), "the app master leaves")


@pytest.mark.slow
def test_an_app_that_failed_because_its_app_master_ended_can_be_resumed(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        state = ("--state-dir", str(made.state_dir))
        arbiter.submit(tiny_app(tmp_path, "ana", iterations=1200, seconds=0.005))
        said = run("resume", "nobody", *state, check=2)
        assert 'no app is named "nobody"' in said
        eventually(lambda: went_on(made, "ana"), "steps")
        assert "but got one that is not over: it needs nothing" in run("resume", "ana", *state, check=2)
        failed(made, arbiter, "ana")
        why = arbiter.app("ana").why
        assert why.startswith("its app master ended before its work was done: ")
        assert why.endswith("`eunomia resume ana` takes it up again")

        checkpoints = made.state_dir / "apps" / "ana" / "1" / "checkpoints"
        (saved,) = [int(path.stem) for path in checkpoints.glob("*/*.json")]
        checkpoints.rename(tmp_path / "aside")
        said = run("resume", "ana", *state, check=2)
        assert "what an app goes on from must be there (put it back from a backup, or submit its file again" in said
        assert "no checkpoints of ana/1 in " in said
        (tmp_path / "aside").rename(checkpoints)

        said = run("resume", "ana", *state)
        assert "ana: taken up again; attempt 2 of its app master starts, and 1 job goes on" in said
        assert made.arbiter is not None
        assert made.arbiter.pid is not None
        os.kill(made.arbiter.pid, signal.SIGKILL)  # the journal knows that the app is taken up again
        eventually(lambda: ready(arbiter))
        eventually(lambda: arbiter.app("ana").state == "finished", "the end")
        assert saved > 0
        assert saved in {line["step"] for line in activity(made, "ana") if line["event"] == "start"}
        said = run("resume", "ana", *state, check=2)
        assert "but got one that has finished; submit its file again" in said
        run("submit", "ana.toml", *state)
        run("cancel", "ana-2", *state)
        assert "but got one that was cancelled; submit its file again" in run("resume", "ana-2", *state, check=2)
        assert run("journal", "check", str(made.state_dir), check=0)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_search_finishes_although_its_app_master_is_killed_20_times_30_seconds_apart(tmp_path: Path) -> None:
    options = ("--no-zygote", "--stop-seconds", "2")
    with (
        supervisor(tmp_path, launcher_options=options) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        app = arbiter.submit(tiny_app(tmp_path, "ana", iterations=4200, seconds=0.05, searches=True))
        eventually(lambda: went_on(made, "ana"), "steps")
        killing = ended_by(made, signal.SIGKILL)
        for _ in range(20):
            time.sleep(30.0)
            assert arbiter.app("ana").state == "running"
            next(killing)
        assert app.wait("30m").state == "finished"
