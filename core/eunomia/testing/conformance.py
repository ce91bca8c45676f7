"""The suite that any policy inherits; under plain pytest, without fixtures.

```python
class TestLottery(PolicyConformance):
    plugin = Lottery
```

A failure names the plugin, the rule and what broke it:
``lottery: what a stage is given must stay as it was, but eunomia_allocation changed snapshot.jobs.done (town)``.
"""

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

from eunomia.contract.contracts import CLUSTER_FEATURES, Feature, Promise
from eunomia.contract.events import AppArrived, Event, JobAdded
from eunomia.contract.memos import Memo
from eunomia.contract.offers import Offer
from eunomia.contract.options import PluginOptions, descriptions
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.stages import Stages
from eunomia.errors import EunomiaError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.platform.checking import check_contracts, check_plugin
from eunomia.platform.contract_check import units_of
from eunomia.platform.profiles import Profile
from eunomia.round.arbiter import Arbiter
from eunomia.testing import scenes
from eunomia.testing.bench import FORMS, Bench, Rule, Run
from eunomia.testing.builders import World
from eunomia.testing.promises import unpinned
from eunomia.testing.scenes import Scene
from eunomia.testing.time_limit import HungError, time_limit
from eunomia.units import AppId, JobId, Seconds, SizeUnit, Stage, UserId, Version

SHOWN = 3
"""Findings shown of one rule."""
IMPLIED = frozenset({Feature.GRANTS, Feature.JOB_CLAIMS, Feature.APP_CLAIMS})
"""Features that a contract need not declare: whole GPUs and the unit of claims."""
OPTIONAL = frozenset({Feature.CPU_POINTS, Feature.RATES_BY_KIND, Feature.REGIMES, Feature.PROBES, Feature.RETUNES})
"""Features that a stage gives only where they are known, or where another stage needs them."""
TO_USERS = frozenset(
    {
        Promise.SHARING_INCENTIVE,
        Promise.ENVY_FREE,
        Promise.PARETO_EFFICIENT,
        Promise.STRATEGY_PROOF_OVER,
        Promise.STRATEGY_PROOF_UNDER,
    }
)
"""Promises of an allocation to users, which the auditor judges."""
AUDITOR = "eunomia_testbed.audit.promises"
"""The module that judges promises to users; it is on a higher floor, and loaded by name as commands are."""


