"""Mutation check: a stage that takes menus, valuations or an allocation decides otherwise when they are perturbed.

A stage that is handed an input and never looks at it is a monolith behind a pass-through. So each stage of each
built-in plugin is asked twice on one crowded snapshot: with what the stages before it answered, and with that input
perturbed. ``READS`` says which perturbations of which stage change the answer; every other must leave it as it was.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from eunomia import (
    Allocation,
    ByBundle,
    ByCurve,
    BySize,
    Grants,
    Menus,
    Offer,
    Placement,
    Profile,
    Scores,
    Snapshot,
    Stage,
    Valuations,
)
from eunomia.contract.allocations import DeviceShares, TimeShares
from eunomia.contract.stages import Stages
from eunomia.contract.verdicts import Verdicts
from eunomia.platform.registry import DEFAULT_PLUGINS, STAGE_OF_HOOK, Registry
from eunomia.testing.builders import World
from eunomia.testing.companions import companions

REGISTRY = Registry.find(installed=False)
HOOK_OF = {stage: hook for hook, stage in STAGE_OF_HOOK.items()}

# --- perturbations ----------------------------------------------------------------------------------------------------


def sizes(menus: Menus) -> Menus:
    """Every size of every menu is half of what it was, at least 1."""
    points = dataclasses.replace(menus.points, gpus=np.maximum(menus.points.gpus // 2, 1))
    return dataclasses.replace(menus, points=points)


def rates(menus: Menus) -> Menus:
    """Every third curve is forty times as slow, the next one four times."""
    factor = np.array([40.0, 4.0, 1.0])[menus.points.curve % 3]
    return dataclasses.replace(menus, points=dataclasses.replace(menus.points, rate=menus.points.rate / factor))


def values(valuations: Valuations) -> Valuations:
    """An order is reversed; tables of bids are assigned to other claims."""
    return dataclasses.replace(valuations, forms=tuple(_turned(form) for form in valuations.forms))


def _turned(form: Any) -> Any:
    if isinstance(form, Scores):
        return Scores(score=-form.score)
    if isinstance(form, ByCurve):
        return _turned(form.derive(BySize))
    if isinstance(form, ByBundle):
        kept = [list(form.bundles(claim)) if claim else [] for claim in range(form.now.size)]
        return ByBundle.of(form.classes, form.now, kept)
    columns = {field.name: getattr(form, field.name) for field in dataclasses.fields(form)}
    dealt = {name: np.roll(item, 1, axis=0) for name, item in columns.items() if np.ndim(item) and name != "claim"}
    return dataclasses.replace(form, **dealt)


def order(allocation: Allocation) -> Allocation:
    """The order of service is reversed."""
    return dataclasses.replace(allocation, order=allocation.order[::-1].copy())


def amounts(allocation: Allocation) -> Allocation:
    """Each claim gets the grant of the one before it; pins stay where they were."""
    amount = allocation.amount
    if isinstance(amount, Grants):
        rolled: Any = dataclasses.replace(amount, gpus=np.roll(amount.gpus, 1), pins=None)
    elif isinstance(amount, TimeShares):
        rolled = TimeShares(share=np.roll(amount.share, 1, axis=0), since=amount.since)
    else:
        rolled = DeviceShares(gpus=np.roll(amount.gpus, 1, axis=0), since=amount.since)
    return dataclasses.replace(allocation, amount=rolled)


PERTURBATIONS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "menus": {"sizes": sizes, "rates": rates},
    "valuations": {"values": values},
    "allocation": {"order": order, "amounts": amounts},
}

# --- what each stage reads -------------------------------------------------------------------------------------------

READS: Mapping[tuple[str, Stage], set[str]] = {
    # Remaining time is work over the rate of the largest size.
    ("srtf", Stage.VALUATION): {"rates"},
    # Times that size.
    ("srsf", Stage.VALUATION): {"rates", "sizes"},
    ("themis_rho", Stage.VALUATION): {"rates"},
    # Sizes matter to the length of the path alone, which is the longest job's here.
    ("index_rule", Stage.VALUATION): {"rates"},
    # What is on the menu, and what it is worth.
    ("marginal_gain", Stage.ALLOCATION): {"sizes", "values"},
    # Rates matter where they were measured apart and near.
    ("gandiva", Stage.ALLOCATION): {"sizes", "values"},
    # Sizes decide what fits, the order decides which job is first; rates have no effect without backfilling.
    ("ordered", Stage.ALLOCATION): {"sizes", "values"},
    ("max_min", Stage.ALLOCATION): {"sizes", "values"},
    ("max_min_time", Stage.ALLOCATION): {"sizes", "values"},
    # Shares of users do not depend on an order: it takes none.
    ("max_min_users", Stage.ALLOCATION): {"sizes"},
    ("drf", Stage.ALLOCATION): {"sizes", "values"},
    ("isolated", Stage.ALLOCATION): {"sizes", "values"},
    # The order of an allocation breaks ties between jobs of one priority.
    ("time_sharing", Stage.REFINE): {"sizes", "order", "amounts"},
    # The claim furthest behind comes first, whatever the order of the shares.
    ("rounding", Stage.REFINE): {"sizes", "amounts"},
    ("divide", Stage.REFINE): {"sizes", "order", "amounts"},
    # Menus matter to a placement where a job cannot grow: it stays if it can run at the size that it has.
    ("packed", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("spread", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("random", Stage.PLACEMENT): {"sizes", "order", "amounts"},
    ("consolidated", Stage.PLACEMENT): {"sizes", "order", "amounts"},
}
"""By plugin and stage. Families with tests of their own are held to the rule that each input they take matters."""

VARIANTS: Mapping[str, tuple[str, Stage, Mapping[str, object], set[str]]] = {
    "backfilling": ("ordered", Stage.ALLOCATION, {"plugins.ordered.on_misfit": "easy"}, {"sizes", "rates", "values"}),
    "booking": (
        "ordered",
        Stage.ALLOCATION,
        {"plugins.ordered.on_misfit": "conservative"},
        {"sizes", "rates", "values"},
    ),
}
"""Options that make a stage depend on more inputs."""

COMPANIONS: Mapping[str, Mapping[str, object]] = {
    "divide": {
        "stages.elasticity": "range",
        "stages.valuation": "themis",
        "stages.allocation": "themis",
        "stages.refiners": ["divide"],
    },
    "random": {"stages.valuation": "fifo"},
    "app_order": {"plugins.app_order.by": "remaining_service"},
    "marginal_gain": {
        "stages.elasticity": "range",
        "stages.valuation": "slaq",
        "stages.allocation": "marginal_gain",
        "plugins.slaq.starve": True,
        "plugins.slaq.epoch": "5s",
    },
}
"""Stages that give a plugin something to do, where the smallest profile that loads would not."""


# --- the crowded snapshot ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def busy_world() -> World:
    """Twelve GPUs, eight of them free or on offer, and many jobs of all sizes and lengths, of three users."""
    world = World("3x4 V100 16cpu 64GB", seed=5)
    for number, (user, weight) in enumerate((("ana", 1.0), ("bo", 2.0), ("cy", 1.0), ("ana", 0.5))):
        world.app(f"app{number}", user=user, weight=weight, arrived=float(number), contention=3.0)
    table = ((1, 2, 90), (2, 4, 40), (1, 1, 300), (3, 4, 70), (1, 4, 20), (2, 2, 150), (1, 1, 30), (1, 3, 10))
    for number, (least, most, seconds) in enumerate(table):
        world.job(
            f"app{number % 4}/{number}",
            gpus=(least, most),
            arrived=float(number),
            iterations=10.0 * seconds,
            seconds_per_iteration=0.1 * most,
            received=float(50 * (number % 3)),
        )
    # One that holds two GPUs on offer and could use four, but finds no CPUs for more.
    world.job("grow/1", gpus=(2, 4), arrived=-1.0, cpus=8.0, iterations=50000.0, seconds_per_iteration=0.2)
    world.holds("grow/1", 0, 1, ends_at=50.0, cpus=8.0)
    world.job("run/1", gpus=2, iterations=900.0, since=0.0, rate=2.0).holds("run/1", 4, 5, cpus=6.0)
    world.job("run/2", gpus=2, iterations=300.0, since=0.0, rate=2.0).holds("run/2", 8, 9, cpus=6.0)
    return world


NOW = 100.0


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
    others = COMPANIONS.get(plugin) or {f"stages.{key}": item for key, item in companions(plugin, REGISTRY).items()}
    stages = Profile.load(plugin, registry=REGISTRY, settings={**others, **settings}).stages(busy_world().cluster)
    snapshot, offer = busy_world().snapshot(now=NOW), busy_world().offer(NOW)
    menus = stages.elasticity(snapshot)
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
    return sorted(served), _by_row(answer.verdicts)


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
    for argument in taken(plugin, stage):
        assert changed & set(PERTURBATIONS[argument]), f"{plugin} takes {argument} and does not read them"
    if (plugin, stage) in READS:
        assert changed == READS[plugin, stage]


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_option_makes_a_stage_depend_on_more_inputs(variant: str) -> None:
    plugin, stage, settings, expected = VARIANTS[variant]
    assert changes(plugin, stage, settings) == expected


def test_the_table_names_stages_that_there_are_and_no_baseline_is_missing() -> None:
    assert set(READS) <= set(STAGES)
    families = {plugin for plugin in DEFAULT_PLUGINS if _family(plugin) in _BASELINES}
    assert {(plugin, stage) for plugin, stage in STAGES if plugin in families} == set(READS)


_BASELINES = ("orders", "allocations", "placement", "elasticity", "refine", "random")


def _family(plugin: str) -> str:
    return DEFAULT_PLUGINS[plugin].split(".")[1].partition(":")[0]


@pytest.mark.parametrize("name", [name for table in PERTURBATIONS.values() for name in table])
def test_a_perturbation_is_described_and_leaves_its_input_alone(name: str) -> None:
    argument = next(argument for argument, table in PERTURBATIONS.items() if name in table)
    perturb = PERTURBATIONS[argument][name]
    assert perturb.__doc__
    given = inputs("ordered", {}).of(Stage.PLACEMENT)[argument]
    before = _plain(given)
    assert _plain(perturb(given)) != before
    assert _plain(given) == before
