"""Run a policy on scenes in virtual time, and collect violations of rules."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

from eunomia.contract.allocations import Allocation, DeviceShares, Grants, TimeShares
from eunomia.contract.bundles import ByBundle
from eunomia.contract.codec import encode
from eunomia.contract.contracts import Contract, Feature, Promise
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.explanations import Explanation
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.placements import Placement
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.contract.valuations import BySize, ByType, OverTime, Scores, Valuations
from eunomia.errors import EunomiaError
from eunomia.model.cluster import Cluster
from eunomia.platform.contract_check import contract_of
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import Registry, default_registry
from eunomia.round.arbiter import Arbiter
from eunomia.round.invariants import StateError, check_state
from eunomia.testing.drive import Drive
from eunomia.testing.guarding import Call, Guard
from eunomia.testing.linear_keys import KeyCheck
from eunomia.testing.promises import inseparable, left_out
from eunomia.testing.scenes import Scene
from eunomia.testing.time_limit import HungError, time_limit
from eunomia.units import Seconds, SizeUnit, Stage, Unit


class Rule(Enum):
    """The rules that every policy must keep."""

    FAULTS = "every round must give answers of the right types, without a fault"
    GANGS = "gangs must run whole, at sizes on their menus"
    COMMITMENT = "no GPU, CPU or memory may be given twice, and only what is on offer"
    WAKES = "wake_at must be later than now"
    REASONS = "verdicts must name rows in use, each with a reason of the closed set"
    INPUTS = "what a stage is given must stay as it was"
    WORK_CONSERVING = "a WORK_CONSERVING allocation must leave no GPUs over that a claim without GPUs could use"
    SEPARABLE = "a SEPARABLE valuation must give an app the same values alone as among others"
    KEYS = "a linear key must follow from the job's own row until valid_until, and stay constant while the job waits"
    EXPLAINS = "eunomia_explain must return an Explanation or None for each job that its plugin turned down"
    RETURNS = "a call must return"
    SCRIPT_ENDS = "a policy must let time pass"


_OF_FAULTS: Mapping[str, Rule] = {
    "a gang must run whole": Rule.GANGS,
    "must be whole GPUs": Rule.GANGS,
    "must have one holder": Rule.COMMITMENT,
    "must stay within the offer": Rule.COMMITMENT,
    "GPUs that it was granted": Rule.COMMITMENT,
    "must not be overcommitted": Rule.COMMITMENT,
    "wake_at must be later": Rule.WAKES,
    "verdicts must": Rule.REASONS,
}
FORMS: Mapping[Feature, type[Any]] = {
    Feature.SCORES: Scores,
    Feature.BY_TYPE: ByType,
    Feature.BY_SIZE: BySize,
    Feature.BY_BUNDLE: ByBundle,
    Feature.OVER_TIME: OverTime,
}
SEPARABLE_EVERY = 3
"""The test of SEPARABLE values each app alone in one of this many valuations."""


@dataclasses.dataclass(slots=True)
class Run:
    """The result of one run of a scene."""

    scene: str
    decisions: list[str] = dataclasses.field(default_factory=list)
    """The decisions as text, without the state version."""
    problems: dict[Rule, list[str]] = dataclasses.field(default_factory=dict)
    unlike: list[str] = dataclasses.field(default_factory=list)
    given: dict[Stage, set[Feature]] = dataclasses.field(default_factory=dict)
    """Features that the plugin's stages gave."""
    answered: set[Stage] = dataclasses.field(default_factory=set)
    forms: set[type[Any]] = dataclasses.field(default_factory=set)
    """Forms that the plugin requested from a valuation."""
    units_given: set[SizeUnit] = dataclasses.field(default_factory=set)
    """Units of the values by size that the plugin gave."""
    units_read: set[SizeUnit] = dataclasses.field(default_factory=set)
    """Units in which the plugin requested values by size."""
    finished: set[str] = dataclasses.field(default_factory=set)
    started: set[str] = dataclasses.field(default_factory=set)

    def found(self, rule: Rule, what: str) -> None:
        """Record that a rule was broken."""
        self.problems.setdefault(rule, []).append(f"{what} ({self.scene})")


