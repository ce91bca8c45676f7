"""A service as root with two users that have accounts of their own on this machine, made for the tests and removed."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eunomia_appmaster.client import Client
from eunomia_appmaster.node.file_rights import as_account
from eunomia_appmaster.node.kept_apart import keeps_apart

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
needs_root = pytest.mark.skipif(
    not keeps_apart() or shutil.which("useradd") is None, reason="needs root, with the right to add accounts"
)


@contextmanager
def accounts(count: int = 2) -> Iterator[list[pwd.struct_passwd]]:
    """Accounts of persons with a home each; they, and what runs under them, are gone afterwards."""
    homes = Path(tempfile.mkdtemp(prefix="eunomia-homes-", dir="/tmp"))
    homes.chmod(0o711)
    names = [f"eutest{os.getpid() % 100000}{letter}" for letter in "abcdef"[:count]]
    try:
        for name in names:
            command = ["useradd", "--create-home", "--home-dir", homes / name, "--shell", "/bin/sh", name]
            subprocess.run(command, check=True, capture_output=True)
            (homes / name).chmod(0o700)
        yield [pwd.getpwnam(name) for name in names]
    finally:
        for name in names:
            with suppress(KeyError):
                _end_all_of(pwd.getpwnam(name).pw_uid)
            subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        shutil.rmtree(homes, ignore_errors=True)


def _end_all_of(uid: int) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == uid:
                os.kill(int(folder.name), signal.SIGKILL)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every account passes through; pytest's own are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="eunomia-open-", dir="/tmp"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def python_for(account: pwd.struct_passwd, folder: Path) -> str:
    """An interpreter with Eunomia's packages that an account may run; the tests' own where it is one."""
    if _may_run(account, Path(sys.executable).resolve()):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    other = shutil.which(name, path="/usr/local/bin:/usr/bin")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    if other is None or not all(_may_run(account, Path(path)) for path in (other, *packages)):
        pytest.skip(f"needs an interpreter that other accounts may run, unlike {sys.executable}")
    subprocess.run([other, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    own = folder / "venv" / "lib" / name / "site-packages"
    (own / "tests.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in packages))
    return str(folder / "venv" / "bin" / "python")


def _may_run(account: pwd.struct_passwd, path: Path) -> bool:
    with as_account(account.pw_uid, account.pw_gid):
        return os.access(path, os.R_OK | os.X_OK, effective_ids=True)


class Served:
    """``eunomia serve`` as a process of root's, with its state in ``folder/state``."""

    def __init__(self, folder: Path, python: str, *options: str) -> None:
        self.folder, self.state = folder, folder / "state"
        env = {name: value for name, value in os.environ.items() if not name.startswith("EUNOMIA_")}
        env["PYTHONPATH"] = os.pathsep.join(str(ROOT / floor) for floor in FLOORS)
        command = [python, "-m", "eunomia", "serve", "--state-dir", str(self.state), "--slots", "2", "--cpu-only"]
        self.log = folder / "serve.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--address", "127.0.0.1:0", *options], env=env, stdout=log, stderr=log, cwd=folder
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 120.0
        while "serving at" not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        """What ``serve`` has printed."""
        return self.log.read_text()

    def client(self, token: str | None = None) -> Client:
        """A client with a user's token; None: with the operator's."""
        run = self.state / "run"
        file = run / "token"
        if token is not None:
            file = self.folder / f"token-{abs(hash(token))}"
            file.write_text(token)
        return Client((run / "address").read_text().split()[0], token_file=file)

    def close(self) -> None:
        """End it with all that it runs."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
