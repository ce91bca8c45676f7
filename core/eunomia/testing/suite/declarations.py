"""Tests of a plugin's class, hooks and options, and of the features and promises in its contracts."""

import importlib
from collections.abc import Iterable

from eunomia.contract.contracts import CLUSTER_FEATURES, Feature, Promise
from eunomia.contract.options import PluginOptions, descriptions
from eunomia.errors import EunomiaError
from eunomia.platform.checking import check_contracts, check_plugin
from eunomia.platform.contract_check import units_of
from eunomia.testing import scenes
from eunomia.testing.bench import FORMS, Rule
from eunomia.testing.promises import unpinned
from eunomia.testing.suite.base import PolicyTests
from eunomia.testing.time_limit import time_limit
from eunomia.units import SizeUnit, Stage

IMPLIED = frozenset({Feature.GRANTS, Feature.JOB_CLAIMS, Feature.APP_CLAIMS})
"""Features that a contract need not declare: whole GPUs, and the unit of claims."""
OPTIONAL = frozenset({Feature.CPU_POINTS, Feature.RATES_BY_KIND, Feature.REGIMES, Feature.PROBES, Feature.RETUNES})
"""Features that a stage gives only if they are known, or if another stage needs them."""
TO_USERS = frozenset(
    {Promise.SHARING_INCENTIVE, Promise.ENVY_FREE, Promise.PARETO_EFFICIENT}
    | {Promise.STRATEGY_PROOF_OVER, Promise.STRATEGY_PROOF_UNDER}
)
"""Promises of an allocation to users, which the auditor checks."""
AUDITOR = "eunomia_testbed.audit.promises"
"""The module that checks promises to users; it belongs to a higher layer, so it is loaded by name."""


class DeclarationTests(PolicyTests):
    """Tests that a plugin loads through the registry, and that its stages keep their contracts."""

    def test_instances_are_compared_by_identity(self) -> None:
        """Check that two instances with equal options compare unequal, so that both can be registered."""
        kind = self.plugin
        own = [base for base in kind.__mro__[:-1] if "__eq__" in vars(base) or "__hash__" in vars(base)]
        if own:
            self._broken("a plugin must be equal to itself alone", f"{own[0].__name__} compares by value")

    def test_name_api_and_hooks_are_valid(self) -> None:
        """Check name, api and hooks, with the marks and parameters of each hook."""
        try:
            check_plugin(self.plugin, self._name())
        except EunomiaError as error:
            self._broken(error.rule, error.value or "that")

    def test_the_plugin_can_be_created_twice_from_its_options(self) -> None:
        """Check that the plugin can be created twice with the options of its profile, without side effects."""
        bench = self._bench()
        with time_limit(self.time_limit):
            one, two = bench.make(), bench.make()
        if one is two:
            self._broken("each profile must get a plugin of its own", "the same object was made twice")

    def test_options_are_documented_and_have_valid_defaults(self) -> None:
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

    def test_contracts_name_only_stages_of_the_plugin(self) -> None:
        """Check that ``contracts`` has an entry for exactly the stages of the plugin."""
        try:
            check_contracts(self._bench().make())
        except EunomiaError as error:
            self._broken(error.rule, error.value or "that")

    # --- what is declared and promised ------------------------------------------------------------------------------

    def test_stages_give_exactly_the_declared_features(self) -> None:
        """Check that each stage gives the features that it declares, and declares those that it gives."""
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

    def test_forms_read_from_a_valuation_are_declared_as_needs(self) -> None:
        """Check that a stage declares each form that it requests from a valuation as a need."""
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

    def test_users_matter_only_where_declared(self) -> None:
        """Check that, unless a stage of the profile weighs users, decisions are the same if one user owns all apps."""
        if self._bench().stages().weigh_users:
            return
        run = self._bench().once(scenes.of_one_user(scenes.town()))
        self._same(run, "a stage whose answer depends on users must declare weighs_users")

    def test_promises_are_made_by_the_right_stages(self) -> None:
        """Check that each promise is made by the right stage.

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

    def test_with_work_conservation_no_usable_gpu_is_left(self) -> None:
        """Check WORK_CONSERVING, if promised: no claim without GPUs can be placed on the GPUs left."""
        self._check(self._town(), Rule.WORK_CONSERVING)
        for scene in (scenes.one_gpu(), scenes.lost_machine(), scenes.paused()):
            self._check(self._bench().once(scene, promises=True), Rule.WORK_CONSERVING)

    def test_separable_values_equal_those_of_the_app_alone(self) -> None:
        """Check SEPARABLE, if promised: each app gets the same values on ``snapshot.only(app)``, as in its agent."""
        self._check(self._town(), Rule.SEPARABLE)

    def test_linear_keys_equal_recomputed_ones(self) -> None:
        """Check linear keys, if given, by recomputing them in every round, alone and with others."""
        self._check(self._town(), Rule.KEYS)

    def test_promises_to_users_hold(self) -> None:
        """Check promises to users, if any, on random instances, as ``eunomia audit`` does."""
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

    @classmethod
    def _compare(cls, stage: Stage, declared: Iterable[Feature], given: set[Feature]) -> None:
        rule = f"{stage.value} must declare what it gives"
        missing = sorted(feature.name for feature in set(declared) - given - OPTIONAL)
        if missing and stage in cls._town().answered:
            cls._broken(rule, f"it declares {', '.join(missing)} and never gives it")
        surplus = given - set(declared) - IMPLIED
        # A form that only follows from a finer one need not be declared.
        surplus -= {Feature.SCORES} if {Feature.BY_BUNDLE} & given else set()
        # A refiner passes on the pins of its input.
        surplus -= {Feature.PINNED} if stage is Stage.REFINE else set()
        if surplus:
            cls._broken(rule, f"it gives {', '.join(sorted(feature.name for feature in surplus))} undeclared")


def _undocumented(kind: type[PluginOptions], within: str = "") -> Iterable[str]:
    """Yield the options without a docstring or a valid default, including those of nested tables."""
    said = descriptions(kind)
    for name, field in kind.model_fields.items():
        if not said.get(name, "").strip():
            yield f"{within}{name} has no docstring"
        if field.is_required():
            yield f"{within}{name} has no default"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, PluginOptions):
            yield from _undocumented(inner, f"{within}{name}.")