class Bench:
    """A plugin in a profile, ready to run.

    Args:
        plugin: the plugin class.
        options: options of the plugin.
        profile: the other stages, such as ``{"elasticity": "range"}``, or values by any dotted key of a profile.
        registry: the other plugins; None: those of this process.
        limit: limit of a run in seconds of CPU time, or ten times as many seconds of wall-clock time.

    Raises:
        InputErrors: the plugin does not load, or the profile is invalid.
    """

    def __init__(
        self,
        plugin: type[Any],
        *,
        options: Mapping[str, object] | None = None,
        profile: Mapping[str, object] | None = None,
        registry: Registry | None = None,
        limit: float = 30.0,
    ) -> None:
        self.plugin = plugin
        self.limit = limit
        self.registry = (default_registry() if registry is None else registry).adding(plugin)
        self.registry.load(str(plugin.name))
        self.name = str(plugin.name)
        settings = {key if "." in key else f"stages.{key}": item for key, item in (profile or {}).items()}
        settings |= {f"plugins.{self.name}.{key}": item for key, item in (options or {}).items()}
        self.profile = Profile.load(self.name, settings=settings, registry=self.registry)
        self._options = dict(options or {})
        self._runs: dict[str, Run] = {}

    def make(self) -> Any:
        """Return a fresh instance of the plugin."""
        return self.registry.make(self.name, self._options, alias=self.name, place=".".join)

    def answers(self, stage: Stage) -> bool:
        """Return whether the plugin implements a stage in the profile."""
        return stage in self.registry.stages(self.name)

    def contract(self, stage: Stage) -> Contract:
        """Return the plugin's contract for a stage."""
        return contract_of(self.make(), stage)

    def stages(self, cluster: Cluster | None = None, scene: Scene | None = None) -> Stages:
        """Return new stages, with the ``[rounds]`` that a scene needs.

        Raises:
            InputErrors: the cluster lacks a feature that the plugins need.
        """
        made = self.profile.stages(cluster)
        if scene is None:
            return made
        lease = made.rounds.lease if scene.lease is None else Seconds(scene.lease)
        separable = Promise.SEPARABLE in made.contract(Stage.VALUATION).promises
        deadline = Seconds(scene.deadline) if scene.deadline is not None and separable else None
        rounds = dataclasses.replace(
            made.rounds, lease=lease, suspend_grace=Seconds(2.0), bid_deadline=deadline, faults_allowed=1_000_000
        )
        return dataclasses.replace(made, rounds=rounds)

    def once(self, scene: Scene, way: str = "", **how: Any) -> Run:
        """Return the result of running a scene in one variant, cached after the first call."""
        key = f"{scene.name}, {way}"
        if key not in self._runs:
            self._runs[key] = self.run(scene, **how)
        return self._runs[key]

    def run(
        self,
        scene: Scene,
        *,
        promises: bool = False,
        twice: bool = False,
        compared: bool = True,
        after: Callable[[Arbiter, Scene], None] | None = None,
        before: Callable[[Arbiter, Stages], None] | None = None,
    ) -> Run:
        """Run a scene.

        Args:
            scene: the scene.
            promises: whether to check promises by brute force at each call.
            twice: whether to make each call twice and compare the answers.
            compared: whether the decisions are compared with another run's; if not, they are not written as text.
            after: called after every step.
            before: called once, with the stages of the run.
        """
        run = Run(scene=scene.name)
        cluster = Cluster.parse(scene.cluster)
        rounds = _Watch(self, run, cluster, scene, promises=promises, compared=compared)
        guard = Guard(self.name, twice=twice, seen=rounds.see)
        stages = guard.around(self.stages(cluster, scene))
        fallback = Profile.fallback(registry=self.registry).stages(cluster)
        arbiter = Arbiter(cluster, stages, fallback, seed=11)
        if before is not None:
            before(arbiter, stages)

        def watch(drive: Drive, decision: Decision) -> None:
            rounds.decided(drive, decision)
            if after is not None:
                after(arbiter, scene)

        drive = Drive(arbiter, work=dict(scene.work), delays=scene.delays, seed=5, watch=watch, keep=False)
        try:
            with time_limit(self.limit):
                run.finished = set(drive.run(scene.script, until=scene.until, steps=20_000).finished)
        except HungError as hung:
            run.found(Rule.RETURNS, f"{guard.asking or 'a step'} had not returned after {hung.limit}")
        except EunomiaError as error:
            run.found(Rule.SCRIPT_ENDS, str(error))
        for path in dict.fromkeys(guard.changed):
            run.found(Rule.INPUTS, path)
        run.unlike, run.forms, run.units_read = guard.unlike, guard.forms, guard.units
        return run


