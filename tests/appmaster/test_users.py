"""Users with tokens and limits of their own: each reaches its own apps only, and the operator everything."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from appmaster.service_lab import Lab, Master, lab
from eunomia.cli import run
from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.sizes import size_text
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.users import LimitFlags, _show_token
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service.app_record import MASTER_ENDED
from eunomia_appmaster.service.guard import COMMANDS
from eunomia_appmaster.service.refusals import Details, one_error
from eunomia_appmaster.service.user_record import USER_NOTE, UserLimits, named_in, read_user

Connect = Callable[[str], Client]
APP = '[app]\nname = "{name}"\n{more}[job]\ncommand = "python train.py"\nslots = 1\n'
SEARCH = (
    APP
    + """[space]
lr = { type = "categorical", choices = [0.1, 0.2, 0.3, 0.4] }
[tuner]
kind = "none"
trials = 4
metric = "loss"
"""
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as made:
        yield made.ready()


@pytest.fixture
def connect(served: Lab, tmp_path: Path) -> Iterator[Connect]:
    """Returns clients by token."""
    clients: list[Client] = []

    def connected(token: str) -> Client:
        file = tmp_path / f"token-{len(clients)}"
        file.write_text(token)
        clients.append(Client(served.arbiter.address, token_file=file))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def operator(served: Lab, connect: Connect) -> Client:
    return connect(served.arbiter.service.tokens.operator)


@pytest.fixture
def ana(operator: Client, connect: Connect) -> Client:
    return connect(operator.add_user("ana").token)


@pytest.fixture
def bob(operator: Client, connect: Connect) -> Client:
    return connect(operator.add_user("bob").token)


def submit(client: Client, folder: Path, name: str, more: str = "", text: str = APP) -> str:
    return client.submit(folder / f"{name}.toml", text=text.replace("{name}", name).replace("{more}", more)).name


def test_a_token_is_shown_once_and_stored_as_a_hash(served: Lab, operator: Client) -> None:
    made = operator.add_user("ana", limits=pb.UserLimits(weight=2.0, apps=4))
    assert made.token.startswith("eu1.ana.1.")
    notes = served.arbiter.service.journal.notes(USER_NOTE)
    assert made.token not in json.dumps(notes)
    assert made.token.rpartition(".")[2] not in json.dumps(notes)
    [listed] = operator.users()
    assert (listed.user, listed.tokens, listed.limits.weight, listed.limits.apps) == ("ana", 1, 2.0, 4)
    assert listed.limits.jobs == UserLimits().jobs
    assert not listed.HasField("token_ends_in_seconds")


def test_a_user_submits_lists_explains_and_cancels_its_own_app(served: Lab, ana: Client, tmp_path: Path) -> None:
    name = submit(ana, tmp_path, "net")
    assert ana.app(name).user == "ana"
    assert ana.names() == ["net"]
    assert ana.explain("net").app == "net"
    assert ana.cancel("net").state == "cancelled"
    assert [user.user for user in ana.users()] == ["ana"]


def test_an_app_of_another_user_appears_not_to_exist(served: Lab, ana: Client, bob: Client, tmp_path: Path) -> None:
    submit(ana, tmp_path, "net")
    submit(bob, tmp_path, "own")
    for call in (bob.cancel, bob.explain, bob.app, bob.resume_app, lambda name: bob.more_trials(name, 1)):
        with pytest.raises(InputError, match='"net"') as error:
            call("net")
        assert "there are: own" in str(error.value)
    assert bob.names() == ["own"]
    assert [job.app for job in bob.list(jobs=True).jobs if job.app != "own"] == []
    assert ana.app("net").state != "cancelled"


def test_a_submission_reveals_only_that_a_name_of_another_user_is_in_use(
    served: Lab, ana: Client, bob: Client, tmp_path: Path
) -> None:
    submit(ana, tmp_path, "nets")
    made = bob.submit(tmp_path / "b.toml", text=APP.replace("{name}", "nets").replace("{more}", ""))
    assert made.name == "nets-2"
    assert [app.app for app in bob.list().apps] == ["nets-2"]
    with pytest.raises(EunomiaError, match=r'no app is named "nets"; there are: nets-2'):
        bob.cancel("nets")


def test_slots_of_other_users_are_shown_without_a_name(served: Lab, ana: Client, bob: Client, tmp_path: Path) -> None:
    submit(ana, tmp_path, "net")
    master = Master(served, "net")
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[pb.JobAdded(job="net/1", least=1, most=1)])
    assert "net" in {slot.app for slot in ana.list(slots=True).slots}
    hidden = bob.list(slots=True).slots
    assert {slot.app for slot in hidden} | {slot.job for slot in hidden} == {""}
    assert "leased" in {slot.state for slot in hidden} or {slot.state for slot in hidden} != {"free"}


def test_the_operator_can_see_and_cancel_the_apps_of_all_users(
    served: Lab, operator: Client, ana: Client, tmp_path: Path
) -> None:
    submit(ana, tmp_path, "net")
    assert submit(operator, tmp_path, "big", 'user = "ana"\nweight = 1000\n') == "big"
    assert set(operator.names()) == {"net", "big"}
    assert set(ana.names()) == {"net", "big"}
    assert operator.cancel("net").state == "cancelled"


def test_the_user_in_an_app_file_must_be_that_of_the_token(served: Lab, ana: Client, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'user must be that of the token.*"bob" with a token of ana'):
        submit(ana, tmp_path, "net", 'user = "bob"\n')
    with pytest.raises(InputError, match="user must be that of the token"):
        submit(ana, tmp_path, "net", 'user = "root"\n')
    assert served.seen().apps == []
    assert submit(ana, tmp_path, "net", 'user = "ana"\n') == "net"
    assert (
        ana.submit(
            tmp_path / "x.toml", text=APP.replace("{name}", "x").replace("{more}", ""), user="bob"
        ).submitted.user
        == "ana"
    )


def test_the_token_of_a_user_cannot_call_methods_of_the_operator(served: Lab, ana: Client) -> None:
    calls = {
        "AddUser": lambda: ana.add_user("eve"),
        "SetUser": lambda: ana.set_user("ana", pb.UserLimits(weight=1e6)),
        "RemoveUser": lambda: ana.remove_user("ana"),
        "NewToken": lambda: ana.new_token("ana"),
        "Resume": ana.resume,
        "SetProfile": lambda: ana.drop_profile("x"),
        "AcceptLoss": ana.accept_loss,
        "MakeJoinToken": ana.make_join_token,
        "ListJoinTokens": ana.join_tokens,
        "RevokeJoinToken": lambda: ana.revoke_join_token(1),
        "ListNodes": ana.nodes,
        "DrainNode": lambda: ana.drain_node("box7"),
        "UndrainNode": lambda: ana.undrain_node("box7"),
        "RemoveNode": lambda: ana.remove_node("box7"),
    }
    for name, call in calls.items():
        what = COMMANDS.get(name, name)
        with pytest.raises(InputError, match=f"{what} must be called with the operator's token.*user ana"):
            call()
    token = (("authorization", f"Bearer {ana._metadata()[0][1].removeprefix('Bearer ')}"),)
    for stub in (rpc.ApplicationMasterProtocolStub(served.channel).Allocate,):
        with pytest.raises(grpc.RpcError) as error:
            stub(pb.AllocateRequest(app="net"), metadata=token, timeout=10.0)
        assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_each_client_method_is_allowed_for_users_or_only_for_the_operator() -> None:
    from eunomia_appmaster.service.tokens import USERS_METHODS

    methods = {one.name for one in pb.DESCRIPTOR.services_by_name["ClientProtocol"].methods}
    operators = {"Resume", "SetProfile", "AcceptLoss", "AddUser", "SetUser", "RemoveUser", "NewToken"}
    nodes = {"ListNodes", "DrainNode", "UndrainNode", "RemoveNode"}
    joins = {"MakeJoinToken", "ListJoinTokens", "RevokeJoinToken"}
    assert methods == USERS_METHODS | operators | nodes | joins


def test_a_submission_beyond_a_limit_of_its_user_is_refused_with_the_limit(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path
) -> None:
    limits = pb.UserLimits(weight=2.0, apps=2, jobs=5)
    ana = connect(operator.add_user("ana", limits=limits).token)
    with pytest.raises(InputError, match=r"weight of an app of ana must be at most 2.*1e[+]06"):
        submit(ana, tmp_path, "net", "weight = 1000000\n")
    assert submit(ana, tmp_path, "one", "weight = 2\n", SEARCH) == "one"
    with pytest.raises(InputError, match=r"jobs of the live apps of ana must be at most 5.*4 that have not ended"):
        submit(ana, tmp_path, "two", "", SEARCH)
    assert submit(ana, tmp_path, "two") == "two"
    with pytest.raises(InputError, match="live apps of ana must be at most 2"):
        submit(ana, tmp_path, "three")
    [listed] = operator.users()
    assert (listed.live_apps, listed.live_jobs) == (2, 5)
    ana.cancel("one")
    assert submit(ana, tmp_path, "three") == "three"
    operator.set_user("ana", pb.UserLimits(apps=3))
    assert operator.users()[0].limits.weight == 2.0
    assert submit(ana, tmp_path, "four") == "four"


def test_a_forged_app_master_cannot_add_jobs_beyond_the_limit_of_its_user(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path
) -> None:
    ana = connect(operator.add_user("ana", limits=pb.UserLimits(jobs=3)).token)
    submit(ana, tmp_path, "net")
    master = Master(served, "net")
    master.register()
    added = [pb.JobAdded(job=f"net/{number}", least=1, most=1) for number in range(1, 6)]
    answer = master.beat_until(lambda: True, jobs_added=added) and master.call()
    assert served.app("net").waiting + served.app("net").running == 0, answer
    master.response_id = answer.response_id
    master.beat_until(lambda: master.leases, jobs_added=added[:1])


@pytest.mark.parametrize("status", [pb.FAILED, pb.KILLED])
def test_jobs_that_an_app_left_unfinished_count_against_the_limit_once_it_goes_on(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path, status: "pb.FinalApplicationStatus.ValueType"
) -> None:
    ana = connect(operator.add_user("ana", limits=pb.UserLimits(jobs=5)).token)
    submit(ana, tmp_path, "search", text=SEARCH)
    master = Master(served, "search")
    master.register()
    added = [pb.JobAdded(job=f"search/{number}", least=1, most=1) for number in range(1, 5)]
    master.beat_until(lambda: len(master.leases) == 4, jobs_added=added)
    master.beat(jobs_finished=["search/1"])
    failed = [pb.JobFailed(job="search/2", why="no memory")]
    master.finish(final_application_status=status, jobs_failed=failed, diagnostics=f"{MASTER_ENDED}: signal 9")
    ended = {job.job: job.state for job in served.seen(app="search").jobs}
    assert ended == {"search/1": "finished", "search/2": "failed", "search/3": "cancelled", "search/4": "cancelled"}
    assert served.app("search").failed == 1
    submit(ana, tmp_path, "other", text=SEARCH)
    for go_on, more in ((lambda: ana.more_trials("search", 1), 3), (lambda: ana.resume_app("search"), 2)):
        with pytest.raises(InputError, match=f"4 that have not ended, and {more} more"):
            go_on()


def test_ten_thousand_submissions_of_a_user_are_throttled_for_that_user_only(
    served: Lab, ana: Client, bob: Client, operator: Client, tmp_path: Path
) -> None:
    refused = 0
    for number in range(120):
        try:
            submit(bob, tmp_path, f"b{number}")
        except EunomiaError as error:
            refused += 1
            assert "at most" in str(error)
    assert refused >= 100
    assert len([app for app in operator.list().apps if app.user == "bob"]) == UserLimits().apps
    assert submit(ana, tmp_path, "net") == "net"


# --- tokens that are no longer valid ----------------------------------------------------------------------------------


def test_adding_a_user_twice_is_refused(served: Lab, operator: Client, connect: Connect) -> None:
    first = operator.add_user("ana")
    with pytest.raises(InputError, match=r'a user must be new .*"ana"'):
        operator.add_user("ana", limits=pb.UserLimits(apps=1))
    assert connect(first.token).users()[0].limits.apps == UserLimits().apps


def test_the_token_of_a_removed_user_stays_invalid_after_the_user_is_added_again(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path
) -> None:
    first = operator.add_user("ana")
    ana = connect(first.token)
    submit(ana, tmp_path, "net")
    assert operator.remove_user("ana").live_apps == 1
    with pytest.raises(InputError, match=r"of user ana must be one of a user that is here.*removed"):
        ana.names()
    assert operator.users() == []
    assert operator.app("net").state != "cancelled"
    second = operator.add_user("ana")
    assert second.token.startswith("eu1.ana.2.")
    with pytest.raises(InputError, match="a token must be one that the arbiter at"):
        ana.names()
    assert connect(second.token).names() == ["net"]


def test_a_new_token_invalidates_the_one_before_it(served: Lab, operator: Client, connect: Connect) -> None:
    first = connect(operator.add_user("ana").token)
    second = operator.new_token("ana")
    assert second.user.tokens == 2
    with pytest.raises(InputError, match="a token must be one that the arbiter at"):
        first.names()
    assert connect(second.token).names() == []


def test_an_expired_token_is_refused(served: Lab, operator: Client, connect: Connect) -> None:
    made = operator.add_user("ana", ends_in_seconds=3600.0)
    ana = connect(made.token)
    assert ana.names() == []
    assert 3500.0 < operator.users()[0].token_ends_in_seconds <= 3600.0
    users = served.arbiter.service.users
    served.arbiter.call(lambda: setattr(users.get("ana"), "token_ends_at", 1.0))
    with pytest.raises(InputError, match=r"of user ana must not have ended \(the operator makes"):
        ana.names()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
@pytest.mark.parametrize("details", [(), one_error("jobs must rest on Sundays")])
def test_the_client_recognizes_a_refusal_by_its_status_details_and_not_by_its_text(
    tmp_path: Path, code: grpc.StatusCode, details: Details
) -> None:
    def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata(details)
        context.abort(code, "the token of user ana is of no use")

    server = grpc.server(ThreadPoolExecutor(1))
    method = grpc.unary_unary_rpc_method_handler(refuse)
    service = grpc.method_handlers_generic_handler("eunomia.arbiter.ClientProtocol", {"List": method})
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (tmp_path / "token").write_text("x")
    try:
        with (
            Client(f"127.0.0.1:{port}", token_file=tmp_path / "token") as client,
            pytest.raises(InputError) as refused,
        ):
            client.list()
        assert ("rest on Sundays" in str(refused.value)) is bool(details)
    finally:
        server.stop(None)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"jobs": -5}, "--jobs must be from 1 to 1,000,000, but got -5"),
        ({"apps": 1001}, "--apps must be from 1 to 1,000, but got 1001"),
        ({"disk": "5"}, "an amount of disk must be above 0 with a unit"),
    ],
)
def test_a_limit_out_of_its_range_is_refused_with_the_range(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        assert LimitFlags(user="ana", **flags).limits
    assert said in str(refused.value)


def test_the_expiry_of_a_token_is_printed_in_iso_8601_and_cannot_change_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _show_token(pb.UserToken(user=pb.User(user="ana", token_ends_in_seconds=60.0), token="t"), as_json=True)
    ends = json.loads(capsys.readouterr().out)["ends"]
    assert 0.0 <= datetime.fromisoformat(ends).timestamp() - time.time() <= 61.0
    assert run(["users", "set", "ana", "--ends", "5s"]) == 2
    assert "eunomia users token ana --ends 5s makes another" in capsys.readouterr().err


def test_a_size_is_printed_in_a_suitable_unit() -> None:
    sizes = {200 << 20: "200 MiB", 1 << 30: "1 GiB", 20.31 * (1 << 30): "20.31 GiB", 100_000: "97.66 KiB", 12: "12 B"}
    assert {size: size_text(size) for size in sizes} == sizes


def test_a_missing_unreadable_or_empty_token_file_gives_an_error_that_says_so(served: Lab, tmp_path: Path) -> None:
    unreadable, empty = tmp_path / "unreadable", tmp_path / "empty"
    unreadable.mkdir()
    empty.touch()
    cases = {
        tmp_path / "missing": "the file of a token must be there .*, but got no such file",
        unreadable: "the file of a token must be readable .*, but got Is a directory",
        empty: "the file of a token must hold one .*, but got an empty file",
    }
    for file, said in cases.items():
        with Client(served.arbiter.address, token_file=file) as client, pytest.raises(InputError, match=said):
            client.names()


@pytest.mark.parametrize("token", ["eu1.ana.1.00", "eu1.eve.1.00", "eu1.ana", "eu1.", "eu1.ana.1.", "eu1...."])
def test_a_forged_token_of_a_user_is_refused(served: Lab, ana: Client, connect: Connect, token: str) -> None:
    with pytest.raises(InputError, match="a token must be one that the arbiter at"):
        connect(token).names()


def test_users_and_tokens_survive_a_restart_of_the_arbiter(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path
) -> None:
    token = operator.add_user("ana", limits=pb.UserLimits(weight=3.0, gpu_hours=20.0)).token
    operator.remove_user(operator.add_user("bob").user.user)
    served.restart()
    served.ready()
    ana = connect(token)
    [listed] = ana.users()
    assert (listed.user, listed.limits.weight, listed.limits.gpu_hours) == ("ana", 3.0, 20.0)
    assert [user.user for user in connect(served.arbiter.service.tokens.operator).users()] == ["ana"]


def test_the_token_of_an_app_master_is_invalid_for_a_later_app_of_that_name(served: Lab, tmp_path: Path) -> None:
    master = served.master("net")
    old = master.token
    master.register()
    service = served.arbiter.service
    app = service.apps.get("net")
    assert app is not None
    assert app.issue > 0
    served.arbiter.call(lambda: service.apps.take_up(app.taken_up(0.0)))  # as a resumption, or a later app, has it
    request = pb.RegisterApplicationMasterRequest(app="net", attempt=2)
    with pytest.raises(grpc.RpcError) as error:
        master.stub().RegisterApplicationMaster(request, metadata=old, timeout=10.0)
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    master.attempt = 2
    assert master.register().user == "ana"


def test_an_app_of_an_earlier_version_keeps_its_token(served: Lab) -> None:
    from eunomia_appmaster.service.tokens import Caller, Role, Tokens

    tokens = Tokens(b"x" * 32, issue_of={"old": 0, "new": 7}.get)
    before = Tokens(b"x" * 32).app("old")
    assert tokens.app("old") == before
    assert tokens.caller((("authorization", f"Bearer {before}"),)) == Caller(role=Role.APP, app="old")
    assert tokens.caller((("authorization", f"Bearer {Tokens(b'x' * 32).app('new')}"),)) is None
    assert tokens.caller((("authorization", f"Bearer {tokens.app('new')}"),)) == Caller(role=Role.APP, app="new")


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("", {}),
        ("a b", {}),
        ("-a", {}),
        ("../a", {}),
        ("a" * 33, {}),
        ("ana", {"weight": 0.0}),
        ("ana", {"weight": float("nan")}),
        ("ana", {"weight": 2e6}),
        ("ana", {"apps": 0}),
        ("ana", {"apps": 1001}),
        ("ana", {"jobs": -1}),
        ("ana", {"gpu_hours": -1.0}),
        ("ana", {"gpu_hours": float("nan")}),
        ("ana", {"disk_bytes": 0.0}),
    ],
)
def test_a_name_or_limit_out_of_range_changes_nothing(
    served: Lab, operator: Client, name: str, limits: dict[str, float]
) -> None:
    with pytest.raises(InputError, match="must be"):
        operator.add_user(name, limits=pb.UserLimits(**limits))  # type: ignore[arg-type]
    assert operator.users() == []


def test_the_error_for_an_unknown_user_lists_the_users(served: Lab, operator: Client, ana: Client) -> None:
    for call in (operator.remove_user, operator.new_token, lambda name: operator.set_user(name, pb.UserLimits())):
        with pytest.raises(InputError, match=r'there are: ana.*"eve"'):
            call("eve")


def test_a_damaged_note_of_a_user_is_ignored() -> None:
    from eunomia_appmaster.service.user_record import User

    user, token = User(name="a.b").with_token(None)
    assert named_in(token) == "a.b"
    plain = user.note().value
    assert read_user("a.b", plain) == user
    for name, content in {"tokens": "1", "token_hash": None, "seen": [], "limits": {"apps": 0}, "name": "x"}.items():
        assert read_user("a.b", plain | {name: content}) is None
    assert read_user("a.b", None) is None
    assert read_user("a.b", {"name": "a.b"}) is None


# --- GPU hours --------------------------------------------------------------------------------------------------------


def test_a_user_at_its_limit_of_gpu_hours_waits_until_midnight_and_explain_shows_it(
    served: Lab, operator: Client, connect: Connect, tmp_path: Path
) -> None:
    ana = connect(operator.add_user("ana", limits=pb.UserLimits(gpu_hours=1e-9)).token)
    bob = connect(operator.add_user("bob").token)
    submit(ana, tmp_path, "net")
    submit(bob, tmp_path, "own")
    masters = {name: Master(served, name) for name in ("net", "own")}
    for name, master in masters.items():
        master.register()
        added = [pb.JobAdded(job=f"{name}/1", least=1, most=1)]
        master.beat_until(lambda master=master: master.leases, jobs_added=added)  # type: ignore[misc]
    net = masters["net"]
    net.beat_until(lambda: net.leaving)
    net.beat_until(lambda: net.ended)
    assert net.leaving, "it is warned, as for any preemption, not killed"
    explained = ana.explain("net")
    assert (explained.job, explained.reason) == ("net/1", "gpu_hours")
    assert "used up; it goes on in" in explained.text
    [me] = ana.users()
    assert me.gpu_hours_used > 0.0
    assert 0.0 < me.waits_seconds <= 86400.0
    assert ana.app("net").state == "paused"
    assert bob.app("own").slots == 1
    net.beat(jobs_resumed=[pb.JobResumed(job="net/1")])  # its app master asks for it all the same
    net.beat(jobs_added=[pb.JobAdded(job="net/2", least=1, most=1)])
    assert ana.app("net").slots == 0
    again = operator.set_user("ana", pb.UserLimits(gpu_hours=1000.0))
    assert not again.HasField("waits_seconds"), "its jobs go on"
    net.ended.clear()
    net.beat_until(lambda: net.leases)
    assert not ana.users()[0].HasField("waits_seconds")


def test_gpu_hours_are_counted_across_restarts_and_reset_at_midnight(tmp_path: Path) -> None:
    from types import SimpleNamespace
    from typing import Any

    from eunomia.units import Seconds
    from eunomia_appmaster.service.app_record import App
    from eunomia_appmaster.service.gpu_hours import GpuHours
    from eunomia_appmaster.service.user_record import User
    from eunomia_appmaster.service.users import Users

    clock = SimpleNamespace(unix_time=lambda: clock.now, now=86400.0 * 20_000 + 80_000.0)
    system: Any = clock
    app = App(name="net", user="ana", weight=1, tuner="none", trials=1, least=1, most=1, submitted_at=0, arrived_at=0)
    ledger: dict[int, float] = {0: 5000.0}
    ledgers = SimpleNamespace(gpu_seconds=ledger)
    holds = SimpleNamespace(app=np.array([-1, -1]))
    view: Any = SimpleNamespace(app_row=lambda name: 0, app_ledger=ledgers, now=0.0, gpus=holds)
    apps: Any = SimpleNamespace(live=[app], get={"net": app}.get)
    note = User(name="ana", limits=UserLimits(gpu_hours=2.0)).note()
    users = Users({"ana": note.value}, system=system)
    hours = GpuHours(users, apps, system=system)
    assert hours.look(view, Seconds(0.0))[0] == []
    user = users.all[0]
    assert hours.used_hours(user) == 0.0  # what it had before it was added does not count
    ledger[0] += 3600.0
    clock.now += 61.0
    _, [kept] = hours.look(view, Seconds(61.0))
    assert hours.used_hours(user) == 1.0
    users = Users({"ana": json.loads(json.dumps(kept.value))}, system=system)  # the arbiter begins again
    hours = GpuHours(users, apps, system=system)
    ledger[0] += 3600.0
    [held], [note] = hours.look(view, Seconds(100.0))
    left = 86400.0 - clock.now % 86400.0
    assert (held.user, float(held.until)) == ("ana", 100.0 + left)
    assert note.value["held_day"] == "2024-10-04"
    assert hours.look(view, Seconds(101.0))[0] == []
    clock.now += left + 1.0
    assert hours.look(view, Seconds(100.0 + left + 1.0))[0] == []  # the arbiter lets it go by itself
    assert hours.used_hours(users.all[0]) == 0.0
    assert hours.waits_seconds(users.all[0]) is None


# --- one user's tokens against another's app -----------------------------------------------------------------------


def test_a_bid_or_report_for_the_app_of_another_user_is_refused(
    served: Lab, ana: Client, bob: Client, tmp_path: Path
) -> None:
    submit(ana, tmp_path, "net")
    submit(bob, tmp_path, "own")
    good, evil = Master(served, "net"), Master(served, "own")
    good.register()
    evil.register()
    stub, bid = served.client(), pb.Bid(offer=1)
    calls: list[Callable[[], object]] = [
        lambda: evil.stub().Allocate(pb.AllocateRequest(app="net", attempt=1, bid=bid), metadata=evil.token),
        lambda: evil.stub().RegisterApplicationMaster(
            pb.RegisterApplicationMasterRequest(app="net", attempt=9), metadata=evil.token
        ),
        lambda: evil.stub().FinishApplicationMaster(
            pb.FinishApplicationMasterRequest(app="net", attempt=9), metadata=evil.token
        ),
        lambda: stub.Cancel(pb.CancelRequest(app="net"), metadata=evil.token),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    added = pb.JobAdded(job="net/7", least=1, most=1)
    assert "net/7" in " ".join(evil.beat(jobs_added=[added]).refused)
    assert ana.app("net").state in ("starting", "waiting", "running")
    good.beat()


def test_logs_of_another_user_are_refused_as_those_of_an_unknown_app(
    served: Lab,
    ana: Client,
    bob: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from eunomia import cli

    submit(ana, tmp_path, "net")
    log = Path(ana.app("net").folder) / "1" / "stdout.log"
    log.parent.mkdir()
    log.write_text("a secret\n")
    monkeypatch.setenv("EUNOMIA_ADDRESS", served.arbiter.address)
    master = Master(served, "net")
    master.register()
    master.beat_until(lambda: master.leases, jobs_added=[pb.JobAdded(job="net/1", least=1, most=1)])
    for client, code, shown in ((ana, 0, "a secret"), (bob, 2, 'no app is named "net"')):
        monkeypatch.setenv("EUNOMIA_TOKEN_FILE", str(client._token_file))
        assert cli.run(["logs", "net/1"]) == code
        said = "".join(capfd.readouterr())
        assert shown in said
        assert ("a secret" in said) is (client is ana)
