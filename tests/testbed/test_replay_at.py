"""A replay at an arbiter that runs: its part of the record, its users, and what is refused with which message."""

import dataclasses
import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replay_lab import flags_of, measurements, write_trace

from eunomia import __version__
from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.events import AppArrived, AppCancelled, Event, JobAdded
from eunomia.errors import EunomiaError, InputError
from eunomia.journal.journal import Journal, SavedState
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.given_run import GivenNames, GivenPlace, GivenRun, cancel_live, part_from_now
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.run_part import WHOLE, RunPart
from eunomia_testbed.replay.arbiters import own_arbiters
from eunomia_testbed.replay.given_arbiter import GivenArbiter
from eunomia_testbed.replay.given_checks import check_flags, check_health, check_policy, others_of, state_dir_of
from eunomia_testbed.replay.given_files import AtFile, next_prefix, record_of_run, write_part
from eunomia_testbed.replay.preparing import prepared
from eunomia_testbed.replay.scaling import Factors, unscaled_profile
from eunomia_testbed.replay.slots import GivenSlots

AT = 1_000.0
"""Unix time of the clock's 0 in the journals."""
CLUSTER = "1x2 V100"


# -- the part of a record


def write_journal(folder: Path, steps: Sequence[tuple[float, tuple[Event, ...]]], *, saved_after: int = 0) -> Cluster:
    """Write the journal of an arbiter under ``las`` on two slots; with a checkpoint after a step, if it is given."""
    cluster, profile = Cluster.parse(CLUSTER), Profile.load("las")
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=1)
    folder.mkdir(parents=True, exist_ok=True)
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        layout = encode((cluster.machines, (("box", 0), ("box", 1))))
        journal.set_meta(layout=layout, policy="las", profile=profile.resolved(), seed=1)
        for number, (now, events) in enumerate(steps, 1):
            journal.append(Seconds(now), events, arbiter.step(Seconds(now), events), at=AT + now)
            if number == saved_after:
                journal.checkpoint(arbiter.save())
    return cluster


def arrival(app: str, user: str = "ana") -> AppArrived:
    return AppArrived(app=AppId(app), user=UserId(user))


def added(app: str) -> JobAdded:
    return JobAdded(job=JobId(f"{app}/1"), app=AppId(app), iterations=100.0)


STEPS: tuple[tuple[float, tuple[Event, ...]], ...] = (
    (0.0, (arrival("other"), added("other"))),
    (5.0, (arrival("replay-1-0-a"), added("replay-1-0-a"))),
    (6.0, (arrival("late"), added("late"))),
    (8.0, (AppCancelled(app=AppId("replay-1-0-a")),)),
    (9.0, (arrival("replay-1-1-a"), added("replay-1-1-a"))),
)


@pytest.mark.parametrize("saved_after", [0, 1])
def test_a_part_has_the_runs_apps_under_their_own_names_and_its_steps_alone(tmp_path: Path, saved_after: int) -> None:
    write_journal(tmp_path, STEPS, saved_after=saved_after)
    names = {"replay-1-0-a": "a"}
    before = LiveRecord(tmp_path)
    before.poll()
    assert set(before.apps) == {"other", "replay-1-0-a", "late", "replay-1-1-a"}
    before.close()
    record = LiveRecord(tmp_path, RunPart(names=names, after_step=1, until_step=4))
    news = record.poll()
    record.close()
    assert [step.number for step in news.steps] == [2, 3, 4]
    assert [(life.app, life.arrived_at, life.state) for life in record.apps.values()] == [("a", AT + 5.0, "cancelled")]
    assert list(record.jobs) == list(record.job_arrived_at) == ["a/1"]
    assert {hold.app for hold in record.holds.holds} == {"a"}
    assert {hold.job for hold in record.holds.holds} == {"a/1"}
    assert {spell.job for spell in record.spells.spells} == {"a/1"}
    assert record.app_dir("a") == tmp_path / "apps" / "replay-1-0-a"
    assert (record.first_at, record.last_at, record.slots) == (AT + 5.0, AT + 8.0, 2)