class _Watch:
    """Checks every call and every decision of a run against the rules."""

    def __init__(
        self, bench: Bench, run: Run, cluster: Cluster, scene: Scene, *, promises: bool, compared: bool
    ) -> None:
        self.bench = bench
        self.compared = compared
        self.run = run
        self.inputs: dict[str, Any] = {}
        self.agent = bench.stages(cluster, scene) if promises else None
        self.separable = promises and Promise.SEPARABLE in bench.contract(Stage.VALUATION).promises
        conserving = promises and Promise.WORK_CONSERVING in bench.contract(Stage.ALLOCATION).promises
        self.conserving = conserving and bench.answers(Stage.ALLOCATION) and not bench.stages().refiners
        self.separable_calls = 0
        self.keys = KeyCheck()

    # --- calls -----------------------------------------------------------------------------------------------------

    def see(self, call: Call) -> None:
        """Check a call of a stage, before the arbiter acts on the answer."""
        self.inputs |= {name: item for name, item in call.inputs.items() if name != "allocation"}
        answer = call.answer
        if isinstance(answer, Menus):
            self.inputs["menus"] = answer
        if isinstance(answer, Allocation):
            self.inputs["allocation"] = answer
        if isinstance(answer, Placement) and self.agent is not None:
            self._conserves(call, answer)
        if call.plugin != self.bench.name or answer is None:
            return
        if isinstance(answer, Menus | Valuations | Allocation | Placement):
            self.run.answered.add(call.stage)
            self.run.given.setdefault(call.stage, set()).update(_gives(call.inputs["snapshot"], answer))
        if isinstance(answer, Valuations) and _has_form(answer, BySize):
            self.run.units_given.add(answer.form(BySize).unit)
        if isinstance(answer, Valuations) and self.agent is not None:
            self._separates(call, answer)
            problem = self.keys.problem(call.inputs["snapshot"], answer)
            if problem is not None:
                self.run.found(Rule.KEYS, f"{problem}, at {call.inputs['snapshot'].now:g} s")

    def _conserves(self, call: Call, placement: Placement) -> None:
        allocation = self.inputs["allocation"]
        if self.conserving and call.inputs["allocation"] is allocation:
            snapshot, menus, offer = call.inputs["snapshot"], call.inputs["menus"], call.inputs["offer"]
            found = left_out(snapshot, menus, offer, allocation, placement)
            if found is not None:
                self.run.found(Rule.WORK_CONSERVING, f"{found}, at {snapshot.now:g} s")

    def _separates(self, call: Call, whole: Valuations) -> None:
        if not self.separable or self.agent is None:
            return
        self.separable_calls += 1
        if self.separable_calls % SEPARABLE_EVERY == 1:
            snapshot: Snapshot = call.inputs["snapshot"]
            offer: Offer = call.inputs["offer"]
            found = inseparable(self.agent, snapshot, offer, whole)
            if found is not None:
                self.run.found(Rule.SEPARABLE, f"{found}, at {snapshot.now:g} s")

    # --- decisions -------------------------------------------------------------------------------------------------

    def decided(self, drive: Drive, decision: Decision) -> None:
        """Check the decision of a step."""
        run, state = self.run, drive.arbiter.state
        if self.compared:
            written = encode(dataclasses.replace(decision, version=state.counters.version.__class__(0)))
            run.decisions.append(json.dumps(written, sort_keys=True))
        for fault in decision.faults:
            if fault.stage is not None:
                rule = next((rule for part, rule in _OF_FAULTS.items() if part in fault.what), Rule.FAULTS)
                run.found(rule, f'"{fault.plugin}" ({fault.stage.value}) in round {decision.round}: {fault.what}')
        self._ask_why(drive, decision)
        try:
            check_state(state)
        except StateError as error:
            run.found(Rule.COMMITMENT, str(error))
        self._check_orders(drive, decision)

    def _ask_why(self, drive: Drive, decision: Decision) -> None:
        """Call the plugin's ``eunomia_explain`` for its verdicts."""
        explain = None if self.agent is None else self.agent.explain.get(self.bench.name)
        if explain is None:
            return
        for waiting in decision.waiting:
            if waiting.plugin != self.bench.name or waiting.reason is None:
                continue
            try:
                answer: object = explain(drive.arbiter.snapshot(), decision, waiting.job)
            except Exception as error:
                self.run.found(Rule.EXPLAINS, f"{type(error).__name__}: {error} for {waiting.job}")
                continue
            if answer is not None and not isinstance(answer, Explanation):
                self.run.found(Rule.EXPLAINS, f"{type(answer).__name__} for {waiting.job}")

    def _check_orders(self, drive: Drive, decision: Decision) -> None:
        """Check sizes and holders independently, from the orders alone."""
        state, jobs = drive.arbiter.state, drive.arbiter.state.jobs.live
        for order in decision.transitions:
            if order.kind.effect.starts and order.job is not None:
                self.run.started.add(order.job)
            row = -1 if order.job is None else state.job_row(order.job)
            if row < 0 or order.kind.effect.ends or (order.kind is TransitionKind.PROBE and order.probe is None):
                continue
            # While a job is measured, its lease also has the GPUs to which the job returns.
            size = order.gpus.size if order.probe is None else order.probe.gpus.size
            if not jobs.least[row] <= size <= jobs.most[row]:
                what = f"{order.job} on {size} GPUs, with {jobs.least[row]} to {jobs.most[row]} asked"
                self.run.found(Rule.GANGS, what)
        ordered = [gpu for order in decision.transitions for gpu in order.gpus.tolist()]
        if len(set(ordered)) != len(ordered):
            self.run.found(Rule.COMMITMENT, f"a GPU in two orders of round {decision.round}")


