"""Accounts of users: which may be a login, the change to one, and files touched with their owner's rights."""

import asyncio
import json
import multiprocessing
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appmaster.accounts_lab import accounts, needs_root, open_folder
from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.cleaning import TooDeepError, bytes_of, remove_all_but_best, remove_app
from eunomia_appmaster.app.trials_file import trials_text
from eunomia_appmaster.explaining.activity import ActivityLog
from eunomia_appmaster.journal_check.cluster import Cluster
from eunomia_appmaster.journal_check.containers import read_containers
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.links import link_again
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.output_limit import _bound_as_owner, shorten
from eunomia_appmaster.launcher.own_ends import last_words
from eunomia_appmaster.launcher.owners import check_owner
from eunomia_appmaster.launcher.quotas import Quotas
from eunomia_appmaster.launcher.shepherd import change_account
from eunomia_appmaster.launcher.stacks import write_stacks
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.node import kept_apart, local_machine
from eunomia_appmaster.node.accounts import Account, least_uid
from eunomia_appmaster.node.file_rights import RightsError, as_account, as_owner, reading_as_owner
from eunomia_appmaster.node.kept_files import read_kept
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.protocol.tokens import WrongTokenError, check_container_token, container_token
from eunomia_testbed.live_runs.logged import read_trials, search_of

SECRET = "the operator's"


@pytest.fixture(scope="module")
def logins() -> Iterator[list[pwd.struct_passwd]]:
    with accounts() as made:
        yield made


@pytest.fixture
def open_place() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture
def app(open_place: Path, logins: list[pwd.struct_passwd]) -> Path:
    """A user's app folder in a folder of root's, beside a file of root's."""
    (open_place / "apps" / "net").mkdir(parents=True)
    os.chown(open_place / "apps" / "net", logins[0].pw_uid, logins[0].pw_gid)
    (open_place / "secret").write_text(SECRET)
    (open_place / "secret").chmod(0o600)
    return open_place / "apps" / "net"


# -- which accounts


@pytest.mark.parametrize("login", ["root", "daemon", "nobody", "no-such-account", "", "a\0b"])
def test_a_login_must_be_the_account_of_a_person(login: str) -> None:
    with pytest.raises(InputError, match="a login must be an account"):
        Account.of(login)


def test_the_minimum_uid_of_a_login_is_never_0() -> None:
    assert least_uid() >= 1


@needs_root
def test_an_account_in_the_group_of_root_is_refused_as_a_login(
    logins: list[pwd.struct_passwd], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Account.of(logins[0].pw_name).uid == logins[0].pw_uid
    monkeypatch.setattr(os, "getgrouplist", lambda login, gid: [gid, 0])
    with pytest.raises(InputError, match="must not be in the group of root"):
        Account.of(logins[0].pw_name)


def test_a_login_is_refused_if_the_service_may_not_change_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_apart, "may_change_user", lambda: False)
    with pytest.raises(InputError, match="a login needs a service that may change user"):
        kept_apart.check_login("ana", tmp_path)


@needs_root
def test_a_login_must_be_able_to_reach_the_state_folder(logins: list[pwd.struct_passwd], open_place: Path) -> None:
    (open_place / "closed" / "state").mkdir(parents=True)
    (open_place / "closed").chmod(0o700)
    with pytest.raises(InputError, match=r"a login must .*: folders above it must let it pass"):
        kept_apart.check_login(logins[0].pw_name, open_place / "closed" / "state")


