"""Random changes of a cluster, as launchers and operators make them."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from hypothesis import strategies as st

from eunomia.contract.events import (
    Event,
    MachineBack,
    MachineDraining,
    MachineJoined,
    MachineKept,
    MachineLeft,
    MachineLost,
)
from eunomia.testing.strategies import Scenario, scenarios
from eunomia.units import NEVER, Seconds

Timed = tuple[float, Event]
TYPES = ("V100", "A100", "H100", "K80")
"""Types of slots; a cluster begins with the first one alone."""
MOST_SLOTS = 5


@st.composite
def changing_scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a scenario whose machines also come back as others, and lose and get single slots."""
    scenario = draw(scenarios())
    luck = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    script = list(scenario.script)
    for number in range(draw(st.integers(1, 6))):
        change = CHANGES[int(luck.integers(len(CHANGES)))]
        script += change(scenario, luck, number)
    return dataclasses.replace(scenario, script=tuple(script))


def _becomes_another(scenario: Scenario, luck: np.random.Generator, _: int) -> Iterator[Timed]:
    """A node comes back with other slots: one step takes its machine out and lets another join, which is lost first."""
    name, at = _machine(scenario, luck), _moment(luck)
    yield at, MachineLeft(machine=name)
    yield at, _joins(name, luck)
    yield from _down_at_first(name, at, luck)


def _comes_back_later(scenario: Scenario, luck: np.random.Generator, _: int) -> Iterator[Timed]:
    """A machine drains, leaves, and comes back as what it is then."""
    name, at = _machine(scenario, luck), _moment(luck)
    left = at + _while(luck)
    yield at, MachineDraining(machine=name, until=NEVER if luck.random() < 0.5 else Seconds(left))
    yield left, MachineLeft(machine=name)
    again = left + _while(luck)
    yield again, _joins(name, luck)
    if luck.random() < 0.5:  # it was lost while it was away, which nothing knows
        yield again + _while(luck), MachineLost(machine=name)


def _loses_slots(scenario: Scenario, luck: np.random.Generator, _: int) -> Iterator[Timed]:
    """A launcher does not find some of its slots, and finds them later, or not."""
    row, at = int(luck.integers(len(scenario.machines))), _moment(luck)
    first = sum(scenario.machines[:row])
    slots = luck.permutation(range(first, first + scenario.machines[row]))
    gone = tuple(sorted(slots[: int(luck.integers(1, slots.size + 1))].tolist()))
    yield at, MachineLost(machine=f"n{row}", gpus=gone)
    if luck.random() < 0.7:
        yield at + _while(luck), MachineBack(machine=f"n{row}", gpus=gone)


def _gets_slots(scenario: Scenario, luck: np.random.Generator, number: int) -> Iterator[Timed]:
    """A node has more slots than before, which join as a machine of their own."""
    name, at = f"{_machine(scenario, luck)}+{number}", _moment(luck)
    yield at, _joins(name, luck)
    yield from _down_at_first(name, at, luck)
    if luck.random() < 0.3:
        yield at + _while(luck), MachineLeft(machine=name)


def _drains_in_vain(scenario: Scenario, luck: np.random.Generator, _: int) -> Iterator[Timed]:
    """A machine drains, is lost and back meanwhile, and is kept."""
    name, at = _machine(scenario, luck), _moment(luck)
    yield at, MachineDraining(machine=name)
    if luck.random() < 0.5:
        lost = at + _while(luck)
        yield lost, MachineLost(machine=name)
        yield lost + _while(luck), MachineBack(machine=name)
    yield at + _while(luck), MachineKept(machine=name)


def _all_but_one_leave(scenario: Scenario, luck: np.random.Generator, number: int) -> Iterator[Timed]:
    """A cluster shrinks to one machine at once, which the arbiter refuses for the last, and a large one joins."""
    at = _moment(luck)
    for row in luck.permutation(len(scenario.machines)).tolist():
        yield at, MachineLeft(machine=f"n{row}")
    yield at + _while(luck), _joins(f"large{number}", luck, slots=sum(scenario.machines))


Change = Callable[[Scenario, np.random.Generator, int], Iterator[Timed]]
CHANGES: tuple[Change, ...] = (
    _becomes_another,
    _comes_back_later,
    _loses_slots,
    _gets_slots,
    _drains_in_vain,
    _all_but_one_leave,
)


def _machine(scenario: Scenario, luck: np.random.Generator) -> str:
    return f"n{luck.integers(len(scenario.machines))}"


def _moment(luck: np.random.Generator) -> float:
    return float(luck.uniform(1.0, 90.0))


def _while(luck: np.random.Generator) -> float:
    return float(luck.uniform(0.5, 30.0))


def _joins(name: str, luck: np.random.Generator, *, slots: int = 0) -> MachineJoined:
    count = slots or int(luck.integers(1, MOST_SLOTS + 1))
    return MachineJoined(
        machine=name,
        gpu_type=str(luck.choice(TYPES)),
        gpus=count,
        cpus=8.0 * count,
        memory_gib=32.0 * count,
        rack=f"r{luck.integers(3)}",
    )


def _down_at_first(name: str, at: float, luck: np.random.Generator) -> Iterator[Timed]:
    """Slots that join may have processes of former leases: they are down until a fence is confirmed."""
    if luck.random() < 0.7:
        yield at, MachineLost(machine=name)
        yield at + _while(luck), MachineBack(machine=name)
