"""Two users with logins under a real ``eunomia serve`` of root's: what a script of one reaches of other accounts."""

import json
import os
import pwd
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from appmaster.accounts_lab import Served, accounts, needs_root, open_folder, python_for
from appmaster.job_output import Output
from appmaster.launcher_lab import eventually
from eunomia import cli
from eunomia.errors import InputError
from eunomia_appmaster.app.cleaning import remove_app
from eunomia_appmaster.app.outputs import STDERR, STDOUT, newest_output
from eunomia_appmaster.client import Client
from eunomia_appmaster.node.file_rights import as_account
from eunomia_appmaster.protocol import arbiter_pb2 as pb

pytestmark = needs_root
WAITS = """
import os, signal, sys, time
signal.signal(15, lambda *_: sys.exit(75))
open(os.path.join(os.environ["EUNOMIA_RUN_DIR"], "checkpoints.txt"), "w").write("weights")
print("up", os.getuid(), os.environ["HOME"], flush=True)
while not os.path.exists("end"):
    time.sleep(0.05)
"""
ATTACKS = """
import json, os, signal, sys
done = {}
def tries(name, work):
    try:
        done[name] = repr(work())
    except OSError as error:
        done[name] = type(error).__name__
given = json.load(open("targets.json"))
for name, path in given["read"].items():
    tries("read " + name, lambda: open(path).read())
for name, path in given["write"].items():
    tries("write " + name, lambda: open(path, "w"))
for name, path in given["list"].items():
    tries("list " + name, lambda: os.listdir(path))
given["signal"]["own shepherd"] = os.getppid()
for name, pid in given["signal"].items():
    tries("signal " + name, lambda: os.kill(pid, signal.SIGKILL))
run = os.environ["EUNOMIA_RUN_DIR"]
app = os.path.dirname(run)
output = ["output/" + name for name in os.listdir(os.path.join(run, "output")) if name.endswith("stderr.log")]
for link in (*output, "checkpoints/000001.pt.old", "logs/events"):
    place = os.path.join(run, link)
    if os.path.lexists(place):
        os.unlink(place)
    os.symlink(given["secret"], place)
masters = [name for name in os.listdir(app) if name.endswith(".err.log")]
for link in ("submission.json.old", "master.json.old", *masters, "quota", "stacks"):
    place = os.path.join(app, link)
    if os.path.lexists(place):
        os.unlink(place)
    os.symlink(given["secret"], place)
tries("regain", lambda: os.setuid(0))
done["fds"] = [os.readlink("/proc/self/fd/" + one) for one in os.listdir("/proc/self/fd")
               if os.path.lexists("/proc/self/fd/" + one)]
done["environment"] = " ".join(os.environ)
with open("done.json.new", "w") as file:
    json.dump(done, file)
os.rename("done.json.new", "done.json")
"""


@pytest.fixture(scope="module")
def logins() -> Iterator[list[pwd.struct_passwd]]:
    with accounts() as made:
        yield made


@pytest.fixture(scope="module")
def served(logins: list[pwd.struct_passwd]) -> Iterator[Served]:
    with open_folder() as folder:
        made = Served(folder, python_for(logins[0], folder))
        yield made
        made.close()


class User:
    """A user with a login, its client and its working folder."""

    def __init__(self, served: Served, name: str, account: pwd.struct_passwd) -> None:
        self.account, self.name = account, name
        token = served.client().add_user(name, login=account.pw_name).token
        self.client: Client = served.client(token)
        self.work = Path(account.pw_dir) / "work"
        self.put("train.py", WAITS)

    def put(self, name: str, text: str) -> None:
        self.work.mkdir(exist_ok=True)
        (self.work / name).write_text(text)
        for path in (self.work, self.work / name):
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def submit(self, name: str, script: str = "train.py") -> str:
        text = f'[app]\nname = "{name}"\n[job]\ncommand = "python {script}"\nslots = 1\n'
        return self.client.submit(self.work / f"{name}.toml", text=text).name


@pytest.fixture(scope="module")
def ana(served: Served, logins: list[pwd.struct_passwd]) -> User:
    return User(served, "ana", logins[0])


@pytest.fixture(scope="module")
def bob(served: Served, logins: list[pwd.struct_passwd]) -> User:
    return User(served, "bob", logins[1])


