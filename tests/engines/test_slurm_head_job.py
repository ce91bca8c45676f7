"""The head as a batch job: numbers, relay, certificates, script and options; no Slurm is needed."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eunomia.errors import InputError
from eunomia.journal.files import SHARED, locked
from eunomia.journal.journal import Journal, read_journal
from eunomia_appmaster.node.file_systems import check_local
from eunomia_engines.commands.slurm import UpFlags, slurm
from eunomia_engines.head.files import HEAD, head_address
from eunomia_engines.slurm.head_certificates import certificates_here
from eunomia_engines.slurm.head_job import head_script
from eunomia_engines.slurm.heads import highest, take_number
from eunomia_engines.slurm.job_seat import JobSeat, is_free
from eunomia_engines.slurm.relay import Relay, port_file, read_head, relay_address
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.script import job_script

REQUEST = Request(least=1, most=2, seconds=3600.0, gres="gpu:4", python="/usr/bin/python3", node_dir=Path("/var/tmp"))


def write_head(state: Path, port: int, number: int) -> None:
    """The record of a head that serves."""
    (state / FOLDER).mkdir(parents=True, exist_ok=True)
    record = {"address": f"127.0.0.1:{port}", "number": number, "job": str(number)}
    (state / FOLDER / HEAD).write_text(json.dumps(record))


# --- numbers ------------------------------------------------------------------------------------------------------


TAKE_TWENTY = """
import sys, pathlib
from MODULE import take_number
for _ in range(20):
    print(take_number(pathlib.Path(sys.argv[1])))
""".replace("MODULE", take_number.__module__)


def test_no_two_heads_get_one_number(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE_TWENTY, str(tmp_path)]
    heads = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(number) for head in heads for number in head.communicate(timeout=60)[0].split()]
    assert sorted(taken) == list(range(1, 61))
    assert highest(tmp_path) == 60


def test_there_is_no_number_before_the_first_head(tmp_path: Path) -> None:
    assert highest(tmp_path) == 0
    (tmp_path / FOLDER / "heads" / "notes").mkdir(parents=True)
    assert highest(tmp_path) == 0


def test_a_head_waits_for_the_journal_and_ends_once_a_later_one_has_come(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    REQUEST.save(tmp_path)
    seat, stopped = JobSeat(tmp_path, "11"), threading.Event()
    lock = locked(tmp_path / "journal.sqlite")
    waited: list[bool] = []
    waiting = threading.Thread(target=lambda: waited.append(seat.wait(stopped)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    later = JobSeat(tmp_path, "12")
    waiting.join(10.0)
    assert waited == [False], "a later head has come meanwhile"
    assert seat.is_taken()
    lock.close()
    assert later.wait(stopped)


def test_a_head_with_job_runs_in_a_job_alone(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    REQUEST.save(tmp_path)
    with pytest.raises(InputError, match="must run in a batch job"):
        JobSeat(tmp_path, "")
    assert highest(tmp_path) == 0


# --- the relay ----------------------------------------------------------------------------------------------------


class Echo:
    """A server that answers each line with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(f"{self.name} {line.decode()}".encode())
        writer.close()