def test_a_part_is_written_to_the_runs_folder_and_read_again(tmp_path: Path) -> None:
    state, folder = tmp_path / "state", tmp_path / "run"
    write_journal(state, STEPS)
    folder.mkdir()
    part = RunPart(names={"replay-1-0-a": "a"}, after_step=1, until_step=4)
    write_part(folder, state, part)
    record = record_of_run(folder)
    record.poll()
    record.close()
    assert list(record.apps) == ["a"]
    assert (record.part.after_step, record.part.until_step, record.folder) == (1, 4, state)
    (folder / "arbiter.json").write_text("{")
    with pytest.raises(InputError, match=r"arbiter\.json of a run must be whole"):
        record_of_run(folder)
    assert record_of_run(state).part is WHOLE


def test_a_saved_state_is_kept_with_the_part(tmp_path: Path) -> None:
    state, folder = tmp_path / "state", tmp_path / "run"
    write_journal(state, STEPS, saved_after=1)
    folder.mkdir()
    names = GivenNames("replay-1-")
    part = part_from_now(state, names)
    assert (part.after_step, part.begun is not None) == (5, True)
    write_part(folder, state, dataclasses.replace(part, names={"late": "b"}, after_step=1))
    record = record_of_run(folder)
    record.poll()
    record.close()
    assert isinstance(record.part.begun, SavedState)
    assert (list(record.apps), record.steps) == (["b"], 5)


def test_names_of_a_part_are_the_runs() -> None:
    part = RunPart(names={"replay-1-0-a": "a"})
    assert (part.app("replay-1-0-a"), part.app("b")) == ("a", None)
    assert (part.job("replay-1-0-a/3"), part.job("replay-1-0-a"), part.job("b/3")) == ("a/3", "a", None)
    assert (part.at_arbiter("a"), part.at_arbiter("z")) == ("replay-1-0-a", "z")
    assert part.row({"app": "replay-1-0-a", "job": "replay-1-0-a/1", "c": 1.0}) == {"app": "a", "job": "a/1", "c": 1.0}
    assert part.row({"app": "b"}) is None
    assert part.note({"standing": {"best_job": "replay-1-0-a/2"}}) == {"standing": {"best_job": "a/2"}}
    assert WHOLE.row({"app": "b"}) == {"app": "b"}
    assert (WHOLE.app("b"), WHOLE.job("b/1"), WHOLE.at_arbiter("b")) == ("b", "b/1", "b")


def test_apps_get_names_that_differ_and_fit(tmp_path: Path) -> None:
    names = GivenNames("replay-abc-0-")
    first, second = names.of("x" * 64), names.of(f"{'x' * 63}y")
    assert first != second
    assert max(len(first), len(second)) <= 64
    assert names.of("x" * 64) == first
    assert names.runs_name[first] == "x" * 64
    text = '[app]\nname = "a"\nuser = "u"\n[job]\ncommand = "c"\n[tuner]\nname = "t"\n'
    source = AppSource(path=tmp_path / "a.toml", text=text)
    assert source.name == "a"
    assert source.with_name("b").text == text.replace('name = "a"', 'name = "b"')


# -- what a replay keeps, and its users


class FakeClient:
    """What a replay calls of a client; it keeps users and apps."""

    def __init__(self, users: Sequence[str] = (), live: Sequence[str] = (), **health: Any) -> None:
        self.names, self.apps, self.cancelled = list(users), list(live), list[str]()
        self.answer = pb.HealthResponse(ready=True, version=__version__, profile="las", **health)

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def users(self) -> list[pb.User]:
        return [pb.User(user=name) for name in self.names]

    def add_user(self, user: str, *, limits: pb.UserLimits) -> None:
        assert (limits.apps, limits.jobs) == (1000, 1_000_000)
        self.names.append(user)

    def remove_user(self, user: str) -> None:
        self.names.remove(user)

    def list(self, *, ended: bool) -> pb.ListResponse:
        assert not ended
        return pb.ListResponse(apps=[pb.App(app=app) for app in self.apps])

    def cancel(self, app: str) -> None:
        self.apps.remove(app)
        self.cancelled.append(app)

    def health(self) -> pb.HealthResponse:
        return self.answer

    def submit(self, path: Path, *, text: str) -> SimpleNamespace:
        source = AppSource(path=path, text=text)
        self.apps.append(source.name)
        return SimpleNamespace(name=source.name)


