"""Faulty plugins, one a class of fault: found by the suite or contained by name, while two apps go on and finish.

A hang is contained by the live service: tests/appmaster/test_hanging_plugin.py.
"""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from eunomia import (
    Allocation,
    Contract,
    Feature,
    LinearKey,
    Menus,
    Offer,
    Profile,
    Reason,
    Snapshot,
    Stage,
    Triggers,
    Valuations,
    hookimpl,
)
from eunomia.arbiter import Arbiter
from eunomia.cli import take_plugin_flags
from eunomia.contract.allocations import Grants
from eunomia.contract.claims import Claims
from eunomia.contract.decisions import Decision, Fault
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.verdicts import Verdicts
from eunomia.errors import InputErrors, PluginError
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import DEFAULT_PLUGINS, Found, Registry, Status
from eunomia.round.invariants import check_state
from eunomia.round.strictness import freeze, is_strict
from eunomia.testing.conformance import PolicyConformance
from eunomia.testing.drive import Drive, Outcome
from eunomia.units import AppId, JobId, Seconds, Unit, UserId

CLUSTER = Cluster.parse("1x2 V100 8cpu 32GB")
WORK = {JobId("ana/0"): 20.0, JobId("ben/0"): 20.0}
BUILT_IN = {name: Found(name=name, target=target) for name, target in DEFAULT_PLUGINS.items()}


def script() -> list[tuple[float, Event]]:
    made: list[tuple[float, Event]] = []
    for time_, name in ((0.0, "ana"), (1.0, "ben")):
        made.append((time_, AppArrived(app=AppId(name), user=UserId(name), divides=False)))
        made.append((time_, JobAdded(job=JobId(f"{name}/0"), app=AppId(name), least=2, most=2)))
    return made


def driven(profile: Profile, cluster: Cluster = CLUSTER) -> tuple[Arbiter, Outcome]:
    """Two apps under a profile, to their end; the whole state is checked after every step."""
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback(registry=profile.registry).stages(cluster))

    def watch(drive: Drive, decision: Decision) -> None:
        check_state(arbiter.state)

    outcome = Drive(arbiter, work=dict(WORK), watch=watch).run(script(), until=2000.0)
    assert set(outcome.finished) == set(WORK)
    return arbiter, outcome


# --- what never gets as far as a round ------------------------------------------------------------------------------

BEFORE = {
    "fails_to_import": ("import nothing_of_that_name", "No module named", Status.BROKEN),
    "another_api": ("", "api must be 1, but got 2", Status.INCOMPATIBLE),
    "unknown_hook": ("", '"eunomia_alocation"; did you mean', Status.BROKEN),
    "wrong_signature": ("", '"snapshots"; did you mean', Status.BROKEN),
    "keyword_only": ("", "no *, **, / or keyword-only ones", Status.BROKEN),
    "by_value": ("import dataclasses", "must be equal to itself alone", Status.BROKEN),
}
BODIES = {
    "unknown_hook": "def eunomia_alocation(self, snapshot): ...",
    "wrong_signature": "def eunomia_allocation(self, snapshots): ...",
    "keyword_only": "def eunomia_allocation(self, *, snapshot, offer): ...",
}


def planted(folder: Path, name: str) -> Registry:
    """The built-in plugins, and a broken one in a file."""
    path = folder / f"{name}.py"
    text = f"""
        from eunomia import hookimpl
        {BEFORE[name][0]}
        {"@dataclasses.dataclass" if name == "by_value" else ""}
        class Planted:
            name = "{name}"
            api = {2 if name == "another_api" else 1}

            @hookimpl
            {BODIES.get(name, "def eunomia_allocation(self, snapshot, offer): ...")}
    """
    path.write_text(dedent(text))
    return Registry({**BUILT_IN, name: Found(name=name, target=f"{path}:Planted", origin=path.name)})


@pytest.mark.parametrize("name", BEFORE)
def test_an_unusable_plugin_is_listed_by_name_and_affects_no_other(tmp_path: Path, name: str) -> None:
    registry = planted(tmp_path, name)
    _, said, status = BEFORE[name]
    listed = registry.listed(name)
    assert (listed.status, listed.found.name) == (status, name)
    assert listed.error is not None
    assert said in listed.error
    with pytest.raises(InputErrors) as refused:
        Profile.load(name, registry=registry)
    assert f'"{name}"' in str(refused.value)
    assert said in str(refused.value)
    arbiter, _ = driven(Profile.load("default", registry=registry))
    assert not arbiter.state.counters.fallen_back