class PolicyConformance:
    """The test suite of a policy: inherit the class and set ``plugin``.

    Attributes:
        plugin: the class.
        options: options of the plugin; others have their defaults.
        profile: the other stages, ``{"elasticity": "range", "refiners": ["lottery", "rounding"]}``, and any other
            dotted key of a profile. Stages that are neither named nor implemented by the plugin are those of
            ``default``.
        time_limit: seconds of CPU time after which a run counts as hanging, or ten times as many seconds for
            one that sleeps or waits.
    """

    plugin: ClassVar[type[Any]]
    options: ClassVar[Mapping[str, object]] = {}
    profile: ClassVar[Mapping[str, object]] = {}
    time_limit: ClassVar[float] = 30.0

    # --- before it is asked anything --------------------------------------------------------------------------------

    def test_it_hashes_by_identity(self) -> None:
        """Two instances with equal options are not equal, so that both can be registered."""
        kind = self.plugin
        own = [base for base in kind.__mro__[:-1] if "__eq__" in vars(base) or "__hash__" in vars(base)]
        if own:
            self._broken("a plugin must be equal to itself alone", f"{own[0].__name__} compares by value")

    def test_its_hooks_are_those_that_are_called(self) -> None:
        """Check name, api, hooks, their marks and their parameters."""
        try:
            check_plugin(self.plugin, self._name())
        except EunomiaError as error:
            self._broken(error.rule, error.value or "that")

    def test_it_is_made_from_its_options_alone(self) -> None:
        """Check that the plugin can be made twice with the options of its profile, without side effects."""
        bench = self._bench()
        with time_limit(self.time_limit):
            one, two = bench.make(), bench.make()
        if one is two:
            self._broken("each profile must get a plugin of its own", "the same object was made twice")

    def test_its_options_are_documented(self) -> None:
        """Check that each option has a docstring and a valid default."""
        if not (self.plugin.__doc__ or "").strip():
            self._broken("a plugin must say in its docstring what it does", "none")
        kind = getattr(self.plugin, "options_type", None)
        if kind is None:
            return
        missing = list(_undocumented(kind))
        if missing:
            self._broken("an option must have a docstring below it and a default", ", ".join(missing))
        try:
            kind()
        except ValueError as error:
            self._broken("the defaults of all options must be valid together", str(error).splitlines()[0])

    def test_its_contracts_are_of_its_stages(self) -> None:
        """Check that contracts map the plugin's stages to what these need, give and promise."""
        try:
            check_contracts(self._bench().make())
        except EunomiaError as error:
            self._broken(error.rule, error.value or "that")

    # --- in an ordinary round ---------------------------------------------------------------------------------------

    def test_no_round_is_faulty(self) -> None:
        """Check that every stage returns the type of its hook, and that the arbiter can carry the answer out."""
        self._hold(self._town(), Rule.FAULTS, Rule.SCRIPT_ENDS, Rule.RETURNS)

    def test_gangs_run_whole(self) -> None:
        """Check that each job gets a size on its menu, or nothing."""
        self._hold(self._town(), Rule.GANGS)

    def test_nothing_is_overcommitted(self) -> None:
        """Check that each GPU has one holder, and that CPUs and memory suffice."""
        self._hold(self._town(), Rule.COMMITMENT)

    def test_it_wakes_later_than_now(self) -> None:
        """Check that a plugin never requests a wake-up at the present time, which would repeat without end."""
        self._hold(self._town(), Rule.WAKES)

    def test_verdicts_are_of_the_closed_set(self) -> None:
        """Check that each verdict is on an existing claim, with a reason of the closed set."""
        self._hold(self._town(), Rule.REASONS)

    def test_inputs_are_untouched(self) -> None:
        """Check that columns, menus, offers and memos are unchanged after a call, also through the base of a view."""
        self._hold(self._town(), Rule.INPUTS)

    def test_it_explains_its_verdicts(self) -> None:
        """Check that ``eunomia_explain``, if implemented, answers for each job that the plugin gave no GPUs."""
        self._hold(self._town(), Rule.EXPLAINS)

    def test_it_serves_two_gpu_types(self) -> None:
        """Check all rules with two GPU types, unless a stage declares that it needs one type."""
        try:
            self._bench().stages(Cluster.parse(scenes.two_kinds().cluster))
        except InputErrors:
            return
        self._hold_all(self._bench().once(scenes.two_kinds(), promises=True))

    # --- what decisions may follow from -----------------------------------------------------------------------------

    def test_the_same_seed_gives_the_same_decisions(self) -> None:
        """Check that a second run with the same seed makes the same decisions."""
        again = self._bench().once(scenes.town(), "again")
        self._same(again, "the same seed must give the same decisions")

    def test_cold_and_warm_caches_are_equal(self) -> None:
        """Check that plugins created for every round make the same decisions as plugins kept between rounds."""

        def recreate(arbiter: Arbiter, scene: Scene) -> None:
            arbiter.use(self._bench().stages(arbiter.state.cluster, scene))

        cold = self._bench().once(scenes.town(), "cold", after=recreate)
        rule = "a new plugin must decide like one that was called before: it keeps more than caches on itself"
        self._same(cold, rule)

    def test_nothing_is_kept_between_arbiters(self) -> None:
        """Check that plugins that serve a second arbiter between the rounds of the first make the same decisions."""
        shared: list[Stages] = []
        others: list[Arbiter] = []

        def lend(arbiter: Arbiter, stages: Stages) -> None:
            shared.append(stages)
            others.append(_other(stages, self._bench()))

        def between(arbiter: Arbiter, scene: Scene) -> None:
            _one_more(others[0])

        run = self._bench().once(scenes.town(), "shared", twice=True, before=lend, after=between)
        if run.unlike:
            self._broken("a stage that is asked twice in a row must answer alike", _listed(run.unlike))
        rule = "a plugin must decide alike if another arbiter called it in between: it keeps more than caches on itself"
        self._same(run, rule)

    def test_memos_are_read_back_from_bytes(self) -> None:
        """Check that decisions are equal with memos that are read from their own bytes after every round."""
        types = {(name, stage): kind for name, stage, kind in self._bench().stages().memo_types}

        def reread(arbiter: Arbiter, scene: Scene) -> None:
            for key, memo in list(arbiter.state.memos.items()):
                if key[0] == self._name():
                    arbiter.state.memos[key] = self._read_back(key, memo, types)

        run = self._bench().once(scenes.town(), "read back", after=reread)
        self._same(run, "memos must hold all that matters: read back from their bytes they must lead to the same")

    # --- what is declared and promised ------------------------------------------------------------------------------

    def test_it_gives_what_it_declares(self) -> None:
        """Check that a stage gives each feature that it declares, and declares each that it gives beyond whole GPUs."""
        runs = [self._town(), self._bench().once(scenes.one_gpu()), self._bench().once(scenes.lost_machine())]
        for stage in self._answered():
            gives = self._bench().contract(stage).gives - CLUSTER_FEATURES
            given = set[Feature]().union(*(run.given.get(stage, set()) for run in runs))
            self._compare(stage, gives, given)
        if Stage.VALUATION in self._answered():
            units = set[SizeUnit]().union(*(run.units_given for run in runs))
            declared = units_of(self._bench().contract(Stage.VALUATION))
            if not units <= declared:
                given_units = ", ".join(sorted(unit.name for unit in units - declared))
                self._broken("valuation must declare the units of its values by size", f"it gives {given_units}")

    def test_it_needs_what_it_asks_for(self) -> None:
        """Check that a stage declares as a need each form that it reads from a valuation."""
        declared = {feature for stage in self._answered() for feature in self._bench().contract(stage).needs}
        own = Stage.VALUATION in self._answered()
        for feature, form in FORMS.items():
            if form in self._town().forms and feature not in declared and not own:
                self._broken("a stage must declare what it needs", f"{feature.name} is read and not declared")
        if Promise.READS_NO_VALUATION in self._bench().contract(Stage.ALLOCATION).promises and self._town().forms:
            forms = ", ".join(sorted(form.__name__ for form in self._town().forms))
            self._broken("allocation must not read what it says it does not read", forms)
        units = self._town().units_read - self._bench().contract(Stage.ALLOCATION).units
        if units:
            names = ", ".join(sorted(unit.name for unit in units))
            self._broken("allocation must declare the units that it reads", f"it reads {names}")

    def test_promises_are_of_their_stages(self) -> None:
        """Check the stage of each promise.

        Allocations promise WORK_CONSERVING, valuations SEPARABLE, placements HONOURS_PINS.
        """
        stages_of = {
            Promise.WORK_CONSERVING: (Stage.ALLOCATION, Stage.REFINE),
            Promise.SEPARABLE: (Stage.VALUATION,),
            Promise.READS_NO_VALUATION: (Stage.ALLOCATION,),
            Promise.HONOURS_PINS: (Stage.PLACEMENT,),
            **dict.fromkeys(TO_USERS, (Stage.ALLOCATION,)),
        }
        for stage in self._answered():
            for promise in self._bench().contract(stage).promises:
                if stage not in stages_of.get(promise, (stage,)):
                    self._broken(f"{promise.name} must be promised by its stage", stage.value)

    def test_work_conserving_leaves_no_usable_gpu(self) -> None:
        """Check WORK_CONSERVING, if promised: no claim without GPUs can be placed on the GPUs left."""
        self._hold(self._town(), Rule.WORK_CONSERVING)
        for scene in (scenes.one_gpu(), scenes.lost_machine(), scenes.paused()):
            self._hold(self._bench().once(scene, promises=True), Rule.WORK_CONSERVING)

    def test_separable_values_stand_alone(self) -> None:
        """Check SEPARABLE, if promised: each app has the same values on ``snapshot.only(app)``, as in its agent."""
        self._hold(self._town(), Rule.SEPARABLE)

    def test_linear_keys_hold(self) -> None:
        """Check linear keys, if given: each is computed again in every round, alone and among others, and compared."""
        self._hold(self._town(), Rule.KEYS)

    def test_promises_to_users_hold(self) -> None:
        """Check promises to users, if there are any: instances are drawn and judged as by ``eunomia audit``."""
        promised = self._bench().contract(Stage.ALLOCATION).promises if Stage.ALLOCATION in self._answered() else ()
        if TO_USERS.isdisjoint(promised):
            return
        judge = importlib.import_module(AUDITOR).broken_promises
        for rule, counterexample in judge(self._bench().profile, promised, seconds=self.time_limit):
            self._broken(rule, counterexample)

    def test_pins_are_honoured(self) -> None:
        """Check HONOURS_PINS, if promised: random pins that fit are placed on their machines."""
        bench = self._bench()
        if not bench.answers(Stage.PLACEMENT):
            return
        if Promise.HONOURS_PINS in bench.contract(Stage.PLACEMENT).promises:
            found = unpinned(bench.stages())
            if found is not None:
                self._broken("a HONOURS_PINS placement must place pinned GPUs on the machines named", found)

    # --- adversarial worlds -----------------------------------------------------------------------------------------

    def test_one_gpu(self) -> None:
        """Check all rules on a cluster of one GPU."""
        self._hold_all(self._bench().once(scenes.one_gpu()))

    def test_no_jobs(self) -> None:
        """Check all rules on a cluster without apps, and with one app without jobs."""
        for world in (World("2x4 V100 16cpu 64GB"), World("2x4 V100 16cpu 64GB").app("ana")):
            self._ask(world)

    def test_all_gangs_are_too_large(self) -> None:
        """Check all rules if every gang is larger than the cluster: no job starts."""
        run = self._bench().once(scenes.too_large())
        self._hold_all(run)
        if run.started:
            self._broken("a gang larger than the cluster must wait", f"{sorted(run.started)} started")

    def test_a_machine_is_lost_in_mid_round(self) -> None:
        """Check all rules if machines are lost while offers, starts and releases are in transit."""
        self._hold_all(self._bench().once(scenes.lost_machine()))

    def test_everyone_is_paused(self) -> None:
        """Check all rules if all jobs stop, and some come back."""
        self._hold_all(self._bench().once(scenes.paused()))

    def test_jobs_adapt(self) -> None:
        """Check all rules if jobs change their batch sizes, as announced or not."""
        self._hold_all(self._bench().once(scenes.adapting()))

    def test_ten_thousand_jobs(self) -> None:
        """Check that a round with ten thousand jobs ends; its time is not judged."""
        self._hold_all(self._bench().once(scenes.many()))

    # --- how --------------------------------------------------------------------------------------------------------

    @classmethod
    def _name(cls) -> str:
        given = getattr(cls.plugin, "name", None)
        return given if isinstance(given, str) else cls.plugin.__name__

    @classmethod
    def _bench(cls) -> Bench:
        """Return the bench of this class, made once."""
        if "_made" not in vars(cls):
            try:
                made = Bench(cls.plugin, options=cls.options, profile=cls.profile, limit=cls.time_limit)
            except EunomiaError as error:
                cls._broken("a policy must load in its profile", str(error))
            cls._made = made
        return cls._made

    _made: ClassVar[Bench]

    @classmethod
    def _town(cls) -> Run:
        return cls._bench().once(scenes.town(), "first", promises=True)

    @classmethod
    def _answered(cls) -> list[Stage]:
        return [stage for stage in Stage if cls._bench().answers(stage)]

    @classmethod
    def _broken(cls, rule: str, what: str) -> NoReturn:
        raise AssertionError(f"{cls._name()}: {rule}, but {what}")

    @classmethod
    def _hold(cls, run: Run, *rules: Rule) -> None:
        """Fail if a run violated one of these rules."""
        for rule in rules:
            if rule in run.problems:
                cls._broken(rule.value, _listed(run.problems[rule]))

    @classmethod
    def _hold_all(cls, run: Run) -> None:
        cls._hold(run, *Rule)

    @classmethod
    def _same(cls, run: Run, rule: str) -> None:
        """Fail if a run of the town decided differently from the first one."""
        cls._hold(run, Rule.RETURNS, Rule.SCRIPT_ENDS)
        first = cls._town().decisions
        if run.decisions == first:
            return
        pairs = enumerate(zip(first, run.decisions, strict=False))
        at = next((step for step, (left, right) in pairs if left != right), min(len(first), len(run.decisions)))
        cls._broken(rule, f"step {at + 1} of {len(first)} differs (town)")

    @classmethod
    def _compare(cls, stage: Stage, declared: Iterable[Feature], given: set[Feature]) -> None:
        rule = f"{stage.value} must declare what it gives"
        missing = sorted(feature.name for feature in set(declared) - given - OPTIONAL)
        if missing and cls._may_give(stage):
            cls._broken(rule, f"it declares {', '.join(missing)} and never gives it")
        surplus = given - set(declared) - IMPLIED
        # A form that only follows from a finer one need not be declared.
        surplus -= {Feature.SCORES} if {Feature.BY_BUNDLE} & given else set()
        # A refiner hands on the pins that it was given.
        surplus -= {Feature.PINNED} if stage is Stage.REFINE else set()
        if surplus:
            cls._broken(rule, f"it gives {', '.join(sorted(feature.name for feature in surplus))} undeclared")

    @classmethod
    def _may_give(cls, stage: Stage) -> bool:
        """Return whether the stage was called at all."""
        return stage in cls._town().answered

    @classmethod
    def _read_back(cls, key: tuple[str, Stage], memo: Memo, types: Mapping[tuple[str, Stage], type[Memo]]) -> Memo:
        if key not in types:
            cls._broken("a plugin must name the types of its memos in memo_types", f"none of {key[1].value}")
        data = memo.to_bytes()
        if not isinstance(data, bytes) or data != memo.to_bytes():
            cls._broken("a memo must always write the same bytes", f"it does not ({key[1].value})")
        try:
            read = types[key].from_bytes(memo.version, data)
        except Exception as error:
            cls._broken("a memo must be read from its own bytes", f"{type(error).__name__}: {error}")
        if read.to_bytes() != data:
            cls._broken("a memo read from its bytes must write the same", f"it does not ({key[1].value})")
        return read

    def _ask(self, world: World) -> None:
        """Call all stages for a world in which the arbiter itself would call none."""
        stages = self._bench().stages()
        snapshot, offer = world.snapshot(now=1.0), world.offer(now=1.0)
        try:
            with time_limit(self.time_limit):
                placed = _through(stages, snapshot, offer)
        except HungError as hung:
            self._broken(Rule.RETURNS.value, f"it had not after {hung.limit} (no jobs)")
        except Exception as error:
            self._broken(Rule.FAULTS.value, f"{type(error).__name__}: {error} (no jobs)")
        if placed:
            self._broken("no job must get GPUs where there is none", f"{placed} are placed")


