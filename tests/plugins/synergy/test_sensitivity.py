"""Demands and ranges from rates by CPUs and memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia import Feature, Unit
from eunomia.arbiter import Arbiter
from eunomia.contract.allocations import Allocation, Grants
from eunomia.contract.claims import Claims
from eunomia.contract.events import AppArrived, JobAdded, KindProfiled
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.platform.profiles import Profile
from eunomia.testing.builders import World
from eunomia.testing.inputs import MenuPoint, grants_to, menus_of
from eunomia.units import AppId, JobId, Locality, Seconds, UserId
from eunomia_plugins.synergy.matrices import Matrix, demand
from eunomia_plugins.synergy.sensitivity import Sensitivity, SensitivityOptions
from strength import examples

CPUS = (1.0, 3.0, 6.0, 12.0)
MEMORY = (20.0, 62.5, 125.0)
ALEXNET = ((0.1, 0.3, 0.3), (0.1, 1.0, 1.0), (0.1, 1.75, 1.75), (0.1, 2.0, 2.94))
WORLD = "1x8 V100 24cpu 500GiB"


def matrix(rates: object = ALEXNET) -> Matrix:
    return Matrix(cpus=np.array(CPUS), memory_gib=np.array(MEMORY), rate=np.array(rates, float))


@pytest.mark.parametrize(
    ("saturation", "expected"),
    [(1.0, (12.0, 125.0)), (0.9, (12.0, 125.0)), (0.65, (12.0, 62.5)), (0.5, (6.0, 62.5)), (0.1, (3.0, 62.5))],
)
def test_the_demand_is_the_least_that_reaches_the_given_fraction_of_the_best_rate(
    saturation: float, expected: tuple[float, float]
) -> None:
    assert demand(matrix(), (3.0, 62.5), (24.0, 500.0), saturation) == expected


def test_a_demand_is_at_most_what_the_machines_have() -> None:
    assert demand(matrix(), (3.0, 62.5), (8.0, 100.0), 1.0) == (6.0, 62.5)


_RATES = st.lists(st.floats(0.05, 1.0), min_size=12, max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(_RATES, st.floats(0.5, 14.0), st.floats(10.0, 130.0), st.floats(0.3, 1.0))
def test_neither_the_demand_nor_the_minimum_is_slower_than_the_share(
    steps: list[float], cpus: float, memory: float, saturation: float
) -> None:
    grown = matrix(np.cumsum(np.cumsum(np.array(steps).reshape(4, 3), axis=0), axis=1))
    wanted = demand(grown, (cpus, memory), (max(24.0, cpus), max(500.0, memory)), saturation)
    least = min(wanted[0], cpus), min(wanted[1], memory)
    share = grown.at(cpus, memory)
    assert grown.at(*wanted) >= share * (1 - 1e-6)
    assert grown.at(*least) >= share * (1 - 1e-6)
    assert grown.at(*wanted) >= saturation * grown.rate.max() * (1 - 1e-6)


def test_a_missing_point_gets_the_best_measured_rate_with_no_more_cpus_or_memory() -> None:
    town = World(WORLD).job("a/1")
    menus = menus_of(town, {"a/1": [MenuPoint(1, 1.0, 1.0, 20.0), MenuPoint(1, 3.0, 4.0, 60.0)]})
    found = Matrix.of(menus, 0, 1, -1)
    assert found is not None
    assert found.rate.tolist() == [[1.0, 1.0], [1.0, 3.0]]
    assert Matrix.of(menus, 0, 2, -1) is None


def points() -> list[MenuPoint]:
    table = zip(CPUS, ALEXNET, strict=True)
    return [MenuPoint(1, rate, cpus, memory) for cpus, row in table for memory, rate in zip(MEMORY, row, strict=True)]


def refined(town: World, allocation: Allocation, saturation: float = 0.9) -> Grants:
    names = {"a/1": points()}
    menus = menus_of(town, names)
    refiner = Sensitivity(SensitivityOptions(saturation=saturation))
    answer = refiner.eunomia_refine(town.snapshot(), menus, allocation)
    assert isinstance(answer.amount, Grants)
    return answer.amount


def test_ranges_extend_from_the_share_to_the_demand_and_unknown_jobs_get_their_share() -> None:
    town = World(WORLD).job("a/1").job("b/1", gpus=2).job("c/1", cpus=5.0)
    grants = refined(town, grants_to(town, {"a/1": 1, "b/1": 2, "c/1": 1}))
    assert grants.cpus is not None
    assert grants.memory_gib is not None
    assert grants.cpus.least.tolist() == [3.0, 6.0, 5.0]
    assert grants.cpus.most.tolist() == [12.0, 6.0, 5.0]
    assert grants.memory_gib.least.tolist() == [62.5, 125.0, 62.5]
    assert grants.memory_gib.most.tolist() == [125.0, 125.0, 62.5]


def test_a_claim_of_an_app_gets_the_largest_demand_per_gpu_of_its_jobs() -> None:
    town = World(WORLD).job("a/1").job("a/2").job("b/1")
    claims = Claims(unit=Unit.APP, rows=np.array([town.row("a"), town.row("b")], np.int32))
    allocation = Allocation(claims=claims, amount=Grants(gpus=np.array([2, 1])), order=np.array([0, 1], np.int32))
    grants = refined(town, allocation)
    assert grants.cpus is not None
    assert grants.cpus.most.tolist() == [24.0, 3.0]
    assert grants.cpus.least.tolist() == [6.0, 3.0]


def rates(gpus: int) -> tuple[KnownRate, ...]:
    return tuple(
        KnownRate(
            gpus=gpus,
            gpu_type="V100",
            locality=Locality.ISLAND,
            rate=rate * gpus,
            cpus=cpus * gpus,
            memory_gib=memory * gpus,
        )
        for cpus, row in zip(CPUS, ALEXNET, strict=True)
        for memory, rate in zip(MEMORY, row, strict=True)
    )


@pytest.mark.parametrize("elasticity", ["fixed", "range", "throughput"])
def test_the_rates_of_a_kind_become_points_of_its_jobs_under_every_elasticity(elasticity: str) -> None:
    cluster = Cluster.parse(WORLD)
    profile = Profile.load("synergy", settings={"stages.elasticity": elasticity})
    stages = profile.stages(cluster)
    made = Arbiter(cluster, stages, stages)
    made.step(Seconds(0.0), [KindProfiled(kind="alexnet", rates=(*rates(1), *rates(2)))])
    made.step(Seconds(1.0), [AppArrived(app=AppId("a"), user=UserId("u"))])
    for number, kind in enumerate(("alexnet", "alexnet", "other")):
        job = JobId(f"a/{number}")
        made.step(Seconds(1.0), [JobAdded(app=AppId("a"), job=job, least=1, most=1 + number % 2, kind=kind)])
    snapshot = made.snapshot()
    menus = stages.elasticity(snapshot)
    assert Feature.CPU_POINTS in snapshot.needs
    for job, gpus in ((0, 1), (1, 2)):
        assert menus.rate(job, gpus, cpus=3.0 * gpus, memory_gib=62.5 * gpus) == gpus
        assert menus.rate(job, gpus, cpus=12.0 * gpus, memory_gib=125.0 * gpus) == 2.94 * gpus
        assert menus.largest_at_most(job, 8) == gpus
    assert np.isnan(menus.rate(2, 1, cpus=0.5))
    assert menus.full_rate(np.array([0, 1], np.int32)).tolist() == [2.94, 5.88]
