"""Variations of a plan that might change its answer: doubled costs, one more machine, misreported job lengths."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Final

from eunomia.model.cluster import Cluster, Machine
from eunomia.model.shapes import builds
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Costs
from eunomia_testbed.spec.cluster_file import ClusterFile, cluster_toml

USUAL_COSTS: Final = Costs(start=30.0, checkpoint=20.0, restore=20.0)
"""Costs (seconds) tried if none are given. Themis (NSDI'20, §8.3.2) measures 5 to 10 s for a checkpoint and 35 to 50 s
for a change of containers."""
LENGTH_ERROR: Final = 0.5
"""Largest relative error of reported work, under ``with_wrong_lengths``."""


@builds
class Variation:
    """A plan that differs from the advised one in one respect.

    Attributes:
        name: a short name, unique among the variations: ``costs`` or ``machine``.
        text: the difference in words, such as ``costs doubled``.
        plan: the plan to run.
    """

    name: str
    text: str
    plan: Plan


def variations_of(plan: Plan) -> list[Variation]:
    """Return the variations of costs and machines; costs do not vary under a peer simulator's rules, which fix them."""
    return [*_costs(plan), _one_more_machine(plan)]


def with_wrong_lengths(plan: Plan) -> Plan:
    """Return the plan with the work of every app misreported, by factors drawn from 0.5 to 1.5."""
    reports = dataclasses.replace(plan.options.reports, errors={**plan.options.reports.errors, "work": LENGTH_ERROR})
    return dataclasses.replace(plan, options=dataclasses.replace(plan.options, reports=reports))


def _costs(plan: Plan) -> Iterator[Variation]:
    if plan.peer is not None:
        return
    costs = plan.options.costs
    names = [each.name for each in dataclasses.fields(costs) if each.name != "checkpoint_every"]
    given = {name: getattr(costs, name) for name in names if getattr(costs, name) > 0.0}
    if given:
        changed = dataclasses.replace(costs, **{name: 2.0 * seconds for name, seconds in given.items()})
        text = "costs doubled"
    else:
        changed = dataclasses.replace(USUAL_COSTS, checkpoint_every=costs.checkpoint_every)
        text = "starts that take 30 s, saves and restores 20 s"
    yield Variation(
        name="costs",
        text=text,
        plan=dataclasses.replace(plan, options=dataclasses.replace(plan.options, costs=changed)),
    )


def _one_more_machine(plan: Plan) -> Variation:
    """Return the plan with one more machine of the most frequent kind (of several such kinds, the first)."""
    machines = plan.cluster.machines
    kinds = Counter(_unnamed(machine) for machine in machines)
    usual = max(machines, key=lambda machine: kinds[_unnamed(machine)])
    names = {machine.name for machine in machines}
    name = next(each for number in range(len(names) + 1) if (each := f"more{number + 1:02d}") not in names)
    cluster = Cluster.build([*machines, dataclasses.replace(usual, name=name)])
    text = cluster_toml(ClusterFile(cluster=cluster, bandwidth_gib={}))
    return Variation(
        name="machine",
        text=f"one more machine of {usual.gpus} {usual.gpu_type}",
        plan=dataclasses.replace(plan, cluster=cluster, cluster_text=text),
    )


def _unnamed(machine: Machine) -> Machine:
    return dataclasses.replace(machine, name="")