def processes(uid: int) -> dict[int, str]:
    """The processes of an account, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == uid:
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_serve_prints_that_users_with_a_login_are_isolated(served: Served) -> None:
    assert "users with a login (eunomia users add --login) are kept apart" in served.said()


def test_only_the_operator_can_set_a_login(served: Served, ana: User) -> None:
    with pytest.raises(InputError, match="number at least"):
        served.client().add_user("eve", login="root")
    assert "eve" not in [user.user for user in served.client().users()]
    with pytest.raises(Exception, match="operator"):
        ana.client.set_user("ana", pb.UserLimits(), login="root")


def test_the_script_of_a_user_cannot_access_other_users_or_root(
    served: Served, ana: User, bob: User, capfd: pytest.CaptureFixture[str]
) -> None:
    state = served.state
    (ana.work / "end").unlink(missing_ok=True)
    ana.submit("good")
    out = Output(state / "apps" / "good" / "1")
    eventually(lambda: out.exists() and "up" in out.read_text(), "the good user's worker")
    mine = processes(ana.account.pw_uid)
    worker = next(pid for pid, command in mine.items() if "train.py" in command or "worker" in command)
    written = (newest_output(state / "apps" / "good" / "1", STDOUT), state / "apps" / "good" / "master")
    assert all(path.stat().st_uid == ana.account.pw_uid for path in written)
    assert f"up {ana.account.pw_uid} {ana.account.pw_dir}" in out.read_text()
    shepherd = parent_of(worker)
    assert Path(f"/proc/{shepherd}").stat().st_uid == 0, "the shepherd keeps the launcher's account"

    secret = served.folder / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    records = state / "launcher" / "containers"
    [container] = (records / "good").glob("good.*")
    targets = {
        "secret": str(secret),
        "read": {
            "checkpoint": str(state / "apps" / "good" / "1" / "checkpoints.txt"),
            "log": str(written[0]),
            "operator's token": str(state / "run" / "token"),
            "launcher's token": str(state / "run" / "launcher.token"),
            "journal": str(state / "journal.sqlite"),
            "journal's log": str(state / "journal.sqlite-wal"),
            "launcher's secret": str(state / "launcher" / "secret"),
            "other's token": str(next((records / "good" / "appmaster").glob("token.*"))),
            "record": str(container / "container.json"),
            "start": str(container / "start.json"),
            "worker's record": str(container / "worker.json"),
            "root's file": str(secret),
        },
        "write": {
            "own exit": str(records / "bad" / "bad.1.1.0" / "exit.json"),
            "exit": str(container / "exit.json"),
            "journal": str(state / "journal.sqlite"),
        },
        "list": {"apps": str(state / "apps"), "state": str(state), "containers": str(records)},
        "signal": {"worker": worker, "shepherd": shepherd, "arbiter": served.process.pid},
    }
    bob.put("targets.json", json.dumps(targets))
    bob.put("attack.py", ATTACKS)
    bob.submit("bad", "attack.py")
    eventually((bob.work / "done.json").exists, "the attacks")
    done = json.loads((bob.work / "done.json").read_text())
    assert {name: word for name, word in done.items() if name not in ("fds", "environment")} == dict.fromkeys(
        (name for name in done if name not in ("fds", "environment")), "PermissionError"
    )
    assert all(not fd.startswith(str(state)) or "/bad/" in fd for fd in done["fds"]), done["fds"]
    assert not [fd for fd in done["fds"] if fd.startswith(("socket:", "pipe:"))], done["fds"]
    assert "TOKEN" not in done["environment"]

    eventually(lambda: bob.client.app("bad").state in ("finished", "failed"), "the end of the bad app")
    assert bob.client.app("bad").state == "finished"
    assert secret.read_text() == "root's own" and secret.stat().st_uid == 0
    assert Path(f"/proc/{worker}").exists() and ana.client.app("good").state == "running"

    assert newest_output(state / "apps" / "bad" / "1", STDERR).is_symlink()
    capfd.readouterr()
    assert cli.run(["logs", "bad", "--state-dir", str(state)]) == 2
    said = capfd.readouterr()
    assert "root's own" not in said.out + said.err
    assert "a log must be readable" in said.err

    (ana.work / "end").touch()
    eventually(lambda: ana.client.app("good").state == "finished", "the good app")


def test_an_extended_search_still_runs_under_the_login_of_its_user(served: Served, ana: User) -> None:
    ana.put("search.py", "import os\nprint('as', os.getuid(), flush=True)\n")
    text = (
        '[app]\nname = "search"\n[job]\ncommand = "python search.py {args}"\nslots = 1\n'
        '[space]\nlr = { type = "float", low = 0.1, high = 0.5 }\n[tuner]\ntrials = 1\nmetric = "loss"\n'
    )
    name = ana.client.submit(ana.work / "search.toml", text=text).name
    eventually(lambda: ana.client.app(name).state in ("finished", "failed"), "the first trial")
    assert ana.client.more_trials(name, 1).trials == 2
    out = Output(served.state / "apps" / name / "2")
    eventually(lambda: out.exists() and f"as {ana.account.pw_uid}" in out.read_text(), "the second trial")
    eventually(lambda: ana.client.app(name).state in ("finished", "failed"), "its end")


def test_a_worker_can_reach_the_launcher_only_over_its_own_socket(served: Served, ana: User, bob: User) -> None:
    script = (
        "import json, os, socket, sys\n"
        "from pathlib import Path\n"
        "from eunomia_appmaster.node.pulse import PulseWriter\n"
        "from eunomia_appmaster.node.stall_watch import Phase\n"
        "from eunomia_appmaster.training.orders import OrderClient\n"
        "own = Path(os.environ['EUNOMIA_CONTAINER_DIR'])\n"
        "PulseWriter(own).beat(Phase.STEPS)\n"
        "client = OrderClient(own, 0)\n"
        "client.say('saved', {'step': 7})\n"
        "client.flush()\n"
        "print(client._socket is not None, own.parent / 'orders.sock', flush=True)\n"
    )
    ana.put("talks.py", script + WAITS)
    (ana.work / "end").unlink(missing_ok=True)
    ana.submit("talks", "talks.py")
    out = Output(served.state / "apps" / "talks" / "1")
    eventually(lambda: out.exists() and "up" in out.read_text(), "its words")
    connected, address = out.read_text().split()[:2]
    assert connected == "True"
    record = Path(address).with_name("container.json")
    eventually(lambda: json.loads(record.read_text())["status"].get("saved_step") == "7", "what it said")
    with as_account(bob.account.pw_uid, bob.account.pw_gid), pytest.raises(PermissionError):
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(address)
    (ana.work / "end").touch()
    eventually(lambda: ana.client.app("talks").state == "finished", "its end")


@pytest.mark.slow
def test_apps_beyond_the_disk_limit_of_their_user_are_suspended_until_they_use_less(
    served: Served, ana: User, bob: User
) -> None:
    served.client().set_user("bob", pb.UserLimits(disk_bytes=4.0 * (1 << 20)))
    script = "import os\nopen(os.environ['EUNOMIA_RUN_DIR'] + '/big', 'wb').write(b'x' * (8 << 20))\n"
    bob.put("big.py", script + WAITS)
    (bob.work / "end").unlink(missing_ok=True)
    bob.submit("big", "big.py")
    eventually(lambda: bob.client.app("big").state == "suspended", "suspended")
    assert "MiB of disk, more than its limit of 4 MiB" in bob.client.app("big").why
    bob.put("big.py", WAITS)
    (served.state / "apps" / "big" / "1" / "big").unlink()
    (bob.work / "end").touch()
    eventually(lambda: bob.client.app("big").state == "finished", "it goes on")


def test_each_user_has_its_own_zygote_and_apps_survive_a_killed_launcher(served: Served, ana: User, bob: User) -> None:
    for user in (ana, bob):
        (user.work / "end").unlink(missing_ok=True)
        user.put("train.py", WAITS)
        user.submit(f"long-{user.name}")
    for user in (ana, bob):
        out = Output(served.state / "apps" / f"long-{user.name}" / "1")
        eventually(lambda out=out: out.exists() and "up" in out.read_text(), f"the worker of {user.name}")
    logs = {path.name for path in (served.state / "launcher").glob("zygote-*.log")}
    assert logs == {f"zygote-{name}.log" for name in ("app-masters", ana.account.pw_name, bob.account.pw_name)}
    launcher = json.loads((served.state / "launcher" / "launcher.json").read_text())["pid"]
    before = set(processes(ana.account.pw_uid))
    os.kill(launcher, signal.SIGKILL)
    eventually(
        lambda: json.loads((served.state / "launcher" / "launcher.json").read_text())["pid"] != launcher, "the next one"
    )
    assert before <= set(processes(ana.account.pw_uid)), "its processes were adopted"
    for user in (ana, bob):
        (user.work / "end").touch()
        eventually(lambda user=user: user.client.app(f"long-{user.name}").state == "finished", "the end")
        assert user.client.app(f"long-{user.name}").failed == 0
    eventually(lambda: not processes(ana.account.pw_uid), "no process is left")
    ended = served.state / "launcher" / "app_masters" / "long-ana.json"
    eventually(lambda: "COMPLETED" in ended.read_text(), "the record of its end")
    remove_app(served.state / "apps", "long-ana")
    assert not (served.state / "apps" / "long-ana").exists()
    assert not (served.state / "launcher" / "containers" / "long-ana").exists()