async def said_by(port: int) -> str:
    """What the head behind a relay answers; empty: it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"who\n")
        answer = await asyncio.wait_for(reader.readline(), 5.0)
    except ConnectionResetError:
        answer = b""
    writer.close()
    return answer.decode().strip()


def test_a_relay_follows_the_head_with_the_highest_number_that_it_has_seen(tmp_path: Path) -> None:
    async def scene() -> None:
        relay = Relay(tmp_path)
        server = await relay.serve()
        port = int(server.sockets[0].getsockname()[1])
        assert await said_by(port) == "", "there is no head"
        async with Echo("first") as first, Echo("second") as second:
            write_head(tmp_path, first, 1)
            relay.look()
            assert await said_by(port) == "first who"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"who\n")
            assert await reader.readline() == b"first who\n"
            write_head(tmp_path, second, 2)
            relay.look()
            assert await asyncio.wait_for(reader.read(), 5.0) == b"", "connections to the head before end"
            assert await said_by(port) == "second who"
            write_head(tmp_path, first, 1)  # a head that only looked lost writes its record again
            relay.look()
            assert await said_by(port) == "second who"
            (tmp_path / FOLDER / HEAD).write_text("{")
            relay.look()
            assert await said_by(port) == "second who"
        server.close()

    asyncio.run(scene())


def test_a_pilot_waits_for_its_relay_and_reads_the_head_for_its_route(tmp_path: Path) -> None:
    port_file(tmp_path, "5").write_text("4711")
    assert relay_address(tmp_path, "5") == "localhost:4711"
    with pytest.raises(Exception, match="relay must listen"):
        relay_address(tmp_path, "6", seconds=0.2)
    with pytest.raises(InputError, match="must have written its address"):
        head_address(tmp_path / FOLDER)
    write_head(tmp_path, 99, 3)
    assert head_address(tmp_path / FOLDER) == "127.0.0.1:99"
    head = read_head(tmp_path)
    assert head is not None
    assert head.number == 3


# --- certificates and the journal ---------------------------------------------------------------------------------


def test_each_head_has_a_certificate_of_the_same_ca(tmp_path: Path) -> None:
    first = certificates_here(tmp_path)
    ca, cert = first.ca.read_bytes(), first.cert.read_bytes()
    second = certificates_here(tmp_path)
    assert second.ca.read_bytes() == ca
    assert second.cert.read_bytes() != cert
    second.check("localhost")
    second.check(socket.gethostname())
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0
    ssl.create_default_context(cafile=str(second.ca))


def test_a_marked_journal_has_a_rollback_journal_and_goes_on_as_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal.open(path) as journal:
        journal.set_meta(secret="ab" * 32)
        assert journal._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    (tmp_path / SHARED).touch()
    with Journal.open(path) as journal, read_journal(path) as reader:
        assert journal._database.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
        assert reader.meta["secret"] == "ab" * 32
        journal.set_meta(seed=7)
        assert reader.meta["seed"] == 7
    assert {each.name for each in tmp_path.iterdir()} <= {
        "journal.sqlite",
        "journal.sqlite-journal",
        "journal.sqlite.lock",
        SHARED,
    }


def test_a_marked_folder_may_be_on_a_network_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 1 0:1 / {tmp_path} rw - nfs4 server:/home rw\n")
    with pytest.raises(InputError, match="must be on a local disk"):
        check_local(tmp_path, mounts=mounts)
    (tmp_path / SHARED).touch()
    check_local(tmp_path, mounts=mounts)


# --- scripts and options ------------------------------------------------------------------------------------------


def test_the_scripts_of_a_head_in_a_job(tmp_path: Path) -> None:
    request = REQUEST.model_copy(update={"head": "job", "head_partition": "cpu", "head_seconds": 86400.0})
    head, node = head_script(request, tmp_path), job_script(request, tmp_path)
    assert "#SBATCH --dependency=singleton" in head
    assert "#SBATCH --partition=cpu" in head
    assert "#SBATCH --time=1-00:00:00" in head
    assert "gres" not in head
    assert "slurm.relay" in node
    assert "slurm.relay" not in job_script(REQUEST, tmp_path)


@pytest.fixture
def no_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("EUNOMIA_STATE_DIR", raising=False)
    yield


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"head": "jobb"}, '--head must be here or job, but got "jobb"; did you mean "job"?'),
        ({"head_partition": "cpu"}, "--head-partition must come with --head job"),
        ({"head_time": "1d"}, "--head-time must come with --head job"),
        ({"head": "job"}, "--head job must come with --state-dir"),
        ({"head": "job", "state_dir": Path("x"), "head_time": "90"}, "--head-time must have a unit"),
        ({"head": "job", "state_dir": Path("x"), "head_time": "90s"}, "--head-time must be at least 120 s"),
    ],
)
def test_options_of_the_head_are_checked(no_default: None, more: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        UpFlags.model_validate({"nodes": "1", "time": "1h", "gres": "gpu:4", **more}).request()
    assert said in str(caught.value)


def test_without_slurm_a_head_in_a_job_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["up", "--nodes", "1", "--gres", "gpu:4", "--time", "1h", "--head", "job", "--state-dir", f"{tmp_path}/s"]
    made = CliRunner().invoke(slurm, words)
    assert made.exit_code != 0
    assert not (tmp_path / "s").exists()


def test_a_port_is_free_or_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free("127.0.0.1", server.getsockname()[1])
    assert not is_free("127.0.0.1", 70000)
