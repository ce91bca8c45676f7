"""Rates measured with different CPUs and memory become points of a menu, where a stage of the profile needs them."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from eunomia import Feature, Locality, Menus, Profile
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, RateMeasured
from eunomia.model.cluster import Cluster
from eunomia.platform.registry import Registry
from eunomia.testing.builders import World
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_plugins.elasticity.fixed import Fixed
from eunomia_plugins.elasticity.range import Range, RangeOptions
from eunomia_plugins.elasticity.throughput import Throughput, ThroughputOptions

ELASTICITIES: dict[str, Any] = {
    "fixed": Fixed,
    "range": lambda: Range(RangeOptions()),
    "throughput": lambda: Throughput(ThroughputOptions()),
}
WIDE = "1x4 V100 32cpu 256GB"


def profiled() -> World:
    world = World(WIDE).job("a/1", gpus=(2, 2), seconds_per_iteration=1.0)
    world.measures("a/1", 2, 0.5, cpus=2.0).measures("a/1", 2, 1.5, cpus=8.0).measures("a/1", 2, 1.0, cpus=4.0)
    return world.measures("a/1", 2, 0.25, cpus=16.0, locality=Locality.CLUSTER)


@pytest.mark.parametrize("elasticity", ELASTICITIES)
def test_a_stage_that_needs_points_by_cpus_gets_the_measured_ones(elasticity: str) -> None:
    menus = ELASTICITIES[elasticity]().eunomia_elasticity(profiled().needs(Feature.CPU_POINTS).snapshot())
    assert menus.sizes(0).tolist() == [2]
    rates = {cpus: menus.rate(0, 2, cpus=cpus) for cpus in (2.0, 3.0, 4.0, 8.0, 30.0)}
    assert rates == {2.0: 0.5, 3.0: 0.5, 4.0: 1.0, 8.0: 1.5, 30.0: 1.5}
    assert menus.rate(0, 2) == 1.5
    assert menus.rate(0, 2, Locality.CLUSTER) == 0.25


@pytest.mark.parametrize("elasticity", ELASTICITIES)
def test_without_a_need_of_points_by_cpus_a_size_has_its_fastest_rate(elasticity: str) -> None:
    menus = ELASTICITIES[elasticity]().eunomia_elasticity(profiled().snapshot())
    assert menus.rate(0, 2) == menus.rate(0, 2, cpus=2.0) == 1.5
    assert {0.5, 1.0}.isdisjoint(menus.points.rate.tolist())
    assert not any(map(math.isfinite, menus.points.cpus.tolist()))


def test_an_unknown_rate_is_derived_from_the_rate_with_the_most_cpus() -> None:
    world = World(WIDE).job("a/1", gpus=(1, 4)).measures("a/1", 2, 1.0, cpus=2.0).measures("a/1", 2, 4.0, cpus=8.0)
    menus = Range(RangeOptions()).eunomia_elasticity(world.snapshot())
    assert menus.rate(0, 4) == 8.0


NEEDY = '''
from eunomia import *

class Needy:
    """Needs points by CPUs, and answers nothing."""

    name = "needy"
    api = 1
    contracts = {Stage.PLACEMENT: Contract(needs=frozenset({Feature.GRANTS, Feature.CPU_POINTS}))}

    @hookimpl
    def eunomia_placement(self, snapshot, menus):
        return None
'''


def arbiter(registry: Registry | None = None, **stages: str) -> tuple[Arbiter, list[Menus]]:
    cluster = Cluster.parse(WIDE)
    settings = {f"stages.{stage}": name for stage, name in stages.items()}
    made = Profile.load("default", registry=registry, settings=settings).stages(cluster)
    seen: list[Menus] = []

    def elasticity(snapshot: Any) -> Menus:
        seen.append(made.elasticity(snapshot))
        return seen[-1]

    return Arbiter(cluster, dataclasses.replace(made, elasticity=elasticity), made), seen


def measured(cpus: float, rate: float) -> RateMeasured:
    return RateMeasured(
        job=JobId("a/1"), gpus=1, locality=Locality.ISLAND, rate=rate, gpu_type="V100", cpus=cpus, memory_gib=math.nan
    )


ARRIVAL = (
    AppArrived(app=AppId("a"), user=UserId("u")),
    JobAdded(app=AppId("a"), job=JobId("a/1"), least=1, most=1),
)


def test_rates_are_stored_by_cpus_and_survive_a_checkpoint(tmp_path: Path) -> None:
    made, _ = arbiter()
    made.step(Seconds(0.0), ARRIVAL)
    made.step(Seconds(1.0), [measured(2.0, 1.0), measured(4.0, 2.0), measured(2.0, 1.5)])
    kept = [(seen.cpus, seen.rate) for seen in made.state.reports.measured[0]]
    assert kept == [(4.0, 2.0), (2.0, 1.5)]
    again, _ = arbiter()
    again.load(made.save())
    assert [(seen.cpus, seen.rate) for seen in again.state.reports.measured[0]] == kept


def test_a_rate_with_no_cpus_at_all_is_refused() -> None:
    made, _ = arbiter()
    made.step(Seconds(0.0), ARRIVAL)
    faults = made.step(Seconds(1.0), [measured(0.0, 1.0)]).faults
    assert ["CPUs of a measured rate must be above 0" in fault.what for fault in faults] == [True]
    assert made.state.reports.measured == {}


def test_the_snapshot_of_a_round_names_the_needs_of_its_stages(tmp_path: Path) -> None:
    path = tmp_path / "needy.py"
    path.write_text(NEEDY)
    registry = Registry.find(paths=[path], installed=False)
    for placement, found in (("needy", True), ("packed", False)):
        made, seen = arbiter(registry, placement=placement)
        made.step(Seconds(0.0), ARRIVAL)
        made.step(Seconds(1.0), [measured(2.0, 1.0), measured(4.0, 2.0)])
        made.step(Seconds(2.0), [JobAdded(app=AppId("a"), job=JobId("a/2"), least=1, most=1)])
        assert any(math.isfinite(cpus) for cpus in seen[-1].points.cpus.tolist()) is found
        assert (Feature.CPU_POINTS in made.snapshot().needs) is found
        assert (Feature.CPU_POINTS in made.snapshot().only(0).needs) is found