def _gives(snapshot: Snapshot, answer: object) -> Iterator[Feature]:
    """Yield the features that an answer gives."""
    if isinstance(answer, Menus):
        if any(answer.sizes(job).size > 1 for job in snapshot.active.tolist()):
            yield Feature.MANY_SIZES
        if np.isfinite(answer.points.rate).any():
            yield Feature.RATES
        if np.isfinite(answer.points.cpus).any() or np.isfinite(answer.points.memory_gib).any():
            yield Feature.CPU_POINTS
        if answer.regimes is not None:
            yield Feature.REGIMES
        if answer.probe is not None:
            yield Feature.PROBES
    if isinstance(answer, Valuations):
        yield from (feature for feature, kind in FORMS.items() if _has_form(answer, kind))
    if isinstance(answer, Valuations | Allocation):
        units = {Unit.JOB: Feature.JOB_CLAIMS, Unit.APP: Feature.APP_CLAIMS}
        yield from (feature for unit, feature in units.items() if answer.claims.unit is unit)
    if isinstance(answer, Allocation):
        amounts = {Grants: Feature.GRANTS, TimeShares: Feature.TIME_SHARES, DeviceShares: Feature.DEVICE_SHARES}
        yield from (feature for kind, feature in amounts.items() if isinstance(answer.amount, kind))
        if isinstance(answer.amount, Grants) and answer.amount.pins is not None and answer.amount.pins.gpus.size:
            yield Feature.PINNED


def _has_form(valuations: Valuations, kind: type[Any]) -> bool:
    with contextlib.suppress(EunomiaError):
        return isinstance(valuations.form(kind), kind)
    return False
