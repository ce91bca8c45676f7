"""TLS beyond loopback: certificates, and an arbiter, launcher, app master and clients as processes under it."""

import json
import os
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from concurrent import futures
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.appmaster.serving_lab import eventually, supervisor

from eunomia import cli
from eunomia.errors import InputError, UnreachableError
from eunomia_appmaster import Client
from eunomia_appmaster.commands import serve
from eunomia_appmaster.launcher.interfaces import own_addresses
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_appmaster.protocol.connecting import Address
from eunomia_appmaster.service.certificates import Certificates, certificates_of, make, names_of, own_names
from eunomia_appmaster.service.server import check_address

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the packages as this process does, and no other arbiter."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / floor) for floor in FLOORS))
    for name in ("EUNOMIA_ADDRESS", "EUNOMIA_TOKEN_FILE", "EUNOMIA_STATE_DIR", "EUNOMIA_POLICY", "EUNOMIA_CA_FILE"):
        monkeypatch.delenv(name, raising=False)


# --- certificates ---------------------------------------------------------------------------------------------------


def test_certificates_for_testing_are_private_and_valid_for_this_machine(tmp_path: Path) -> None:
    made = make(tmp_path / "tls", ("box7.example", "10.1.2.3"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()}
    assert modes == {"ca.pem": 0o600, "cert.pem": 0o600, "key.pem": 0o600}
    for host in (*own_names(), "box7.example", "10.1.2.3", "0.0.0.0", "[::1]"):
        made.check(host)
    assert check_address("10.1.2.3:7720", made) == ("10.1.2.3", 7720)
    with pytest.raises(InputError, match=r"a certificate must name box8, but got localhost, .*10\.1\.2\.3"):
        check_address("box8:7720", made)
    with pytest.raises(InputError, match=r"a folder without any, but got ca\.pem"):
        make(tmp_path / "tls")


def test_serve_refuses_invalid_certificates_before_it_starts(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    with pytest.raises(InputError, match="must match its key"):
        Certificates(cert=one.cert, key=other.key, ca=one.ca).check("localhost")
    with pytest.raises(InputError, match="must be signed by the CA"):
        Certificates(cert=one.cert, key=one.key, ca=other.ca).check("localhost")
    with pytest.raises(InputError, match="must be readable, but got No such file"):
        Certificates(cert=tmp_path / "no", key=one.key, ca=one.ca).check("localhost")
    with pytest.raises(InputError, match="a private one in PEM"):
        Certificates(cert=one.cert, key=one.cert, ca=one.ca).check("localhost")
    with pytest.raises(InputError, match="certificates must be PEM"):
        Certificates(cert=one.key, key=one.key, ca=one.ca).check("localhost")
    old = make(tmp_path / "old", days=0)
    with pytest.raises(InputError, match=f"valid now, but got one from .* to {datetime.now(UTC):%Y-}"):
        old.check("localhost")
    with pytest.raises(InputError, match="must be given together, but got no --tls-key"):
        Certificates.of(one.cert, None, None)
    assert Certificates.of(None, None, None) is None


def test_the_command_creates_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(("certificates", str(tmp_path / "tls"), "--name", "box7", "--days", "2", "--json")) == 0
    facts = json.loads(capsys.readouterr().out)
    from cryptography import x509

    cert = x509.load_pem_x509_certificate(Path(facts["cert"]).read_bytes())
    assert set(names_of(cert)) == set(facts["names"]) == {*own_names(), "box7"}
    assert timedelta(days=1) < cert.not_valid_after_utc - datetime.now(UTC) < timedelta(days=3)


def test_serve_beyond_loopback_needs_certificates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    assert cli.run(("serve", "--address", "0.0.0.0:0", *state)) == 2
    assert "needs TLS (--tls-cert and --tls-key, or --make-certificates)" in capfd.readouterr().err
    made = make(tmp_path / "tls")
    files = ("--tls-cert", str(made.cert), "--tls-key", str(made.key))
    assert cli.run(("serve", "--make-certificates", *files, *state)) == 2
    assert "certificates must be given or made, but got both" in capfd.readouterr().err
    assert not (tmp_path / "state").exists()


# --- address files --------------------------------------------------------------------------------------------------


def test_an_address_file_names_the_ca_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "address"
    assert Address.read(file) is None
    file.write_text(Address(target="127.0.0.1:1").text())
    assert Address.read(file) == Address(target="127.0.0.1:1")
    file.write_text(Address(target="box7:7720", ca_file=Path("ca.pem")).text())
    assert Address.read(file) == Address(target="box7:7720", ca_file=tmp_path / "ca.pem")
    assert Address.given("box7:7720", beside=file).ca_file == tmp_path / "ca.pem"
    monkeypatch.setenv("EUNOMIA_CA_FILE", "/etc/other.pem")
    assert Address.given("box7:7720", beside=file).ca_file == Path("/etc/other.pem")


def test_a_client_sends_no_token_beyond_loopback_without_tls(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be called under TLS.*but got no CA \(box7:7720\)"):
        Client("box7:7720", state_dir=tmp_path)
    with pytest.raises(InputError, match="CA file of the arbiter must be readable"):
        Address(target="box7:7720", ca_file=tmp_path / "none.pem").channel()


# --- processes ------------------------------------------------------------------------------------------------------


def _finished(client: Client, name: str) -> Any:
    deadline = time.monotonic() + 120.0
    while (app := client.app(name)).state not in ("finished", "failed"):
        assert time.monotonic() < deadline, app
        time.sleep(0.1)
    return app


def _copy(made: Supervisor, folder: Path, change: Callable[[Path], object] = lambda _: None) -> Path:
    """Copies the files that a client on another machine needs: address, CA and token."""
    folder.mkdir()
    for name in ("address", "ca.pem", "token"):
        shutil.copy(made.run_dir / name, folder / name)
    change(folder)
    return folder / "token"


def test_an_app_runs_under_tls_and_wrong_certificates_give_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')\n")
    file = tmp_path / "ana.toml"
    file.write_text('[app]\nname = "ana"\n[job]\ncommand = "python train.py"\nslots = 1\n')
    other = make(tmp_path / "other")
    with supervisor(tmp_path, slots=1, address="0.0.0.0:0", certificates=make(tmp_path / "tls")) as made:
        assert made.address.startswith("localhost:")
        modes = {path.name: path.stat().st_mode & 0o777 for path in made.run_dir.iterdir()}
        assert modes == dict.fromkeys(("address", "ca.pem", "token", "launcher.token"), 0o600)
        with Client(token_file=_copy(made, tmp_path / "copied")) as client:
            client.submit(file)
            assert _finished(client, "ana").state == "finished", (tmp_path / "log" / "arbiter.log").read_text()

        token = _copy(made, tmp_path / "wrong-ca", lambda folder: shutil.copy(other.ca, folder / "ca.pem"))
        with Client(token_file=token) as client, pytest.raises(UnreachableError) as wrong:
            client.list()
        rule = f"the arbiter's certificate must be signed by the CA in {tmp_path}/wrong-ca/ca.pem"
        assert str(wrong.value) == f"{rule}, but got one that is not, or has expired ({made.address})"

        token = _copy(made, tmp_path / "wrong-token", lambda folder: (folder / "token").write_text("operator::00"))
        with Client(token_file=token) as client, pytest.raises(InputError, match="a token must be one that"):
            client.list()
        token = _copy(made, tmp_path / "no-token", lambda folder: (folder / "token").unlink())
        with Client(token_file=token) as client, pytest.raises(InputError, match="but got no such file"):
            client.list()

        with grpc.insecure_channel(made.address) as plain, pytest.raises(grpc.RpcError) as refused:
            plain.unary_unary("/eunomia.arbiter.ClientProtocol/Health")(b"", timeout=5.0)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        with socket.create_connection(("127.0.0.1", int(made.address.rpartition(":")[2]))) as line:
            line.sendall(os.urandom(4096))  # noise on a connection disturbs no other client
        with Client(token_file=tmp_path / "copied" / "token") as client:
            assert client.health().ready
    assert made.arbiter is not None
    assert made.arbiter.restarts == 0


def test_the_error_for_a_certificate_without_the_address_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = make(tmp_path / "tls", ("box7.example",))
    server = grpc.server(futures.ThreadPoolExecutor(1))
    pair = [(files.key.read_bytes(), files.cert.read_bytes())]
    port = server.add_secure_port("127.0.0.2:0", grpc.ssl_server_credentials(pair))
    server.start()
    monkeypatch.setenv("EUNOMIA_CA_FILE", str(files.ca))
    (tmp_path / "token").write_text("operator::00")
    try:
        address = f"127.0.0.2:{port}"
        with Client(address, token_file=tmp_path / "token") as client, pytest.raises(UnreachableError) as refused:
            client.health()
    finally:
        server.stop(None)
    assert "must name 127.0.0.2 (call it by a name that it has" in str(refused.value)
    assert "eunomia certificates DIR --name 127.0.0.2), but got one for localhost, " in str(refused.value)
    assert "box7.example" in str(refused.value)


def test_certificates_for_all_addresses_name_every_address_of_the_machine(tmp_path: Path) -> None:
    made = serve._made(tmp_path / "tls", "0.0.0.0:7720", given=False)
    names = names_of(certificates_of(made.cert)[0])
    assert set(names) == {*own_names(), *own_addresses()}
    line = serve._from_elsewhere("0.0.0.0:7720", "localhost:7720", made)
    assert line.startswith(f"another machine joins with eunomia launcher --arbiter {socket.gethostname()}:7720 --join ")
    other = make(tmp_path / "other", ("10.1.2.3",))
    assert "--arbiter 10.1.2.3:7720 " in serve._from_elsewhere("10.1.2.3:7720", "10.1.2.3:7720", other)
    assert serve._from_elsewhere("127.0.0.1:7720", "127.0.0.1:7720", None) == ""


def test_a_client_with_a_ca_reports_an_arbiter_without_tls_as_unreachable(tmp_path: Path) -> None:
    made = make(tmp_path / "tls")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20.0)
        port = listener.getsockname()[1]
        (tmp_path / "address").write_text(f"127.0.0.1:{port}\n{made.ca}\n")
        (tmp_path / "token").write_text("operator::00")
        unreachable = pytest.raises(UnreachableError, match="an arbiter must be reachable")
        with Client(token_file=tmp_path / "token", timeout_seconds=1.0) as client, unreachable:
            client.health()


def _shown(address: str) -> bytes:
    """Returns the certificate that an arbiter shows on a new connection."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=30.0).encode()


def test_sighup_loads_a_new_certificate_and_refuses_an_invalid_one(tmp_path: Path) -> None:
    files = make(tmp_path / "tls")
    log_dir = tmp_path / "log"
    metered = ("--not-durable", "--metrics", "127.0.0.1:0")

    def said(event: str) -> int:
        return (log_dir / "arbiter.log").read_text().count(event)

    with supervisor(tmp_path, slots=1, address="0.0.0.0:0", certificates=files, arbiter_options=metered) as made:
        assert made.arbiter is not None
        metrics = (made.run_dir / "metrics").read_text().strip()
        before, pid = _shown(made.address), made.arbiter.pid
        with Client(token_file=made.token_file) as client:
            assert client.health().ready
            shutil.copy(make(tmp_path / "other").key, files.key)  # of another certificate
            made.reload()
            eventually(lambda: said("certificates.refused") == 1)
            assert "must match its key" in (log_dir / "arbiter.log").read_text()
            assert _shown(made.address) == _shown(metrics) == before
            for name in ("cert", "key", "ca"):
                shutil.copy(getattr(Certificates.inside(tmp_path / "other"), name), getattr(files, name))
            made.reload()
            eventually(lambda: said("certificates.reloaded") == 1)
            new = files.cert.read_bytes()
            assert new != before
            assert _shown(made.address).strip() == _shown(metrics).strip() == new.strip()
            assert client.health().ready  # over the connection that was there
        with Client(token_file=made.token_file) as client:
            assert client.health().ready  # by the new CA beside the address
        assert (made.arbiter.pid, made.arbiter.restarts) == (pid, 0)


def test_serve_reloads_at_sighup_and_stops_at_sigterm() -> None:
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    class Town:
        reloads = 0

        def check(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM if self.reloads else signal.SIGHUP)

        def reload(self) -> None:
            self.reloads += 1

    town = Town()
    try:
        stop = serve._Stop(reloads=True)
        stop.wait(town)
        assert (town.reloads >= 1, stop.exit_code) == (True, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
