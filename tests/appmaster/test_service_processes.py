"""The service as processes: killed arbiters, the real launcher and app master, steps that take too long, commands."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.appmaster import serving_lab
from tests.appmaster.job_output import Output
from tests.appmaster.serving_lab import PATIENCE_SECONDS, SCRIPT, client, eventually, ready, supervisor

from eunomia import cli
from eunomia.errors import InputError, InputErrors, UnreachableError
from eunomia.journal.journal import read_journal
from eunomia_appmaster import Client
from eunomia_appmaster.client import SubmittedApp
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.node.supervisor import Child, Supervisor
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service.server import check_address

_floors = serving_lab.floors

SLOW = """
import time
from eunomia import hookimpl
from eunomia.contract.contracts import Contract
from eunomia.units import Stage
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import PATIENCE_SECONDS, SCRIPT, client, eventually, ready, supervisor

_floors = serving_lab.floors

class Slow:
    name = "slow"
    api = 1
    contracts = {}

    @hookimpl
    def eunomia_allocation(self, snapshot, menus, offer, valuations):
        time.sleep(60)
"""


def work(folder: Path, name: str = "ana", slots: str = "2") -> Path:
    (folder / "train.py").write_text(SCRIPT)
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "python train.py"\nslots = {slots}\n')
    return file


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_killed_arbiters_and_launchers_are_restarted_and_jobs_continue(tmp_path: Path) -> None:
    with supervisor(tmp_path) as made:
        assert made.arbiter is not None
        assert made.launcher is not None
        with client(made) as arbiter:
            first, second = arbiter.submit(work(tmp_path, "ana")), arbiter.submit(work(tmp_path, "bob"))
            eventually(lambda: arbiter.app("ana").slots == 2 or arbiter.app("bob").slots == 2)
            holder = "ana" if arbiter.app("ana").slots else "bob"
            stdout = Output(made.state_dir / "apps" / holder / "1")
            eventually(lambda: stdout.exists() and stdout.read_text().count("up") == 2)
            for _ in range(2):
                before = made.arbiter.pid
                kill(before)
                eventually(lambda pid=before: made.arbiter.pid not in (None, pid))  # type: ignore[misc]
                eventually(lambda: ready(arbiter))
                assert arbiter.app(holder).slots == 2
            kill(made.launcher.pid)
            eventually(lambda: made.launcher is not None and made.launcher.restarts == 1)
            assert stdout.read_text().count("up") == 2  # the workers never noticed
            (tmp_path / "end").touch()
            assert [app.wait("120s").state for app in (first, second)] == ["finished", "finished"]
            assert made.arbiter.restarts == 2
    assert stdout.read_text().count("up") == 2
    with read_journal(made.state_dir / "journal.sqlite") as journal:
        steps = list(journal.steps())
    epochs = [order.epoch for step in steps for order in (*step.decision.orders, *step.decision.transitions)]
    assert len(set(epochs)) == len(epochs)
    assert all(early.now <= late.now for early, late in itertools.pairwise(steps))


def test_a_damaged_journal_log_is_reported_to_the_operator_and_ends_no_running_job(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with supervisor(tmp_path) as made, client(made) as arbiter:
        assert made.arbiter is not None
        arbiter.submit(work(tmp_path))
        stdout = Output(made.state_dir / "apps" / "ana" / "1")
        eventually(lambda: stdout.exists() and stdout.read_text().count("up") == 2)
        log = made.state_dir / "journal.sqlite-wal"
        eventually(lambda: log.stat().st_size > 0)
        whole = list(made.arbiter.command)
        made.arbiter.command = [sys.executable, "-c", "import time; time.sleep(0.5)"]
        before = made.arbiter.pid
        kill(before)
        eventually(lambda: made.arbiter is not None and made.arbiter.pid not in (None, before))
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
        made.arbiter.command = whole
        eventually(lambda: _question(arbiter), "the question")
        shown = run("apps", *state)
        assert "gone (the journal ends with step" in shown
        assert "`eunomia serve --accept-loss`" in shown
        assert "ana" in shown
        assert json.loads(run("apps", "--json", *state))["question"] in shown
        assert "the arbiter must have all its steps to decide" in run("submit", "ana.toml", *state, check=2)
        assert [finding.place for finding in check_folder(made.state_dir).findings] == ["journal.mark"]
        assert "the arbiter decides from now on" in run("serve", "--accept-loss", *state)
        assert not _question(arbiter)
        assert stdout.read_text().count("up") == 2  # the workers never noticed
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("ana").state == "finished")
        assert "nothing found" in run("journal", "check", str(made.state_dir))


def _question(arbiter: Client) -> str:
    try:
        return arbiter.health().question
    except UnreachableError:
        return ""


def test_a_log_that_cannot_be_written_does_not_prevent_a_restart(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        configure_logs(stream=stream)
    nap = [sys.executable, "-c", "import time; time.sleep(0.05)"]
    child = Child("napper", nap, log_file=tmp_path / "out", env=os.environ, orphaned=signal.SIGTERM)
    child.start()
    eventually(lambda: child.restarts >= 2)
    child.stop()


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()  # where its log is to stand
    nap = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = Child("napper", nap, log_file=tmp_path / "out", env=os.environ, orphaned=signal.SIGTERM)
    child.start()
    eventually(lambda: child.restarts >= 1)
    (tmp_path / "out").rmdir()
    eventually(lambda: child.pid is not None)
    child.stop()
    assert child.failure is None


def test_a_launcher_killed_at_the_end_of_a_run_leaves_no_containers(tmp_path: Path) -> None:
    with supervisor(tmp_path) as made, client(made) as arbiter:
        arbiter.submit(work(tmp_path))
        stdout = Output(made.state_dir / "apps" / "ana" / "1")
        eventually(lambda: stdout.exists() and stdout.read_text().count("up") == 2)
        live = made.state_dir / "launcher" / "live"
        pids = [json.loads((one / "container.json").read_text())["pid"] for one in live.iterdir()]
        assert len(pids) == 3  # the app master, and two workers
        assert made.launcher is not None
        launcher = made.launcher.pid
        assert launcher is not None
        os.kill(launcher, signal.SIGSTOP)  # it hears of no end; the supervisor kills it once its patience is over
        made.launcher.stop(seconds=0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    (tmp_path / "end").touch()
    with supervisor(tmp_path) as again, client(again) as arbiter:
        eventually(lambda: arbiter.app("ana").state == "finished")


def test_a_clean_stop_suspends_jobs_and_a_new_start_resumes_them(tmp_path: Path) -> None:
    file = work(tmp_path)
    with supervisor(tmp_path) as made, client(made) as arbiter:
        arbiter.submit(file)
        stdout = Output(made.state_dir / "apps" / "ana" / "1")
        eventually(lambda: stdout.exists() and "up" in stdout.read_text())
        pids = [made.arbiter.pid, made.launcher.pid] if made.arbiter and made.launcher else []
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not (made.run_dir / "address").exists()
    (tmp_path / "end").touch()
    with supervisor(tmp_path) as again, client(again) as arbiter:
        eventually(lambda: arbiter.app("ana").state == "finished")


def test_a_step_over_its_limit_ends_the_process_and_is_not_journaled(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    env = {**os.environ, "EUNOMIA_PLUGIN_PATH": str(tmp_path / "slow.py")}
    state, file = tmp_path / "state", work(tmp_path, slots="1")
    command = [sys.executable, "-m", "eunomia_appmaster.service", "--state-dir", str(state), "--policy", "slow"]
    command += ["--address", "127.0.0.1:0", "--step-limit-seconds", "6", "--run-dir", str(state / "run")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        eventually(lambda: (state / "run" / "address").exists() or process.poll() is not None)
        address = (state / "run" / "address").read_text()
        _register(address, read_token(state / "run" / "launcher.token"))
        with Client(address, token_file=state / "run" / "token") as arbiter:
            eventually(lambda: arbiter.health().ready)
            name = arbiter.submit(file).name
            token = _app_token(state, name)
            with pytest.raises(grpc.RpcError):
                _add_job(address, token, name)
        assert process.wait(PATIENCE_SECONDS) != 0
    finally:
        process.kill()
        process.wait()
    assert "Timeout" in (state / "hung.txt").read_text()
    with read_journal(state / "journal.sqlite") as journal:
        assert not any(step.decision.causes for step in journal.steps())


def _register(address: str, token: str) -> None:
    from eunomia_appmaster.protocol import launcher_pb2, launcher_pb2_grpc
    from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION

    request = launcher_pb2.RegisterNodeRequest(
        node="box7",
        slots=[launcher_pb2.Slot(gpu_type="cpu")],
        launcher_id="x",
        version=VERSION,
        python=PYTHON,
        protocol=PROTOCOL,
        head=True,
    )
    with grpc.insecure_channel(address) as channel:
        launcher_pb2_grpc.ResourceTrackerStub(channel).RegisterNode(
            request,
            metadata=(("authorization", f"Bearer {token}"),),
        )


def _app_token(state: Path, app: str) -> str:
    from eunomia_appmaster.service.tokens import Tokens

    with read_journal(state / "journal.sqlite") as journal:
        issue = journal.notes("app")[app]["issue"]
        return Tokens(bytes.fromhex(journal.meta["secret"]), issue_of={app: issue}.get).app(app)


def _add_job(address: str, token: str, app: str) -> None:
    metadata = (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        stub = rpc.ApplicationMasterProtocolStub(channel)
        stub.RegisterApplicationMaster(pb.RegisterApplicationMasterRequest(app=app, attempt=1), metadata=metadata)
        added = pb.JobAdded(job=f"{app}/1", least=1, most=1)
        stub.Allocate(
            pb.AllocateRequest(app=app, attempt=1, jobs_added=[added]), metadata=metadata, timeout=PATIENCE_SECONDS
        )


def test_bad_input_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a policy must be a preset"), supervisor(tmp_path, policy="thems"):
        pass
    with pytest.raises(InputError, match="loopback"), supervisor(tmp_path, address="0.0.0.0:7720"):
        pass


def test_serve_refuses_invalid_journal_options_before_anything_starts(tmp_path: Path, run: Callable[..., str]) -> None:
    said = run("serve", "--journal-segment-steps", "0", "--state-dir", "state", check=2)
    assert "a journal's segment must have at least 1 step, but got 0" in said
    said = run("serve", "--journal-keep", "some", "--state-dir", "state", check=2)
    assert "'some' is not one of 'archive', 'drop', 'all'" in said
    assert not (tmp_path / "state").exists()


def test_a_refused_serve_leaves_no_result_folder(tmp_path: Path, run: Callable[..., str]) -> None:
    out = ("--out", "out", "--state-dir", "state")
    said = run("serve", "--journal-keep", "drop", *out, check=2)
    assert "--out must have a journal with all its steps, but got --journal-keep drop" in said
    assert "a policy must be a preset" in run("serve", "--policy", "thems", *out, check=2)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    said = run("serve", "--cpu-only", "--address", "127.0.0.1:0", *out, check=2)
    assert "must" in said
    assert not (tmp_path / "state").exists()


def test_a_client_without_an_arbiter_or_token_gets_an_error_with_the_remedy(tmp_path: Path) -> None:
    with Client("127.0.0.1:1", state_dir=tmp_path) as client, pytest.raises(UnreachableError) as away:
        client.list()
    python = "in Python Client(state_dir=DIR) or Client(address)"
    remedy = (
        f"eunomia serve starts one; --state-dir DIR or --address HOST:PORT, {python}, finds one that runs elsewhere"
    )
    assert str(away.value) == f"an arbiter must be reachable ({remedy}), but got connection refused (127.0.0.1:1)"
    assert away.value.exit_code == 4


def test_the_error_of_a_wrong_address_names_the_running_arbiter(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "address").write_text("127.0.0.1:7931")
    with Client("127.0.0.1:1", state_dir=tmp_path) as client, pytest.raises(UnreachableError) as away:
        client.health()
    assert "(one runs at 127.0.0.1:7931: leave --address and EUNOMIA_ADDRESS out to reach it)" in str(away.value)


@pytest.mark.parametrize("address", ["box7", "127.0.0.1", "127.0.0.1:", ":7720", "127.0.0.1:99999", "127.0.0.1:x"])
def test_text_that_is_not_an_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        Client(address, state_dir=tmp_path)
    said = f'an address must be HOST:PORT, such as "127.0.0.1:7720", but got "{address}" (--address)'
    assert str(refused.value) == said


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_serve_refuses_a_port_in_use_in_one_line_before_anything_starts(
    host: str, tmp_path: Path, run: Callable[..., str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        for option in ("--address", "--metrics"):
            free = () if option == "--address" else ("--address", "127.0.0.1:0")
            said = run("serve", "--cpu-only", "--state-dir", "state", *free, option, address, check=2)
            rule = f"an address must be free to be served ({option} {host}:0 takes any free port)"
            assert said == f'error: {rule}, but got "{address}", where another program listens ({option})\n'
    both = run("serve", "--cpu-only", "--state-dir", "state", "--address", address, "--metrics", address, check=2)
    assert "metrics must have an address of their own" in both
    assert not (tmp_path / "state").exists()


LONG = "x" * 300
"""No disk takes such a name."""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("cancel", "\udcff"), 2, "an app's name must be text in UTF-8, but got '\\udcff'"),
        (("explain", "\udcff/1"), 2, "a job's name must be text in UTF-8"),
        (("apps", "--state-dir", LONG, "--address", "127.0.0.1:1"), 4, "an arbiter must be reachable"),
        (("submit", LONG), 2, "an app file must be readable text, but got File name too long"),
        (("submit", "cancr.toml"), 2, "an app file must exist, but got no file of this name (cancr.toml)"),
        (("submit", "."), 2, "an app file must be a file, but got a folder (.)"),
        (("logs", "ana/1", "--run", LONG), 2, "a run's folder must hold apps/ to show logs of, but got none"),
        (("explain", "ana/1", "--run", LONG), 2, "a journal must exist to be read"),
        (("journal", "check", LONG), 2, "a journal must exist to be checked"),
        (("certificates", LONG), 2, "a folder that can be written, but got File name too long"),
        (("certificates", "tls", "--name", "bög"), 2, "a host must be a name or an IP address, in ASCII, but got"),
        (("certificates", "tls", "--name", ""), 2, 'a host must be a name or an IP address, in ASCII, but got ""'),
        (
            ("serve", "--address", "127.0.0.1:0", "--slots", "1000000000"),
            2,
            "slots must be from 1 to 65536, but got 1000000000 (--slots)",
        ),
        (("serve", "--cpu-only", "--make-certificates", "--state-dir", LONG), 2, "but got File name too long"),
    ],
)
def test_meaningless_input_is_refused_in_one_line(
    words: tuple[str, ...], code: int, said: str, run: Callable[..., str], tmp_path: Path
) -> None:
    assert said in run(*words, check=code)
    assert not list(tmp_path.iterdir())


def test_errors_of_a_python_client_name_its_own_parameters(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="an arbiter must serve the state folder") as none:
        Client(state_dir=str(tmp_path))
    assert "Client(state_dir=DIR)" in str(none.value)
    with Client("127.0.0.1:1", state_dir=str(tmp_path)) as client, pytest.raises(UnreachableError) as away:
        client.health()
    assert "in Python Client(state_dir=DIR) or Client(address)" in str(away.value)
    wrong: Any = 5
    for given in (wrong, "", "a\0b"):
        with pytest.raises(InputError, match="state_dir must be a path, but got"):
            Client(state_dir=given)
    with client:
        assert repr(SubmittedApp(client, pb.SubmitResponse(app="ana-2"))) == "SubmittedApp('ana-2')"


def test_only_the_arbiter_refuses_an_invalid_token_in_a_file(tmp_path: Path) -> None:
    for content in (b"\xd0\x00", "töken".encode(), b"two\nlines"):
        (tmp_path / "token").write_bytes(content)
        with Client("127.0.0.1:1", token_file=tmp_path / "token") as client, pytest.raises(UnreachableError) as away:
            client.health()
        assert "an arbiter must be reachable" in str(away.value)


def test_an_endless_app_file_from_a_pipe_is_refused_once_it_is_too_large(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from eunomia.cli import main; main()", "submit", "-", "--address", "127.0.0.1:1"]
    with Path("/dev/zero").open("rb") as endless:
        ended = subprocess.run(command, stdin=endless, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ended.returncode == 2
    assert "an app file must have at most 256 KiB, but got more (stdin)" in ended.stderr


def test_serve_submit_status_and_cancel_work_together(tmp_path: Path, run: Callable[..., str]) -> None:
    work(tmp_path)
    state = ("--state-dir", str(tmp_path / "state"))
    command = [sys.executable, "-c", "from eunomia.cli import main; main()", "serve", *state, "--json"]
    command += ["--cpu-only", "--slots", "2", "--address", "127.0.0.1:0"]
    command += ["--journal-keep", "drop", "--journal-segment-steps", "2"]
    with (tmp_path / "serve.log").open("wb") as log:
        serve = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=tmp_path)
    try:
        assert serve.stdout is not None
        started = json.loads(serve.stdout.readline())
        assert (started["schema"], started["slots"], started["policy"]) == ("eunomia/serve@1", 2, "default")
        with pytest.raises(InputError, match="a journal must have one arbiter, but process"):
            Supervisor(tmp_path / "state").start()
        assert "no apps" in run("apps", *state)
        shown = run("submit", "ana.toml", *state)
        assert shown.startswith(f"ana: submitted to {started['address']} as user ")
        assert "a job of 2 slots" in shown
        with Client(started["address"], token_file=Path(started["token_file"])) as arbiter:
            with pytest.raises(InputErrors, match="must name a script that exists"):
                arbiter.submit(tmp_path / "bad.toml", text='[app]\nname = "b"\n[job]\ncommand = "python no.py"\n')
            eventually(lambda: "up" in _logs(tmp_path))
            (app,) = json.loads(run("apps", "--json", *state))["apps"]
            assert (app["app"], app["state"], app["jobs"]["running"], app["tuner"]) == ("ana", "running", 1, "none")
            assert (app["attempt"], app["part"]) == (1, 1)
            run("submit", "ana.toml", "--quiet", *state)
            eventually(lambda: [job.job for job in arbiter.list(jobs=True).jobs] == ["ana/1", "ana-2/1"])
            said = arbiter.explain("ana-2/1")
            (explained,) = run("explain", "ana-2", "--json", *state).splitlines()
            made = json.loads(explained)
            assert (made["state"], made["reason"]) == ("waiting", said.reason)
            words = run("explain", "ana-2/1", *state)
            assert "WAITING for" in words
            assert f"Why        {said.reason}" in words
            assert "no slot is free: 2 of 2 are held" in words
            assert "up ana/1" in run("logs", "ana", *state)
            assert run("logs", "ana/1", "--stderr", "-n", "1", *state) == "careful\n"
            unknown = 'no app is named "Ana"; there are: ana, ana-2; did you mean "ana"?'
            assert unknown in run("logs", "Ana", *state, check=2)
            no_job = 'no job is named "ana/77"; ana has: ana/1'
            assert no_job in run("logs", "ana/77", *state, check=2)
            assert no_job in run("explain", "ana/77", *state, check=2)
            unstarted = run("logs", "ana-2/1", *state, check=2)
            assert unstarted == "error: ana-2/1 has not started: it waits (eunomia explain ana-2/1 says why)\n"
            assert "cancelled" in run("cancel", "ana-2", *state)
            assert "was over already" in run("cancel", "ana-2", *state)
            run("cancel", "nobody", *state, check=2)
            (tmp_path / "end").touch()
            eventually(lambda: arbiter.app("ana").state == "finished")
            assert "up ana/1" in run("logs", "ana", "-f", *state)
            states = json.loads(run("apps", "--all", "--json", *state))["apps"]
            assert [one["state"] for one in states] == ["finished", "cancelled"]
            waited = run("submit", "ana.toml", "--wait", "--json", *state)
            assert json.loads(waited)["state"] == "finished"
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(PATIENCE_SECONDS) == 0, (tmp_path / "serve.log").read_text()
    finally:
        serve.kill()
        serve.wait()
        if serve.stdout is not None:
            serve.stdout.close()
    with read_journal(tmp_path / "state" / "journal.sqlite") as journal:
        assert journal.first_step > 1  # what the last checkpoint does not need is dropped
    assert run("logs", "ana", "--run", str(tmp_path / "state")).count("up ana/1") >= 1
    assert 'no job is named "ana/77"' in run("logs", "ana/77", "--run", str(tmp_path / "state"), check=2)
    assert 'did you mean "ana/1"?' in run("logs", "anna/1", "--run", str(tmp_path / "state"), check=2)
    assert "an arbiter must serve the state folder (eunomia serve --state-dir" in run("apps", *state, check=4)


def test_logs_of_an_app_name_their_job(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in (10, 2, 9):
        job = tmp_path / "apps" / "ana" / str(number)
        job.mkdir(parents=True)
        (job / "stdout.log").write_text(f"of {number}\n")
    assert cli.run(["logs", "ana", "--run", str(tmp_path)]) == 0
    shown = capfd.readouterr()
    assert shown.out == "of 2\n"
    assert shown.err == "log of ana/2, the first of ana's 3 jobs (eunomia logs ana/N shows another's)\n"


def _logs(folder: Path) -> str:
    path = Output(folder / "state" / "apps" / "ana" / "1")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("address", ["http://127.0.0.1:7720", "https://box7:7720/", "127.0.0.1:7720/metrics"])
def test_an_address_with_a_scheme_or_a_path_is_refused(address: str, tmp_path: Path) -> None:
    rule = 'an address must be HOST:PORT without a scheme or a path, such as "127.0.0.1:7720"'
    with pytest.raises(InputError) as refused:
        Client(address, state_dir=tmp_path)
    assert str(refused.value) == f'{rule}, but got "{address}" (--address)'
    with pytest.raises(InputError) as refused:
        check_address(address)
    assert str(refused.value) == f'{rule}, but got "{address}" (--address)'


def test_a_state_folder_without_an_arbiter_is_not_the_default_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    with pytest.raises(UnreachableError) as away:
        Client(state_dir=empty)
    remedy = f"eunomia serve --state-dir {empty} starts one; in Python Client(state_dir=DIR) names another folder"
    rule = f"an arbiter must serve the state folder ({remedy})"
    assert str(away.value) == f"{rule}, but got no address file ({empty / 'run' / 'address'})"
    assert away.value.exit_code == 4
    monkeypatch.setenv("EUNOMIA_STATE_DIR", str(empty))
    with pytest.raises(UnreachableError) as named:
        Client()
    assert str(named.value) == str(away.value)


DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", os.getpid(), flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.slow  # it mostly waits
def test_a_second_signal_to_serve_kills_workers_that_ignore_sigterm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DEAF)
    file = tmp_path / "ana.toml"
    file.write_text('[app]\nname = "ana"\n[job]\ncommand = "python train.py"\nslots = 1\n')
    command = [sys.executable, "-m", "eunomia", "serve", "--state-dir", "state", "--cpu-only", "--slots", "1"]
    with (tmp_path / "log").open("wb") as log:
        serve = subprocess.Popen([*command, "--address", "127.0.0.1:0"], cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: (tmp_path / "log").read_bytes().count(b"serving at"))
        with Client(state_dir=tmp_path / "state") as arbiter:
            arbiter.submit(file)
        stdout = Output(tmp_path / "state" / "apps" / "ana" / "1")
        pid = eventually(lambda: stdout.exists() and stdout.read_text().partition("up ")[2].strip())
        serve.send_signal(signal.SIGINT)
        serve.send_signal(signal.SIGINT)
        assert serve.wait(PATIENCE_SECONDS) == 130
    finally:
        serve.kill()
    assert not Path(f"/proc/{pid}").exists()


def test_a_job_whose_worker_does_not_exit_is_explained_as_being_stopped(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DEAF)
    settings = ("rounds.lease=3s", "rounds.suspend_grace=20s")
    with supervisor(tmp_path, policy="themis", settings=settings) as made, client(made) as arbiter:
        for name in ("ana", "ben"):
            (tmp_path / f"{name}.toml").write_text(
                f'[app]\nname = "{name}"\n[job]\ncommand = "python train.py"\nslots = 2\n'
            )
            arbiter.submit(tmp_path / f"{name}.toml")
        stopped = "It is being stopped: 2 slots that it ran on have not been given back yet"
        waits = "no slot is free: 2 of 2 are held, 2 of them by jobs that are being stopped"
        eventually(lambda: len(arbiter.list(jobs=True).jobs) == 2)
        for text in (stopped, waits):
            eventually(lambda text=text: any(text in arbiter.explain(job).text for job in ("ana/1", "ben/1")))  # type: ignore[misc]