def given(client: Any, folder: Path, *, policy: str = "las", owner: str = "", cluster: str = CLUSTER) -> GivenArbiter:
    place = GivenPlace(connect=lambda: client, state_dir=folder)
    slots = GivenSlots(address="there:1", cluster=Cluster.parse(cluster))
    return GivenArbiter(place, Profile.load(policy), slots, owner=owner, measured_on="there")


def test_users_of_the_trace_are_added_and_removed(tmp_path: Path) -> None:
    client = FakeClient(users=["ana"])
    with given(client, tmp_path).serving(tmp_path, ["u0", "u1"]):
        assert client.names == ["ana", "u0", "u1"]
        assert AtFile.read(tmp_path).users == ("u0", "u1")
    assert client.names == ["ana"]
    assert AtFile.read(tmp_path).users == ()


def test_a_user_of_the_arbiter_is_never_taken_for_one_of_the_trace(tmp_path: Path) -> None:
    client = FakeClient(users=["u1"])
    rule = "users of the trace must be new at the arbiter, or --as-me must stand, but got u1, which it has"
    with pytest.raises(InputError, match=rule), given(client, tmp_path).serving(tmp_path, ["u0", "u1"]):
        pass
    assert client.names == ["u1"]


def test_a_replay_that_goes_on_finds_its_users_and_its_apps_again(tmp_path: Path) -> None:
    AtFile(tag="abc", runs=1, users=("u0",)).write(tmp_path)
    client = FakeClient(users=["u0"], live=["replay-abc-0-0-job0", "replay-abd-0-0-job0", "other"])
    with given(client, tmp_path).serving(tmp_path, ["u0"]):
        assert client.cancelled == ["replay-abc-0-0-job0"]
        assert client.names == ["u0"]
    assert client.names == []
    assert next_prefix(tmp_path) == "replay-abc-1-"
    assert next_prefix(tmp_path) == "replay-abc-2-"


def test_names_that_no_user_can_have_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    arbiter = given(FakeClient(users=["u1"]), tmp_path)
    arbiter.check_users(["u0"], ["drf"])
    with pytest.raises(InputError, match="a user's name must be at most 32 letters"):
        arbiter.check_users(["u" * 33], [])
    with pytest.raises(InputError, match="users of the trace must be new at the arbiter"):
        arbiter.check_users(["u1"], [])


def test_no_user_is_added_if_the_caller_owns_all_apps(tmp_path: Path) -> None:
    client = FakeClient()
    with given(client, tmp_path, owner="me").serving(tmp_path, ["me"]):
        assert client.names == []


def test_users_that_cannot_be_removed_stay_in_the_file(tmp_path: Path) -> None:
    client = FakeClient()

    def fails(_: str) -> None:
        raise EunomiaError("an arbiter must be reachable")

    with given(client, tmp_path).serving(tmp_path, ["u0"]):
        client.remove_user = fails  # type: ignore[method-assign]
    assert AtFile.read(tmp_path).users == ("u0",)


def test_only_live_apps_of_the_run_are_cancelled() -> None:
    client = FakeClient(live=["replay-1-0-a", "other"])
    assert cancel_live(client, ["replay-1-0-a", "replay-1-1-b"]) == ["replay-1-0-a"]  # type: ignore[arg-type]
    assert client.apps == ["other"]


# -- what makes a run invalid, and what is left of it


def test_a_run_names_what_makes_it_invalid_and_cancels_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eunomia_testbed.live_runs.given_run.CHECK_SECONDS", 0.0)
    monkeypatch.setattr("eunomia_testbed.live_runs.given_run.LEAVE_SECONDS", 0.0)
    write_journal(tmp_path / "state", STEPS)
    client: Any = FakeClient(apps=1, live=["cnn"], cluster="b01: 2xV100")
    place = GivenPlace(connect=lambda: client, state_dir=tmp_path / "state")
    run = GivenRun(tmp_path, place, GivenNames("replay-7-0-"))
    run.start()
    run.submit_also(AppSource(path=tmp_path / "a.toml", text='[app]\nname = "a"\n[job]\ncommand = "c"\n'))
    assert (run.names, client.apps) == (["a"], ["cnn", "replay-7-0-0-a"])
    run.look()
    assert run.faults == ()
    client.answer.apps, client.answer.cluster = 2, "b01: 2xV100, b02: 2xV100"
    client.answer.fallback = True
    run.look()
    run.look()
    assert run.faults == (
        "apps of others ran on the arbiter",
        "the machines of the arbiter changed from b01: 2xV100 to b01: 2xV100, b02: 2xV100",
        "the arbiter decided by its fallback profile",
    )
    run.stop()
    run.record.close()
    assert client.apps == ["cnn"]


