"""Mutation check: a stage that takes menus, valuations or an allocation decides otherwise when they are perturbed.

A stage that is handed an input and never looks at it is a monolith behind a pass-through. So each stage of each
built-in plugin is asked twice on one crowded snapshot: with what the stages before it answered, and with that input
perturbed. ``READS`` says which perturbations of which stage change the answer; every other must leave it as it was.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from companions import companions
from eunomia import Allocation, ByCurve, BySize, Menus, Offer, Placement, Profile, Scores, Snapshot, Stage, Valuations
from eunomia.contract.menus import announced
from eunomia.contract.stages import Stages
from eunomia.contract.verdicts import Verdicts
from eunomia.platform.registry import DEFAULT_PLUGINS, STAGE_OF_HOOK, Registry
from mutations.families import COMPANIONS, READS, VARIANTS, world_of
from mutations.perturbations import PERTURBATIONS

REGISTRY = Registry.find(installed=False)
HOOK_OF = {stage: hook for hook, stage in STAGE_OF_HOOK.items()}

NOW = 100.0

PASSED_ON = {(plugin, Stage.VALUATION): {"menus"} for plugin in ("edf", "fifo", "las")}
"""Inputs that an order by key passes on to ``Valuations.by_job`` and whose key does not read them."""
BY_OPTION: Mapping[tuple[str, Stage], set[str]] = {("synergy_tune", Stage.PLACEMENT): {"menus"}}
"""Inputs that a stage reads with an option only: exchanges, which `synergy/test_exchanges.py` tests."""


class Inputs(NamedTuple):
    """The answers of the stages before the one under test."""

    stages: Stages
    snapshot: Snapshot
    offer: Offer
    menus: Menus
    valuations: Valuations
    given: Allocation
    """Of the allocation."""
    refined: Allocation
    """After the last refiner."""

    def of(self, stage: Stage) -> dict[str, Any]:
        """The inputs of a stage, by argument."""
        allocation = self.given if stage is Stage.REFINE else self.refined
        return {"menus": self.menus, "valuations": self.valuations, "allocation": allocation}

    def ask(self, stage: Stage, plugin: str, **inputs: Any) -> object:
        """Call the stage, and return its decision as plain values."""
        menus, offer, snapshot = inputs["menus"], self.offer, self.snapshot
        if stage is Stage.VALUATION:
            return decided(self.stages.valuation(snapshot, menus, offer))
        if stage is Stage.ALLOCATION:
            return decided(self.stages.allocation(snapshot, menus, offer, inputs["valuations"]))
        if stage is Stage.REFINE:
            refine = self.stages.refiners[self.stages.refiner_names.index(plugin)]
            return decided(refine(snapshot, menus, offer, inputs["allocation"]))
        return decided(self.stages.placement(snapshot, menus, offer, inputs["allocation"]))


def inputs(plugin: str, settings: Mapping[str, object]) -> Inputs:
    """Run the stages of a profile around a plugin once."""
    world = world_of(plugin)
    others = COMPANIONS.get(plugin) or {f"stages.{key}": item for key, item in companions(plugin, REGISTRY).items()}
    stages = Profile.load(plugin, registry=REGISTRY, settings={**others, **settings}).stages(world.cluster)
    snapshot, offer = world.snapshot(now=NOW), world.offer(NOW)
    menus = stages.elasticity(snapshot)
    if menus.regimes is None:  # as the arbiter does
        menus = dataclasses.replace(menus, regimes=announced(snapshot.coming_regimes))
    valuations = stages.valuation(snapshot, menus, offer)
    if stages.offer is not None:
        offer = stages.offer(snapshot, menus, offer, valuations)
        valuations = stages.valuation(snapshot, menus, offer)
    given = stages.allocation(snapshot, menus, offer, valuations)
    before = refined = given
    for name, refine in zip(stages.refiner_names, stages.refiners, strict=True):
        before = refined if name == plugin else before
        refined = refine(snapshot, menus, offer, refined)
    return Inputs(stages, snapshot, offer, menus, valuations, before, refined)


def decided(answer: Valuations | Allocation | Placement) -> object:
    """The decision in an answer, as comparable values; memos and records are not part of it."""
    if isinstance(answer, Valuations):
        forms = [answer.form(BySize) if isinstance(form, ByCurve) else form for form in answer.forms]
        ranked = [form.ranking() if isinstance(form, Scores) else _plain(form) for form in forms]
        return _plain((answer.claims.rows, ranked))
    if isinstance(answer, Allocation):
        return _plain((answer.claims, answer.amount, answer.order, answer.starts_at, _by_row(answer.verdicts)))
    served = [(int(claim), answer.of(at).tolist()) for at, claim in enumerate(answer.claim)]
    return sorted(served), _by_row(answer.verdicts), _plain((answer.cpus, answer.memory_gib, answer.retunes))


def _by_row(verdicts: Verdicts) -> list[tuple[int, int]]:
    return sorted(zip(verdicts.rows.tolist(), verdicts.reasons.tolist(), strict=True))


def _plain(item: Any) -> Any:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: _plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    if isinstance(item, np.ndarray):
        return [
            round(each, 9) if isinstance(each, float) else each for each in np.nan_to_num(item, nan=-1).ravel().tolist()
        ]
    return [_plain(each) for each in item] if isinstance(item, tuple | list) else repr(item)


# --- the check --------------------------------------------------------------------------------------------------------


def taken(plugin: str, stage: Stage) -> set[str]:
    """The perturbed inputs that a stage's method takes as arguments."""
    parameters = inspect.signature(getattr(REGISTRY.load(plugin), HOOK_OF[stage])).parameters
    return set(parameters) & set(PERTURBATIONS)


