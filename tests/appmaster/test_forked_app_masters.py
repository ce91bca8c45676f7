"""App masters are forked from a process that has imported Eunomia, and behave as if each had been started by itself."""

import functools
import os
import signal
from pathlib import Path

from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import SCRIPT, activity, client, eventually, live, ready, supervisor

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors
APP = '[app]\nname = "{name}"\n[job]\ncommand = "python wait.py"\nslots = 1\n'


def submit(folder: Path, made: Supervisor, name: str) -> None:
    (folder / "wait.py").write_text(SCRIPT)
    (folder / f"{name}.toml").write_text(APP.format(name=name))
    with client(made) as arbiter:
        arbiter.submit(folder / f"{name}.toml")
        eventually(lambda: arbiter.app(name).state == "running", f"{name} has a slot")


def master_of(made: Supervisor, name: str) -> int:
    """The process id of an app's app master."""
    return eventually(lambda: next((pid for one, pid in live(made, masters=True) if name in one), 0), name)


def zygote_of(pid: int) -> int:
    """The parent of the shepherd of a process."""
    shepherd = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return int(Path(f"/proc/{shepherd}/stat").read_text().rpartition(")")[2].split()[1])


def test_app_masters_of_one_node_share_their_imports_and_outlive_the_process_that_has_them(tmp_path: Path) -> None:
    with supervisor(tmp_path, slots=3) as made, client(made) as arbiter:
        eventually(functools.partial(ready, arbiter), "its machine")
        submit(tmp_path, made, "ada")
        submit(tmp_path, made, "ben")
        ada, ben = master_of(made, "ada"), master_of(made, "ben")
        zygote = zygote_of(ada)
        assert zygote == zygote_of(ben)
        assert "zygote of app masters" in Path(f"/proc/{zygote}/cmdline").read_text()
        assert "app master of ada" in Path(f"/proc/{ada}/cmdline").read_text()
        assert b"\0EUNOMIA_CONTAINER_ID=appmaster:ada:1@" in b"\0" + Path(f"/proc/{ada}/environ").read_bytes()
        assert os.getsid(ada) == ada

        os.kill(zygote, signal.SIGKILL)
        submit(tmp_path, made, "cid")
        assert zygote_of(master_of(made, "cid")) != zygote
        (attempt,) = [one for one, pid in live(made, masters=True) if pid == ada]
        os.kill(ada, signal.SIGKILL)
        eventually(lambda: another_of(made, "ada", attempt), "its next attempt")
        (tmp_path / "end").touch()
        for name in ("ada", "ben", "cid"):
            eventually(functools.partial(finished, arbiter, name), name)
            assert activity(made, name)[-1]["event"] == "finished"


def another_of(made: Supervisor, name: str, before: str) -> bool:
    return any(name in one and one != before for one, _ in live(made, masters=True))


def finished(arbiter: Client, name: str) -> bool:
    return arbiter.app(name).state == "finished"
