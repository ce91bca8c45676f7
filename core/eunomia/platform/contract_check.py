"""The contract check: earlier stages and the cluster must give each stage of a profile the features that it needs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from eunomia.contract.contracts import CLUSTER_FEATURES, NO_CONTRACT, Contract, Feature, Promise
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.units import SizeUnit, Stage
from eunomia.words import list_of


class Step(NamedTuple):
    """One stage of a profile, with its plugin and contract."""

    stage: Stage
    plugin: str
    contract: Contract

    def __str__(self) -> str:
        return f'{"refiner" if self.stage is Stage.REFINE else self.stage.value} "{self.plugin}"'


Others = Callable[[Stage, Callable[[Contract], bool]], Iterable[str]]
"""Returns the names of plugins that implement a stage with a suitable contract, for error messages."""

_GIVERS: Mapping[Feature, Stage] = {
    Feature.MANY_SIZES: Stage.ELASTICITY,
    Feature.RATES: Stage.ELASTICITY,
    Feature.CPU_POINTS: Stage.ELASTICITY,
    Feature.REGIMES: Stage.ELASTICITY,
    Feature.PROBES: Stage.ELASTICITY,
    Feature.SCORES: Stage.VALUATION,
    Feature.BY_TYPE: Stage.VALUATION,
    Feature.BY_SIZE: Stage.VALUATION,
    Feature.BY_BUNDLE: Stage.VALUATION,
    Feature.OVER_TIME: Stage.VALUATION,
    Feature.TIME_SHARES: Stage.ALLOCATION,
    Feature.DEVICE_SHARES: Stage.ALLOCATION,
    Feature.PINNED: Stage.ALLOCATION,
    Feature.RETUNES: Stage.PLACEMENT,
}
_FORMS = frozenset(feature for feature, stage in _GIVERS.items() if stage is Stage.VALUATION)
_WORDS: Mapping[Feature, str] = {Feature.MANY_SIZES: "rates at many sizes"}
_USED_UP = frozenset({Feature.TIME_SHARES, Feature.DEVICE_SHARES})
"""Features that a refiner consumes, so that later stages do not receive them."""


def check_chain(
    steps: list[Step], *, bids: bool, others: Others, unread: str, place: str, bids_place: str
) -> list[InputError]:
    """Return the errors of a profile: unmet needs, pins or bids, and stages that nothing uses.

    Args:
        steps: the stages in calling order.
        bids: whether app masters bid.
        others: finds suitable plugins to suggest.
        unread: the default valuation, the only one that may remain unused.
        place: file and table of the stages, for error messages.
        bids_place: file and key that turns bidding on, for error messages.
    """
    errors: list[InputError] = []
    given: dict[Feature, Step] = dict.fromkeys(steps[-1].contract.gives & {Feature.RETUNES}, steps[-1])
    for at, step in enumerate(steps):
        lacking = sorted(step.contract.needs - CLUSTER_FEATURES - given.keys(), key=lambda item: item.name)
        errors += [_missing(step, feature, steps, others, place) for feature in lacking]
        errors += [] if lacking else _nothing_to_divide(step, steps[at - 1], place)
        errors += _units_differ(step, given, others, place)
        if step.stage is Stage.REFINE:
            for feature in step.contract.needs & _USED_UP:
                given.pop(feature, None)
        given |= dict.fromkeys(_gives(step), step)
    errors += _pins(steps, given, others, place)
    errors += _sizes_not_chosen(steps, others, place)
    valuation = next(step for step in steps if step.stage is Stage.VALUATION)
    errors += _unused_valuation(valuation, steps, unread, place)
    if bids and Promise.SEPARABLE not in valuation.contract.promises:
        way_out = _way_out(others(Stage.VALUATION, lambda contract: Promise.SEPARABLE in contract.promises))
        rule = f"{valuation} must value each app by itself where app masters bid"
        errors.append(InputError(rule, value=f"no promise of it; leave bid_deadline out{way_out}", place=bids_place))
    return errors


def check_cluster(steps: list[Step], cluster: Cluster, *, place: str = "--cluster") -> list[InputError]:
    """Return an error for each feature that a stage needs and the cluster lacks."""
    return [
        error
        for step in steps
        for feature in sorted(step.contract.needs & CLUSTER_FEATURES, key=lambda item: item.name)
        for error in _unsuited(step, feature, cluster, place)
    ]


def _gives(step: Step) -> frozenset[Feature]:
    """Return the features that a stage gives; an allocation or refiner without declared shares gives whole GPUs."""
    gives = step.contract.gives
    makes = step.stage in (Stage.ALLOCATION, Stage.REFINE)
    return gives | {Feature.GRANTS} if makes and not gives & _USED_UP else gives


def _missing(step: Step, feature: Feature, steps: list[Step], others: Others, place: str) -> InputError:
    if feature is Feature.GRANTS:
        return _unrefined(step, steps[: steps.index(step)], others, place)
    stage = _GIVERS.get(feature, Stage.ALLOCATION if step.stage is Stage.PLACEMENT else Stage.VALUATION)
    giver = next((other for other in steps if other.stage is stage), None)
    takes = others(stage, lambda contract: feature in contract.gives)
    got = f"{giver} gives {_gifts(giver)}" if giver else "nothing before it gives them"
    needs = _WORDS.get(feature, feature.value)
    return InputError(f"{step} needs {needs}, but {got}{_way_out(takes)}", place=place)


def _unrefined(step: Step, before: list[Step], others: Others, place: str) -> InputError:
    """Return the error for shares that reach a placement, with suggested refiners that turn them into whole GPUs."""
    giver = before[-1]
    shares = giver.contract.gives & _USED_UP
    takes = others(Stage.REFINE, lambda contract: bool(shares & contract.needs) and Feature.GRANTS in contract.gives)
    way_out = _way_out(takes, verb="add refiner")
    return InputError(f"{step} needs whole GPUs, but {giver} gives {_gifts(giver)}{way_out}", place=place)


def _units_differ(step: Step, given: Mapping[Feature, Step], others: Others, place: str) -> Iterator[InputError]:
    """Yield an error for values by size in a unit that the stage that reads them does not accept."""
    giver = given.get(Feature.BY_SIZE)
    can_read = step.contract.units if Feature.BY_SIZE in step.contract.needs else frozenset()
    if giver is None or not can_read or can_read & units_of(giver.contract):
        return
    takes = others(Stage.VALUATION, lambda contract: bool(can_read & units_of(contract)))
    both = (can_read, units_of(giver.contract))
    wanted, got = (" or ".join(sorted(unit.value for unit in units)) for units in both)
    rule = f"{step} reads {wanted} by size, but {giver} gives {got} by size{_way_out(takes)}"
    yield InputError(rule, place=place)


def units_of(contract: Contract) -> frozenset[SizeUnit]:
    """Return the units of a valuation's values by size; empty if it gives none."""
    return (contract.units or frozenset({SizeUnit.UTILITY})) if Feature.BY_SIZE in contract.gives else frozenset()