def changes(plugin: str, stage: Stage, settings: Mapping[str, object]) -> set[str]:
    """The perturbations that change what a stage decides."""
    made = inputs(plugin, settings)
    same = made.of(stage)
    usual = made.ask(stage, plugin, **same)
    assert made.ask(stage, plugin, **same) == usual
    return {
        name
        for argument in taken(plugin, stage)
        for name, perturb in PERTURBATIONS[argument].items()
        if made.ask(stage, plugin, **{**same, argument: perturb(same[argument])}) != usual
    }


STAGES = [
    (plugin, stage) for plugin in sorted(DEFAULT_PLUGINS) for stage in REGISTRY.stages(plugin) if taken(plugin, stage)
]


@pytest.mark.parametrize(("plugin", "stage"), STAGES, ids=[f"{plugin}-{stage.value}" for plugin, stage in STAGES])
def test_a_stage_depends_on_every_input_that_it_takes(plugin: str, stage: Stage) -> None:
    changed = changes(plugin, stage, {})
    not_read = BY_OPTION.get((plugin, stage), set()) | PASSED_ON.get((plugin, stage), set())
    for argument in taken(plugin, stage) - not_read:
        assert changed & set(PERTURBATIONS[argument]), f"{plugin} takes {argument} and does not read them"
    if (plugin, stage) in READS:
        assert changed == READS[plugin, stage]


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_option_makes_a_stage_depend_on_more_inputs(variant: str) -> None:
    plugin, stage, settings, expected = VARIANTS[variant]
    assert changes(plugin, stage, settings) == expected


def test_the_table_of_inputs_lists_all_stages_of_its_families() -> None:
    assert set(READS) <= set(STAGES)
    listed = {_family(plugin) for plugin, _ in READS}
    of_families = {(plugin, stage) for plugin, stage in STAGES if _family(plugin) in listed}
    assert of_families - PASSED_ON.keys() == set(READS)


def _family(plugin: str) -> str:
    return DEFAULT_PLUGINS[plugin].split(".")[1].partition(":")[0]


EXAMPLES = {"types": "oef_speedups", "cpus": "sensitivity", "ranges": "synergy_tune"}
"""Plugins whose inputs a perturbation changes, where those of ``ordered`` have nothing for it."""


@pytest.mark.parametrize("name", [name for table in PERTURBATIONS.values() for name in table])
def test_a_perturbation_has_a_description_and_does_not_change_its_input(name: str) -> None:
    argument = next(argument for argument, table in PERTURBATIONS.items() if name in table)
    perturb = PERTURBATIONS[argument][name]
    assert perturb.__doc__
    given = inputs(EXAMPLES.get(name, "ordered"), {}).of(Stage.PLACEMENT)[argument]
    before = _plain(given)
    assert _plain(perturb(given)) != before
    assert _plain(given) == before