# -- refusals


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"slots": "4x cpu"}, '--at must stand without slots, since the arbiter has its own, but got --slots "4x cpu"'),
        ({"unpaced": True}, "--at must stand without slots, since the arbiter has its own, but got --unpaced"),
        ({"faults": 3}, "--faults must hit processes of the replay's own arbiters, so --at must not stand with it"),
        ({"settings": ["trace.skip=1", "rounds.lease=5s"]}, "of the reader, trace.KEY, but got rounds.lease=5s"),
        ({"policies": ["las", "fifo"]}, "--at must have one policy, that of the arbiter, but got las, fifo"),
        ({"resizes": "live", "profiles": None}, "--resizes live on a running arbiter must have --profiles"),
    ],
)
def test_flags_that_make_no_sense_at_a_running_arbiter_are_refused(
    tmp_path: Path, more: dict[str, object], message: str
) -> None:
    plain = {"slots": "", "policies": None}
    with pytest.raises(InputError) as error:
        check_flags(flags_of(tmp_path, **plain | {"at": "there:1"} | more))
    assert message in str(error.value)


@pytest.mark.parametrize("flag", ["--as-me", "--shared", "--state-dir"])
def test_flags_of_at_need_it(tmp_path: Path, flag: str) -> None:
    field = flag[2:].replace("-", "_")
    with pytest.raises(InputError, match=f"{flag} must stand with --at, but got none"):
        own_arbiters(flags_of(tmp_path, **{field: tmp_path if field == "state_dir" else True}))


def node(**more: Any) -> pb.NodeHealth:
    return pb.NodeHealth(**{"node": "b01", "alive": True, "state": "up"} | more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ready": False}, "must be ready to decide, but got one without machines, or that waits for them"),
        (
            {"version": "0.0.1"},
            f"version of Eunomia, which reads its record, but got 0.0.1, here {__version__}",
        ),
        (
            {"fallback": True, "serving": "fallback"},
            "under its chosen policy (eunomia resume returns to it), but got its fallback",
        ),
        (
            {"nodes": [node(state="draining")]},
            "nodes and slots of the arbiter must be there, but got b01: draining",
        ),
        ({"nodes": [node(alive=False, state="")]}, "b01: silent"),
        ({"missing_slots": [pb.MissingSlot(node="b01", slot=2)]}, "slot 2 of b01 is missing"),
    ],
)
def test_an_arbiter_that_is_not_whole_is_refused(more: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"ready": True, "version": __version__, "profile": "las", "nodes": [node()]}
    check_health(pb.HealthResponse(**fields), "there:1")
    with pytest.raises(InputError) as error:
        check_health(pb.HealthResponse(**fields | more), "there:1")
    assert message in str(error.value)


def test_apps_of_others_are_named(tmp_path: Path) -> None:
    AtFile(tag="abc").write(tmp_path)

    def others(apps: Sequence[str], live: int, out: Path | None) -> str:
        return others_of(FakeClient(live=apps), pb.HealthResponse(apps=live), out)  # type: ignore[arg-type]

    assert others([], 0, None) == ""
    assert others(["cnn", "mlp"], 2, None) == "2 live apps: cnn, mlp"
    assert others(["a", "b", "c", "d"], 4, None) == "4 live apps: a, b, c, ..."
    assert others([], 3, None) == "3 of other users"
    assert others(["replay-abc-0-0-x"], 1, tmp_path) == ""
    assert others(["replay-abc-0-0-x"], 1, None) == "1 live app: replay-abc-0-0-x"
    assert others(["replay-abc-0-0-x", "cnn"], 2, tmp_path) == "1 live app: cnn"


def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eunomia_testbed.replay.given_checks.PAUSE_SECONDS", 0.0)
    client: Any = FakeClient(state_dir=str(tmp_path / "gone"), steps=5)
    with pytest.raises(InputError, match=r"the arbiter's record must be readable on this machine \(--state-dir names"):
        state_dir_of(client, None, client.health())
    write_journal(tmp_path / "state", STEPS)
    assert state_dir_of(client, tmp_path / "state", client.health()) == tmp_path / "state"
    client.answer.steps = 77
    rule = "the state folder must be that of the arbiter, but got one with 5 steps under las, where the arbiter has 77"
    with pytest.raises(InputError, match=rule):
        state_dir_of(client, tmp_path / "state", client.health())