def _nothing_to_divide(step: Step, before: Step, place: str) -> list[InputError]:
    """Return an error if a refiner divides grants among jobs although they are already grants to jobs."""
    if step.stage is not Stage.REFINE or step.contract.needs & _USED_UP:
        return []
    if Feature.JOB_CLAIMS not in step.contract.gives or Feature.JOB_CLAIMS not in before.contract.gives:
        return []
    rule = f"{step} has nothing to divide, for {before} gives {_gifts(before)}; leave it out"
    return [InputError(rule, place=place)]


def _sizes_not_chosen(steps: list[Step], others: Others, place: str) -> Iterator[InputError]:
    """Yield an error for menus of several sizes if time shares assume one size per job and no stage chooses it."""
    elasticity, *rest = steps
    sharing = next((step for step in rest if Feature.TIME_SHARES in step.contract.gives), None)
    if sharing is None or Feature.MANY_SIZES not in elasticity.contract.gives:
        return
    if any(Feature.MANY_SIZES in step.contract.needs for step in rest):
        return
    takes = others(Stage.ELASTICITY, lambda contract: Feature.MANY_SIZES not in contract.gives)
    rule = f"nothing chooses among the sizes of {elasticity}, for {sharing} gives {_gifts(sharing)} at one size a job"
    yield InputError(f"{rule}{_way_out(takes)}", place=place)


def _unused_valuation(valuation: Step, steps: list[Step], unread: str, place: str) -> Iterator[InputError]:
    """Yield an error for a valuation that no stage uses, unless its plugin also implements the allocation."""
    allocation = next(step for step in steps if step.stage is Stage.ALLOCATION)
    readers = [step for step in steps if step.contract.needs & _FORMS]
    if not readers and valuation.plugin not in (unread, allocation.plugin):
        rule = f"nothing reads {valuation}, for {allocation} needs none of what it gives; leave it out"
        yield InputError(rule, place=place)


def _gifts(step: Step) -> str:
    if step.stage is Stage.ELASTICITY and Feature.MANY_SIZES not in step.contract.gives:
        return "one size a job"
    features = [
        _WORDS.get(feature, feature.value) for feature in sorted(step.contract.gives, key=lambda item: item.name)
    ]
    return " and ".join(features) or "nothing that it declares"


def _way_out(names: Iterable[str], *, verb: str = "take") -> str:
    listed = list(names)
    return f"; {verb} {list_of(listed)}" if listed else ""


def _pins(steps: list[Step], given: Mapping[Feature, Step], others: Others, place: str) -> Iterator[InputError]:
    placement = steps[-1]
    pinning = given.get(Feature.PINNED)
    if pinning is not None and Promise.HONOURS_PINS not in placement.contract.promises:
        takes = others(Stage.PLACEMENT, lambda contract: Promise.HONOURS_PINS in contract.promises)
        text = f"{placement} must honour pins, but does not, and {pinning} gives {Feature.PINNED.value}"
        yield InputError(f"{text}{_way_out(takes)}", place=place)


def _unsuited(step: Step, feature: Feature, cluster: Cluster, place: str) -> Iterator[InputError]:
    if feature is Feature.ONE_GPU_TYPE and len(cluster.gpu_types) > 1:
        yield InputError(f"{step} needs one GPU type", value=" and ".join(cluster.gpu_types), place=place)
    sizes = np.diff(cluster.machine_start)
    if feature is Feature.EQUAL_MACHINES and np.unique(sizes).size > 1:
        value = f"machines of {sizes.min()} to {sizes.max()} GPUs"
        yield InputError(f"{step} needs machines of one size", value=value, place=place)
    if feature is Feature.CPUS_AND_MEMORY:
        for what, column in (("cpus", cluster.machine_cpus), ("memory", cluster.machine_memory_gib)):
            bare = np.flatnonzero(np.isnan(column))
            if bare.size:
                value = f'machine "{cluster.machines[int(bare[0])].name}" has none'
                yield InputError(f"{what} must be given for {step}", value=value, place=place)


def contract_of(plugin: object, stage: Stage) -> Contract:
    """Return the contract that a plugin, given as a class or an instance, declares for a stage."""
    contracts = getattr(plugin, "contracts", None)
    found = contracts.get(stage, NO_CONTRACT) if isinstance(contracts, Mapping) else NO_CONTRACT
    return found if isinstance(found, Contract) else NO_CONTRACT