def _through(stages: Stages, snapshot: Snapshot, offer: Offer) -> int:
    """Call the stages in order; return the number of GPUs placed."""
    menus = stages.elasticity(snapshot)
    if stages.offer is not None:
        empty = dataclasses.replace(offer, gpus=np.empty(0, np.int64), free_gpus=0)
        offer = stages.offer(snapshot, menus, offer, stages.valuation(snapshot, menus, empty))
    allocation = stages.allocation(snapshot, menus, offer, stages.valuation(snapshot, menus, offer))
    for refine in stages.refiners:
        allocation = refine(snapshot, menus, offer, allocation)
    placement = stages.placement(snapshot, menus, offer, allocation)
    return int(placement.gpus.size)


def _undocumented(kind: type[PluginOptions], within: str = "") -> Iterable[str]:
    """Yield options without a docstring or a default, including those of nested tables."""
    said = descriptions(kind)
    for name, field in kind.model_fields.items():
        if not said.get(name, "").strip():
            yield f"{within}{name} has no docstring"
        if field.is_required():
            yield f"{within}{name} has no default"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, PluginOptions):
            yield from _undocumented(inner, f"{within}{name}.")


def _other(stages: Stages, bench: Bench) -> Arbiter:
    """Return a second arbiter with the same plugins; its versions are far off, so that plugins rebuild their caches."""
    cluster = Cluster.parse("1x4 V100 16cpu 64GB")
    fallback = Profile.fallback(registry=bench.registry).stages(cluster)
    made = Arbiter(cluster, stages, fallback, seed=3)
    made.state.version = Version(1_000_000)
    return made


def _one_more(arbiter: Arbiter) -> None:
    """Add another app to the second arbiter, which triggers a round."""
    number, now = arbiter.state.arrivals, Seconds(arbiter.state.now + 1.0)
    app = AppId(f"other{number}")
    events: list[Event] = [
        AppArrived(app=app, user=UserId("zoe"), divides=False),
        JobAdded(job=JobId(f"{app}/0"), app=app, least=1, most=2, iterations=50.0, seconds_per_iteration=0.1),
    ]
    arbiter.step(now, events)


def _listed(found: list[str]) -> str:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more