@pytest.mark.parametrize("name", BEFORE)
def test_with_strict_plugins_a_broken_plugin_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PluginError, match=f'plugin "{name}" must load'):
        planted(tmp_path, name).check()


# --- what goes wrong in a round -------------------------------------------------------------------------------------


class Planted:
    """Serves by arrival; each kind below goes wrong in one way."""

    name = "planted"
    api = 1
    contracts: ClassVar[Any] = {}

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        return self.answer(snapshot, menus, offer)

    def answer(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        jobs, free, sizes = offer.candidates, offer.free_gpus, []
        for job in jobs.tolist():
            sizes.append(menus.largest_at_most(job, free))
            free -= sizes[-1]
        return Allocation.to_jobs(jobs, np.array(sizes, dtype=np.int64), otherwise=Reason.OUTRANKED)


@dataclasses.dataclass(frozen=True)
class Unwritable:
    """A memo that cannot be written."""

    version: ClassVar[int] = 1

    def to_bytes(self) -> bytes:
        raise OSError("no ink")

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        return cls()


class Unreadable:
    """A record without columns."""

    table = "unreadable"

    def columns(self) -> Any:
        raise KeyError("columns")


Answer = Callable[[Allocation, Snapshot, Offer], Any]


def _exit(*_: object) -> Any:
    sys.exit("enough")


def _write(good: Allocation, snapshot: Snapshot, offer: Offer) -> Any:
    snapshot.jobs.done[:] = 1.0
    return good


def _grants(gpus: Any) -> Answer:
    return lambda good, snapshot, offer: dataclasses.replace(
        good, amount=Grants(gpus=np.full(good.claims.rows.size, gpus))
    )


def _with(**changed: Any) -> Answer:
    return lambda good, snapshot, offer: dataclasses.replace(good, **changed)


def _verdict(good: Allocation, snapshot: Snapshot, offer: Offer) -> Any:
    rows = offer.candidates
    return dataclasses.replace(good, verdicts=Verdicts(rows=rows, reasons=np.full(rows.size, 99, np.int32)))


IN_A_ROUND: dict[str, tuple[Answer, str]] = {
    "raises": (lambda *_: 1 // 0, "ZeroDivisionError"),
    "exits": (_exit, "SystemExit: enough"),
    "wrong_type": (lambda *_: {"ana/0": 2}, "Allocation expected, dict returned"),
    "none": (lambda *_: None, "Allocation expected, NoneType returned"),
    "not_integral": (_grants(0.5), "grants must be whole GPUs"),
    "off_its_menu": (_grants(1), "a gang must run whole"),
    "mutated_input": (_write, "read-only"),
    "twice": (
        _with(claims=Claims(unit=Unit.JOB, rows=np.zeros(2, np.int32)), amount=Grants(gpus=np.full(2, 2))),
        "a claim must be named once",
    ),
    "no_columns": (_with(claims=None), "has no attribute 'unit'"),
    "texts": (_grants("two"), "grants must be whole GPUs"),
    "past_wake": (_with(wake_at=Seconds(-1.0)), "wake_at must be later than now"),
    "wake_at_noon": (_with(wake_at="noon"), "TypeError"),
    "reason_of_its_own": (_verdict, "reasons of the closed set"),
    "unwritable_memo": (_with(memo=Unwritable()), "no ink"),
    "unreadable_record": (_with(record=Unreadable()), "columns"),
}


def faulty(way: str) -> type[Any]:
    answer, _ = IN_A_ROUND[way]

    def wrong(self: Planted, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        return answer(Planted.answer(self, snapshot, menus, offer), snapshot, offer)

    return type("Faulty", (Planted,), {"answer": wrong, "name": way})


def profile_of(kind: type[Any]) -> Profile:
    return Profile.load(kind.name, registry=Registry(BUILT_IN).adding(kind))


@pytest.mark.parametrize("way", IN_A_ROUND)
def test_a_fault_in_a_round_names_the_plugin_and_the_fallback_serves(way: str) -> None:
    arbiter, outcome = driven(profile_of(faulty(way)))
    faults = [fault for decision in outcome.decisions for fault in decision.faults]
    assert [fault.plugin for fault in faults] == [way] * 3
    assert all(IN_A_ROUND[way][1] in fault.what for fault in faults)
    assert arbiter.state.counters.fallen_back


BAD_KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "raises": (lambda jobs: jobs[99], "IndexError"),
    "columns": (lambda jobs: np.zeros(jobs.size), "LinearKey expected, ndarray returned"),
    "too_short": (lambda jobs: LinearKey(intercept=np.zeros(0)), "one entry for each of"),
    "a_number": (lambda jobs: LinearKey(intercept=1.0), "one entry for each of"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("way", BAD_KEYS)
def test_an_error_in_a_sort_key_is_attributed_to_the_valuation_not_to_the_allocation(
    way: str,
) -> None:
    key, said = BAD_KEYS[way]

    class BadKeys:
        name = "bad_keys"
        api = 1
        contracts: ClassVar[Any] = {Stage.VALUATION: Contract(gives=frozenset({Feature.SCORES}))}

        @hookimpl
        def eunomia_valuation(self, snapshot: Snapshot, offer: Offer) -> Valuations:
            return Valuations.by_key(snapshot, offer, key)

    _, outcome = driven(profile_of(BadKeys), Cluster.parse("1x3 V100"))
    faults = [fault for decision in outcome.decisions for fault in decision.faults]
    assert {(fault.plugin, fault.stage) for fault in faults} == {("bad_keys", Stage.VALUATION)}
    assert all(said in fault.what for fault in faults)


@pytest.mark.parametrize("way", IN_A_ROUND)
def test_with_strict_plugins_the_error_of_a_plugin_is_raised(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUNOMIA_STRICT_PLUGINS", "1")
    with pytest.raises(Exception, match=IN_A_ROUND[way][1].replace("(", r"\(")):
        driven(profile_of(faulty(way)))


class BadTriggers(Planted):
    """Fails where it is asked when rounds are due."""

    name = "bad_triggers"

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        raise LookupError("no trigger")


class Overcommits:
    """Puts everybody on the first GPUs."""

    name = "overcommits"
    api = 1

    @hookimpl
    def eunomia_placement(self, offer: Offer, allocation: Allocation) -> Any:
        from eunomia import Placement

        rows = np.arange(allocation.claims.rows.size, dtype=np.int32)
        gpus = np.tile(np.array([0, 0], dtype=np.int64), rows.size)
        return Placement(claim=rows, gpus=gpus, start=np.arange(0, gpus.size + 1, 2, dtype=np.int64))


@pytest.mark.parametrize(("kind", "said"), [(BadTriggers, "no trigger"), (Overcommits, "a GPU must have one holder")])
def test_faults_in_the_remaining_hooks_lead_to_the_fallback(kind: type[Any], said: str) -> None:
    arbiter, outcome = driven(profile_of(kind))
    faults = [fault for decision in outcome.decisions for fault in decision.faults]
    assert {fault.plugin for fault in faults} == {kind.name}
    assert all(said in fault.what for fault in faults)
    assert arbiter.state.counters.fallen_back


# --- what the arbiter cannot see, and the suite does ----------------------------------------------------------------


class KeepsState(Planted):
    """Serves from the other end every other time that it is asked."""

    name = "keeps_state"

    def __init__(self) -> None:
        self.asked = 0

    def answer(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        self.asked += 1
        candidates = offer.candidates[:: 1 if self.asked % 2 else -1]
        return super().answer(snapshot, menus, dataclasses.replace(offer, candidates=candidates))


class WritesToBases(Planted):
    """Makes itself heavier, behind the view."""

    name = "writes_to_bases"

    def answer(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        snapshot.apps.weight.base[:] *= 2.0  # type: ignore[index]
        return super().answer(snapshot, menus, offer)


class Hangs(Planted):
    """Does not return for an hour."""

    name = "hangs"

    def answer(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        time.sleep(3600.0)


@pytest.mark.parametrize(
    ("kind", "test", "said"),
    [
        (KeepsState, "test_a_plugin_keeps_no_state_between_arbiters", "asked twice"),
        (KeepsState, "test_new_and_reused_plugins_decide_the_same", "keeps more than caches on itself"),
        (WritesToBases, "test_inputs_are_not_modified", "snapshot.apps.weight"),
        (Hangs, "test_no_round_is_faulty", "had not returned"),
    ],
)
def test_the_suite_finds_plugins_whose_faults_cannot_be_contained(kind: type[Any], test: str, said: str) -> None:
    suite: Any = type("TestPlanted", (PolicyConformance,), {"plugin": kind, "time_limit": 0.3 if kind is Hangs else 30})
    with pytest.raises(AssertionError, match=f"^{kind.name}: .*{said}"):
        getattr(suite(), test)()


@pytest.mark.parametrize("kind", [KeepsState, WritesToBases])
def test_two_apps_finish_despite_a_plugin_whose_faults_cannot_be_contained(kind: type[Any]) -> None:
    driven(profile_of(kind))


# --- a step that was abandoned --------------------------------------------------------------------------------------


def test_an_abandoned_step_counts_as_a_faulty_round_live_and_in_a_replay() -> None:
    profile = profile_of(Planted)
    live, again = (
        Arbiter(CLUSTER, profile.stages(CLUSTER), Profile.fallback(registry=profile.registry).stages(CLUSTER))
        for _ in range(2)
    )
    events = [event for _, event in script()]
    first = live.step(Seconds(0.0), events)
    again.replay(Seconds(0.0), events, first)
    fault = Fault(plugin="planted", stage=Stage.ALLOCATION, what="the step was over 2 s")
    for turn in range(3):
        assert not live.state.counters.fallen_back
        now = Seconds(10.0 + turn)
        decision = live.abandon(now, fault)
        again.replay(now, [], decision)
        assert decision.faulty
        assert not decision.transitions
        assert decision.wake_at > now
        assert live.save() == again.save()
    assert live.state.counters.fallen_back
    assert live.step(Seconds(60.0)).serving == "fallback"


@dataclasses.dataclass(frozen=True)
class Illegible:
    """A memo that is written and cannot be read, as after a change of its plugin."""

    version: ClassVar[int] = 1

    def to_bytes(self) -> bytes:
        return b"scrawl"

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        raise ValueError("what does this say")


class Scrawls(Planted):
    """Serves by arrival, and writes what it cannot read."""

    name = "scrawls"
    memo_types: ClassVar[Any] = {Stage.ALLOCATION: Illegible}

    def answer(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Any:
        return dataclasses.replace(super().answer(snapshot, menus, offer), memo=Illegible())


def test_an_unreadable_memo_does_not_prevent_the_recovery_of_an_arbiter() -> None:
    profile = profile_of(Scrawls)
    live, replayed, loaded = (
        Arbiter(CLUSTER, profile.stages(CLUSTER), Profile.fallback(registry=profile.registry).stages(CLUSTER))
        for _ in range(3)
    )
    events = [event for _, event in script()]
    replayed.replay(Seconds(0.0), events, live.step(Seconds(0.0), events))
    loaded.load(live.save())
    assert live.state.stages.memos
    assert not replayed.state.stages.memos
    assert not loaded.state.stages.memos
    assert set(loaded.state.leases) == set(replayed.state.leases) == set(live.state.leases) != set()


# --- strict ---------------------------------------------------------------------------------------------------------


class Holds(Planted):
    """Holds one of each."""

    name = "holds"

    def __init__(self) -> None:
        self.names = ["ana"]
        self.weights = {"ana": [1.0]}
        self.seen = {1}
        self.column = np.zeros(3)


@pytest.mark.parametrize(
    "change",
    [
        lambda plugin: setattr(plugin, "rounds", 1),
        lambda plugin: delattr(plugin, "names"),
        lambda plugin: plugin.names.append("ben"),
        lambda plugin: plugin.weights.update(ben=1.0),
        lambda plugin: plugin.weights["ana"].append(2.0),
        lambda plugin: plugin.seen.add(2),
        lambda plugin: plugin.column.__setitem__(0, 1.0),
    ],
)
def test_a_frozen_plugin_cannot_be_changed(change: Callable[[Any], object]) -> None:
    plugin = Holds()
    freeze(plugin)
    assert isinstance(plugin, Holds)
    assert {plugin: 1}[plugin] == 1
    with pytest.raises((AttributeError, TypeError, ValueError)):
        change(plugin)


def test_with_strict_plugins_state_kept_on_self_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUNOMIA_STRICT_PLUGINS", "1")
    with pytest.raises(Exception, match='plugin "keeps_state" must keep only caches on itself, but changes asked'):
        driven(profile_of(KeepsState))


def test_the_strict_flag_is_passed_on_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUNOMIA_STRICT_PLUGINS", "0")
    assert not is_strict()
    assert take_plugin_flags(["plugins", "--strict-plugins", "--json"]) == ["plugins", "--json"]
    assert is_strict()


@pytest.mark.parametrize("policy", ["default", "las", "themis", "max_min", "max_min_fairness"])
def test_the_presets_run_with_strict_plugins(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUNOMIA_STRICT_PLUGINS", "1")
    arbiter, _ = driven(Profile.load(policy, registry=Registry(BUILT_IN), settings={"rounds.bid_deadline": "none"}))
    assert arbiter.strict
    assert not arbiter.state.counters.fallen_back