def test_another_policy_than_the_arbiters_is_refused(tmp_path: Path) -> None:
    las = Profile.load("las")
    check_policy(flags_of(tmp_path, policies=["las"]), las)
    check_policy(flags_of(tmp_path, policies=None), las)
    with pytest.raises(InputError, match="but got fifo, where the arbiter has las"):
        check_policy(flags_of(tmp_path, policies=["fifo"]), las)


def test_policies_that_weigh_users_are_refused_if_the_caller_owns_all_apps(tmp_path: Path) -> None:
    def ready(policy: str, *, owner: str) -> Any:
        write_trace(tmp_path)
        flags = flags_of(tmp_path, at="there:1", slots="", policies=None)
        arbiter = given(FakeClient(), tmp_path, policy=policy, owner=owner, cluster="1x4 cpu")
        profiles = tmp_path / "profiles.toml"
        profiles.write_text(dataclasses.replace(measurements("cpu"), machine="there").to_toml())
        return prepared(flags, lambda _: measurements("cpu"), arbiter)

    with pytest.raises(InputError) as error:
        ready("max_min_users", owner="me")
    assert str(error.value) == (
        "a policy that weighs users must have the trace's users, so --as-me must not stand, "
        "but got max_min_users, in which max_min_users weighs users (--as-me)"
    )
    made = ready("las", owner="me")
    assert {app.user for app in made.plan.apps} == {"me"}
    assert list(made.plan.workload.users.id) == ["me"]
    assert list(made.plan.profiles) == ["las"]
    assert made.plan.profiles["las"].resolved() == Profile.load("las").resolved()
    assert made.plan.cluster.gpus == 4
    assert {app.user for app in ready("max_min_users", owner="").plan.apps} == {"u0", "u1"}


def test_times_of_a_running_arbiters_policy_stay_and_are_named() -> None:
    profile = Profile.load("las", settings=["rounds.every=10m"])
    stays = unscaled_profile(profile, Factors(time=200.0))
    assert stays.profile is profile
    assert "rounds.every stays 10m (scaled: 3s)" in stays.changes
    assert unscaled_profile(profile, Factors(time=1.0)).changes == ()


def test_slots_of_several_types_are_not_measured(tmp_path: Path) -> None:
    arbiter = given(FakeClient(), tmp_path, cluster="1x2 V100, 1x2 P100")
    rule = "measured slots must be of one type, since no app can ask for a type, or --profiles must stand"
    with pytest.raises(InputError, match=rule):
        arbiter.kinds()
    (kind,) = given(FakeClient(), tmp_path).kinds()
    assert (kind.name, kind.count, kind.speed) == ("V100", 2, 0.0)


# -- which policies weigh users


READS_USERS = re.compile(r"snapshot\.users(?!\.id\b)|apps\.user\b")
"""Code that reads users' weights, or which user owns an app; ids alone name claims."""


def test_each_plugin_that_reads_users_declares_it() -> None:
    registry = default_registry()
    for name in registry.names:
        kind = registry.load(name)
        declared = any(contract.weighs_users for contract in getattr(kind, "contracts", {}).values())
        reads = READS_USERS.search(Path(inspect.getfile(kind)).read_text())
        assert declared or not reads, f"{name} reads users, and its contract does not declare it"


@pytest.mark.parametrize("plugin", ["max_min_users", "drf", "isolated", "gandiva_fair"])
def test_a_plugin_that_divides_among_apps_weighs_no_users(plugin: str) -> None:
    profile = Profile.load(plugin)
    assert profile.stages().weigh_users == (plugin,)
    assert profile.replace(settings={f"plugins.{plugin}.among": "apps"}).stages().weigh_users == ()


def test_json_of_at_is_checked(tmp_path: Path) -> None:
    (tmp_path / "at.json").write_text(json.dumps({"tag": "x"}))
    with pytest.raises(InputError, match=r"at\.json of a replay's folder must be whole"):
        AtFile.read(tmp_path)