@needs_root
def test_other_accounts_can_pass_through_a_state_folder_but_read_nothing_there(
    logins: list[pwd.struct_passwd], open_place: Path
) -> None:
    for name in ("journal.sqlite", "run/token", "launcher/secret", "launcher/launcher.json"):
        (open_place / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (open_place / "state" / name).write_text(SECRET)
    kept_apart.let_pass(open_place / "state")
    with as_account(logins[0].pw_uid, logins[0].pw_gid):
        assert (open_place / "state" / "apps").stat()
        for name in ("journal.sqlite", "run/token"):
            with pytest.raises(PermissionError):
                (open_place / "state" / name).read_text()
        for folder in ("", "apps", "launcher"):
            with pytest.raises(PermissionError):
                list((open_place / "state" / folder).iterdir())


# -- the change of a process


def _in_a_process(work: Callable[[], object]) -> str:
    """Run in a forked process; returns what it raised, or an empty text."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        said = ""
        try:
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        sender.send(said)
        os._exit(0)
    os.waitpid(pid, 0)
    return str(receiver.recv())


@needs_root
def test_a_process_cannot_go_back_after_it_changed_to_another_account(logins: list[pwd.struct_passwd]) -> None:
    account = Account.of(logins[0].pw_name)

    def work() -> None:
        change_account(account.change())
        status = Path("/proc/self/status").read_text()
        for line in ("NoNewPrivs:\t1", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"):
            if line not in status:
                raise ValueError(status)
        if os.getresuid() != (account.uid,) * 3 or os.getresgid() != (account.gid,) * 3:
            raise ValueError("other ids")
        if tuple(sorted(os.getgroups())) != account.groups:
            raise ValueError(f"other groups: {os.getgroups()}")
        for change in (os.setuid, os.seteuid, os.setgid):
            try:
                change(0)
            except PermissionError:
                continue
            raise ValueError(f"{change} gave root back")

    assert _in_a_process(work) == ""


@needs_root
@pytest.mark.parametrize("step", ["setgroups", "setresgid", "setresuid"])
def test_a_change_of_account_that_is_refused_at_any_step_is_an_error(
    logins: list[pwd.struct_passwd], step: str
) -> None:
    account = Account.of(logins[0].pw_name)

    def refused() -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, f"{step} is refused")

        setattr(os, step, refuse)
        change_account(account.change())

    assert f"{step} is refused" in _in_a_process(refused)

    def not_done() -> None:
        setattr(os, step, lambda *_: None)  # a kernel that says yes and does nothing
        change_account(account.change())

    assert "the change was not made" in _in_a_process(not_done) or "taken back" in _in_a_process(not_done)
    assert "ValueError" in _in_a_process(lambda: change_account(account.change() | {"uid": 0}))


@needs_root
def test_a_start_with_a_refused_account_ends_with_the_reason_and_uses_no_retry(
    logins: list[pwd.struct_passwd], open_place: Path
) -> None:
    node = Node(open_place / "state", "box7", local_machine.detect(1, use_gpus=False))
    node.secret = b"secret of sixteen bytes and more"
    folder = node.app_folder("net")
    folder.mkdir(parents=True)
    order = pb.AppMasterOrder(app="net", attempt=1, command=["/bin/echo", "ran"], login=logins[0].pw_name)

    async def run() -> pb.AppMasterStatus:
        containers = Containers(node, Zygotes(ZygoteClient(node.folder, enabled=False)))
        masters = AppMasters(node, containers, "127.0.0.1:1", pause_seconds=0.01)
        masters.registered.set()
        masters.start(order)  # the folder is root's: nothing of a user's is started in it
        while (status := next(iter(masters)).status).state != pb.APP_MASTER_BACKING_OFF:
            await asyncio.sleep(0.01)
        assert "its start failed: an app's folder must belong to the account" in status.diagnostics
        real = Account.change
        broken = {"gid": -1}  # to the kernel: as before, so the group stays root's
        Account.change = lambda self: real(self) | broken  # type: ignore[method-assign]
        os.chown(folder, logins[0].pw_uid, logins[0].pw_gid)
        try:
            while "its account must be" not in status.diagnostics:
                await asyncio.sleep(0.01)
        finally:
            Account.change = real  # type: ignore[method-assign]
        known = next(iter(masters))
        assert not known.own_ends.times, "nothing of it counts against the app"
        said = status.diagnostics
        while not (found := list(folder.glob("appmaster.a*.out.log"))) or "ran" not in found[0].read_text():
            await asyncio.sleep(0.01)
        assert found[0].stat().st_uid == logins[0].pw_uid
        masters.drain(0.0)
        await masters.ended()
        assert said.startswith("its start failed: its account must be")
        return status

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_a_container_token_is_valid_only_for_the_login_that_it_was_signed_for() -> None:
    secret = SECRET.encode() * 2
    token = container_token(secret, "net", "box", 0, 1, "ana")
    check_container_token(token, secret, "net", "box", 0, 1, "ana")
    for login in ("", "bob"):
        with pytest.raises(WrongTokenError):
            check_container_token(token, secret, "net", "box", 0, 1, login)
    assert container_token(secret, "net", "box", 0, 1) == container_token(secret, "net", "box", 0, 1, "")


@needs_root
def test_a_folder_of_one_user_is_refused_for_another_account(app: Path, logins: list[pwd.struct_passwd]) -> None:
    check_owner(app, Account.of(logins[0].pw_name))
    for account in (None, Account.of(logins[1].pw_name)):
        with pytest.raises(EunomiaError, match="must belong to the account"):
            check_owner(app, account)


# -- files


@needs_root
def test_access_as_the_owner_ends_with_its_block_and_covers_only_files(app: Path) -> None:
    before = os.getgroups()
    with as_owner(app):
        (app / "new").write_text("x")
        with pytest.raises(PermissionError):
            (app.parent.parent / "secret").read_text()
        assert os.geteuid() == 0 and os.getgroups() == []
        with pytest.raises(RuntimeError), as_owner(app):
            raise RuntimeError
    assert (app / "new").stat().st_uid == app.stat().st_uid
    assert (app.parent.parent / "secret").read_text() == SECRET
    assert os.getgroups() == before


@needs_root
def test_a_symbolic_link_in_place_of_an_app_folder_gives_no_rights(app: Path) -> None:
    (app.parent / "link").symlink_to(app)
    os.chown(app.parent / "link", app.stat().st_uid, -1, follow_symlinks=False)
    with pytest.raises(RightsError, match="must be a folder, no link"), as_owner(app.parent / "link"):
        pass


@needs_root
def test_links_at_logs_and_older_copies_reach_no_file_of_root(app: Path, logins: list[pwd.struct_passwd]) -> None:
    root = app.parent.parent
    for name in ("log", "secret"):
        (root / name).write_bytes(SECRET.encode() * 40_000)
        (root / name).chmod(0o600)
    with as_owner(app):
        (app / "1").mkdir()
        (app / "1" / "stdout.log").symlink_to(root / "log")
        (app / "2").symlink_to(root)  # .../2/log
        (app / "appmaster.a1.box.err.log").symlink_to(root / "secret")
        (app / "appmaster").mkdir()
        (app / "appmaster" / "stacks").symlink_to(root)
        (app / "submission.json").symlink_to(root / "secret")
        (app / "submission.json.old").symlink_to(root / "secret")
    before = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    for path in (app / "1" / "stdout.log", app / "2" / "log"):
        with as_owner(app), pytest.raises(OSError):
            shorten(path, 1 << 16)
    own = app / "1" / "output" / "a1-i1-g1.box.stdout.log"
    with as_owner(app):
        own.parent.mkdir()
        own.symlink_to(root / "log")
    assert [path for path, _ in _bound_as_owner(app, app / "1", "box", 1 << 16)] == [own]
    assert last_words(app / "appmaster.a1.box.err.log") == ""
    with pytest.raises(OSError):
        write_stacks(app / "appmaster" / "stacks" / "1.txt", app, [], "why", owned=app)
    with pytest.raises((OSError, EunomiaError)):
        reading_as_owner(app, lambda: read_kept(app / "submission.json", remedy="none"))
    remove_all_but_best(app.parent, "net", "net/2")
    remove_app(app.parent, "net")
    assert not app.exists()
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before


@needs_root
def test_root_reads_a_run_offline_without_following_links_of_a_user(app: Path) -> None:
    root = app.parent.parent
    (root / "app.toml").write_text('[tuner]\nmetric = "secret"\n')
    trial = ("net/1", "{}", "running", None, 5, None, None, 1, 0, "")
    (root / "trials.csv").write_text(trials_text([trial]))
    line = {"t": "2026-01-01T00:00:00+00:00", "job": "net/1", "event": "start", "slots": [0], "step": 0}
    (root / "activity.jsonl").write_text(json.dumps(line | {"incarnation": 1}) + "\n")
    names = ("app.toml", "trials.csv", "activity.jsonl")
    for name in names:
        (root / name).chmod(0o600)

    for name in names:
        (app / name).symlink_to(root / name)

    def seen() -> list[bool]:
        return [bool(search_of(app).metric), bool(read_trials(app)), bool(ActivityLog(app, "net").poll())]

    assert seen() == [False, False, False]
    os.chown(app, 0, 0)  # a folder of root's own: then the links are root's
    assert seen() == [True, True, True]


@needs_root
def test_the_journal_check_ignores_records_in_the_folder_of_a_user(app: Path) -> None:
    record = app / "1" / "containers" / "net.1.1.0" / "container.json"
    record.parent.mkdir(parents=True)
    made = {"container_id": "net.1.1.0", "app": "net", "job": 1, "slot": 0, "epoch": 3}
    record.write_text(json.dumps(made))
    cluster = Cluster(machines=[], places={("box7", 0): [(0, 0)]})
    assert read_containers(app.parent.parent, cluster) == []
    os.chown(app, 0, 0)
    assert [one.id for one in read_containers(app.parent.parent, cluster)] == ["net.1.1.0"]


@needs_root
def test_reading_a_pipe_times_out_and_the_number_of_blocked_readers_is_limited(app: Path) -> None:
    os.mkfifo(app / "pipe")
    os.chown(app / "pipe", app.stat().st_uid, -1)
    for _ in range(4):
        with pytest.raises(EunomiaError, match="is there a pipe among them"):
            reading_as_owner(app, (app / "pipe").read_bytes, seconds=0.05)
    with pytest.raises(EunomiaError, match="4 readers that still wait"):
        reading_as_owner(app, (app / "pipe").read_bytes, seconds=5.0)
    with (app / "pipe").open("wb"):  # its readers end
        pass


def test_a_pipe_in_place_of_a_file_with_a_checksum_counts_as_damage(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "submission.json")
    with pytest.raises(InputError, match="it must be a plain file"):
        read_kept(tmp_path / "submission.json", remedy="none")


def test_folders_nested_too_deep_are_refused_and_cannot_evade_the_quota(tmp_path: Path) -> None:
    app = tmp_path / "apps" / "net"
    app.mkdir(parents=True)
    place = os.open(app, os.O_RDONLY)
    for _ in range(250):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(TooDeepError):
        bytes_of(app)
    with pytest.raises(EunomiaError, match="nested at most"):
        remove_app(tmp_path / "apps", "net")
    node = Node(tmp_path, "box7", local_machine.detect(1, use_gpus=False))
    held: dict[str, str] = {}

    class Masters(AppMasters):
        def hold_back(self, app: str, why: str) -> None:
            held[app] = why

    async def run() -> None:
        containers = Containers(node, Zygotes(ZygoteClient(node.folder, enabled=False)))
        masters = Masters(node, containers, "127.0.0.1:1")
        masters.start(pb.AppMasterOrder(app="net", attempt=1, command=["true"], token="a" * 64))
        quotas = Quotas(node, containers, masters)
        quotas.limit_users([pb.DiskLimit(user="ana", bytes=1 << 30, apps=["net", "gone"])])
        await quotas.look()
        masters.drain(0.0)
        await masters.ended()

    node.secret = b"secret of sixteen bytes and more"
    asyncio.run(run())
    assert "the folders of ana's apps take inf GiB of disk, more than its limit of 1 GiB" in held["net"]


def test_all_folders_of_a_user_count_towards_the_quota_of_that_user(tmp_path: Path) -> None:
    node = Node(tmp_path, "box7", local_machine.detect(1, use_gpus=False))
    node.secret = b"secret of sixteen bytes and more"
    held: list[tuple[str, str]] = []
    sizes = {"new": 3 << 30, "old": 4 << 30, "other": 9 << 30}

    class Masters(AppMasters):
        def hold_back(self, app: str, why: str) -> None:
            held.append((app, why))

    async def run() -> None:
        containers = Containers(node, Zygotes(ZygoteClient(node.folder, enabled=False)))
        masters = Masters(node, containers, "127.0.0.1:1")
        for name in ("new", "other"):
            masters.start(pb.AppMasterOrder(app=name, attempt=1, command=["true"], token="a" * 64))
        quotas = Quotas(node, containers, masters, measure=lambda folder: sizes[folder.name])
        await quotas.look()
        assert held == [], "before the arbiter's first answer no limit is known, and nothing goes on"
        quotas.limit_users([pb.DiskLimit(user="ana", bytes=6 << 30, apps=["new", "old"])])
        await quotas.look()
        sizes["old"] = 1 << 30
        await quotas.look()
        masters.drain(0.0)
        await masters.ended()

    asyncio.run(run())
    first, second = dict(held[:2]), dict(held[2:])
    assert "the folders of ana's apps take 7 GiB of disk, more than its limit of 6 GiB" in first["new"]
    assert first["other"] == "" and second == {"new": "", "other": ""}


@needs_root
def test_a_forged_record_in_the_folder_of_a_user_is_not_adopted(app: Path, open_place: Path) -> None:
    live, records = open_place / "live", open_place / "containers"
    live.mkdir()
    forged = app / "1" / "containers" / "evil"
    forged.mkdir(parents=True)
    (forged / "container.json").write_text(json.dumps({"container_id": "evil"}))
    from eunomia_appmaster.launcher.container import mark_of
    from eunomia_appmaster.launcher.processes import MARK

    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {MARK: mark_of("evil", forged), "EUNOMIA_NODE": "box7"})
    try:
        link_again(live, app.parent, records, "box7")
        assert list(live.iterdir()) == []
        os.chown(app, os.geteuid(), -1)  # of a folder of its own it is, so the mark was found
        link_again(live, app.parent, records, "box7")
        assert [path.name for path in live.iterdir()] == ["evil"]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@needs_root
def test_a_login_can_read_the_launcher_address_but_neither_its_secret_nor_its_lock(
    logins: list[pwd.struct_passwd], open_place: Path
) -> None:
    node = Node(open_place / "state", "box7", local_machine.detect(1, use_gpus=False))
    (open_place / "state").chmod(0o711)
    node.secret = b"secret of sixteen bytes and more"
    node.publish("127.0.0.1:1")
    folder = node.records_folder("net") / "one"
    node.make_records_folder(folder)
    with pytest.raises(FileExistsError):
        node.make_records_folder(folder)
    with as_account(logins[0].pw_uid, logins[0].pw_gid):
        assert json.loads(node.launcher_file.read_text())["address"] == "127.0.0.1:1"
        for path in (node.folder / "secret", node.folder / "lock"):
            with pytest.raises(PermissionError):
                path.read_bytes()
        for place in (node.folder, node.folder / "live", folder):
            with pytest.raises(PermissionError):
                list(place.iterdir())
        with pytest.raises(PermissionError):
            (folder / "container.json").write_text("{}")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711
