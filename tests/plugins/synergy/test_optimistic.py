"""``optimistic``: a few numbers of CPUs are measured, amounts of memory are computed, and kinds share both."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from eunomia import Feature, Menus, Reason
from eunomia.errors import InputErrors
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState
from eunomia.platform.profiles import Profile
from eunomia.testing.builders import World
from eunomia.units import Basis
from eunomia_plugins.synergy.matrices import Matrix, demand
from eunomia_plugins.synergy.optimistic import Optimistic, OptimisticOptions
from eunomia_plugins.synergy.searching import next_point
from eunomia_plugins.synergy.storage import DataSet

SERVER = "1x8 V100 24cpu 512GiB"
IMAGES = {"size": "150GiB", "samples": 1_500_000, "process": "20GiB"}
SHARE, MOST = 3, 24


def searched(rate: Callable[[int], float], share: int = SHARE, most: int = MOST, can: int = MOST) -> list[int]:
    """The CPUs that are measured, in their order, where at most so many can be had."""
    rates: dict[int, float] = {}
    while True:
        point = next_point(rates, share, most, 0.1)
        here = next((cpus for cpus in point.cpus if cpus <= can), None)
        if here is None:
            assert point.searched or not point.cpus or can <= share
            return list(rates)
        assert here not in rates
        rates[here] = rate(here)


def test_the_search_measures_where_more_cpus_raise_the_rate() -> None:
    assert searched(lambda cpus: 1.0) == [24, 3, 1]
    assert searched(lambda cpus: float(min(cpus, 9))) == [24, 3, 13, 8, 10, 9]
    assert searched(lambda cpus: float(cpus)) == [24, 3, 13, 18, 21, 22]
    assert searched(lambda cpus: min(cpus, 2.0)) == [24, 3, 1, 2]


def test_the_search_starts_with_the_cpus_that_are_available() -> None:
    assert searched(lambda cpus: float(min(cpus, 6)), can=12) == [12, 3, 7, 5, 6]
    assert next_point({12: 12.0, 3: 3.0, 7: 7.0, 9: 9.0, 10: 10.0, 11: 11.0}, 3, 24, 0.01).cpus == tuple(
        range(24, 12, -1)
    )


def test_a_job_with_all_gpus_of_a_machine_is_measured_only_with_fewer_cpus() -> None:
    assert searched(lambda cpus: float(min(cpus, 2)), share=3, most=3) == [3, 1, 2]


@drawn(st.lists(st.floats(0.0, 10.0), min_size=24, max_size=24), st.integers(1, 24))
def test_the_search_ends_after_few_points_for_any_rates(steps: list[float], share: int) -> None:
    rates = np.cumsum(steps)
    found = searched(lambda cpus: float(rates[cpus - 1]), share=share)
    assert {24, share} <= set(found)
    assert len(found) <= 8


def test_storage_limits_the_rate_by_the_data_that_are_not_cached() -> None:
    data = DataSet.model_validate(IMAGES)
    memory = np.array([10.0, 20.0, 95.0, 170.0, 500.0])
    assert data.cached(memory, 1).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
    # 500 samples an iteration of 1e-4 GiB each: 0.05 GiB, half of it from storage.
    assert data.bound(memory, 1, 500.0, 0.1).tolist() == pytest.approx([2.0, 2.0, 4.0, math.inf, math.inf])
    assert data.cached(np.array([40.0, 115.0]), 2).tolist() == [0.0, 0.5]
    assert np.isinf(data.bound(memory, 1, math.nan, 0.1)).all()


def stage(**options: object) -> Optimistic:
    given = {"data_sets": {"resnet": IMAGES}, "bandwidth": "0.1GiB/s", **options}
    return Optimistic(OptimisticOptions.model_validate(given))


def running(kind: str = "resnet") -> World:
    """A job that runs, and one of the same kind and one of another that wait."""
    world = World(SERVER).needs(Feature.CPU_POINTS)
    world.job("a/0", kind=kind, batch_size=500.0, seconds_per_iteration=0.5, iterations=1e6)
    world.job("b/0", kind=kind, batch_size=500.0, seconds_per_iteration=0.5, arrived=1.0)
    world.job("c/0", kind="bert", batch_size=20.0, seconds_per_iteration=0.5, arrived=2.0)
    return world.holds("a/0", 0, cpus=3.0, memory_gib=64.0, ranges=(3.0, 24.0, 64.0, 170.0))


def asked(menus: Menus) -> list[tuple[int, float, float]]:
    probe = menus.probe
    if probe is None or probe.cpus is None or probe.memory_gib is None:
        return []
    return list(zip(probe.jobs.tolist(), probe.cpus.tolist(), probe.memory_gib.tolist(), strict=True))


def measured(world: World, rates: dict[int, float], memory_gib: float = 170.0) -> World:
    for cpus, rate in rates.items():
        world.measures("a/0", 1, rate, cpus=float(cpus), memory_gib=memory_gib)
    return world


def test_a_running_job_is_measured_with_full_memory_while_others_of_its_kind_wait() -> None:
    world = running()
    menus = stage().eunomia_elasticity(world.snapshot())
    first, *others = asked(menus)
    assert first == (world.row("a/0"), 24.0, 170.0)
    assert [cpus for _, cpus, _ in others] == [float(cpus) for cpus in range(23, 3, -1)]
    assert menus.verdicts.rows.tolist() == [world.row("b/0")]
    assert menus.verdicts.reasons.tolist() == [int(Reason.NOT_PROFILED)]
    assert menus.curve[world.row("b/0")] == -1
    assert menus.curve[world.row("c/0")] >= 0


def test_the_demand_of_a_job_to_be_measured_is_the_first_point_of_the_search() -> None:
    world = running()
    menus = stage(until_profiled="assumed").eunomia_elasticity(world.snapshot())
    assert menus.verdicts.rows.size == 0
    for job, amounts in (("a/0", (24.0, 170.0)), ("c/0", (24.0, 64.0))):
        matrix = Matrix.of(menus, world.row(job), 1, 0)
        assert matrix is not None
        assert (matrix.cpus.max(), matrix.memory_gib.max()) == amounts
    assert Matrix.of(menus, world.row("b/0"), 1, 0) is None


def test_measured_cpus_and_computed_memory_give_the_matrix_of_the_kind() -> None:
    world = measured(running(), {24: 6.0, 3: 3.0, 13: 6.0, 8: 6.0, 5: 5.0, 6: 6.0})
    menus = stage().eunomia_elasticity(world.snapshot())
    assert {job for job, *_ in asked(menus)} <= {world.row("c/0")}
    assert menus.curve[world.row("a/0")] == menus.curve[world.row("b/0")]
    matrix = Matrix.of(menus, world.row("b/0"), 1, 0)
    assert matrix is not None
    assert matrix.cpus.tolist() == [3.0, 5.0, 6.0, 8.0, 13.0, 24.0]
    assert matrix.at(6.0, 170.0) == 6.0
    # At the share of 64 GiB, 44 of 150 GiB are cached: 0.1 GiB/s serve 2.83 iterations a second of 0.05 GiB.
    assert matrix.at(6.0, 64.0) == pytest.approx(0.1 / 0.05 / (1.0 - 44.0 / 150.0))
    # The amounts are 50 GB apart, from 20 GiB on: the fourth is the least with which storage serves 6 iterations.
    cpus, memory = demand(matrix, (3.0, 64.0), (24.0, 512.0), 1.0)
    assert (cpus, memory) == (6.0, pytest.approx(20.0 + 3 * 50e9 / 2**30))
    part = slice(int(menus.points.start[menus.curve[world.row("b/0")]]), None)
    assert menus.points.rate[part][0] == 6.0
    bases = menus.points.basis[part][menus.points.memory_gib[part] == 64.0]
    assert set(bases.tolist()) == {int(Basis.ASSUMED)}


def test_rates_with_less_memory_are_not_points_of_the_search() -> None:
    world = measured(running(), {24: 1.0}, memory_gib=64.0)
    assert asked(stage().eunomia_elasticity(world.snapshot()))[0][1] == 24.0


def test_a_kind_without_a_known_data_set_keeps_its_share_of_memory() -> None:
    world = measured(running("other"), {24: 6.0, 3: 3.0, 13: 6.0, 8: 6.0, 5: 5.0, 6: 6.0}, memory_gib=math.nan)
    menus = stage().eunomia_elasticity(world.snapshot())
    matrix = Matrix.of(menus, world.row("b/0"), 1, 0)
    assert matrix is not None
    assert matrix.memory_gib.tolist() == [64.0]
    assert demand(matrix, (3.0, 64.0), (24.0, 512.0), 1.0) == (6.0, 64.0)


def test_imported_rates_are_used_unchanged() -> None:
    world = running()
    for cpus, memory, rate in ((2.0, 30.0, 1.0), (4.0, 60.0, 3.0)):
        world.measures("a/0", 1, rate, cpus=cpus, memory_gib=memory, known=Basis.DECLARED)
    menus = stage().eunomia_elasticity(world.snapshot())
    assert {job for job, *_ in asked(menus)} <= {world.row("c/0")}
    matrix = Matrix.of(menus, world.row("b/0"), 1, 0)
    assert matrix is not None
    assert (matrix.cpus.tolist(), matrix.memory_gib.tolist()) == ([2.0, 4.0], [30.0, 60.0])


def test_nothing_is_measured_if_no_stage_reads_cpus() -> None:
    world = running()
    world = measured(World(SERVER).job("a/0", kind="resnet", seconds_per_iteration=0.5).holds("a/0", 0), {24: 6.0})
    menus = stage().eunomia_elasticity(world.snapshot())
    assert menus.probe is None
    assert menus.verdicts.rows.size == 0
    assert np.isnan(menus.points.cpus).all()
    assert menus.points.rate.tolist() == [6.0]


def test_of_several_jobs_the_one_on_the_emptiest_machine_is_measured() -> None:
    world = World("2x2 V100 8cpu 128GiB").needs(Feature.CPU_POINTS)
    for name in ("a/0", "b/0", "c/0"):
        world.job(name, kind="bert" if name == "b/0" else "resnet", seconds_per_iteration=1.0)
    for gpu, name in ((0, "a/0"), (1, "b/0"), (2, "c/0")):
        world.holds(name, gpu, cpus=4.0, memory_gib=64.0)
    snapshot = world.snapshot()
    assert snapshot.holdings.state[0] == int(GpuState.HELD)
    menus = stage().eunomia_elasticity(snapshot)
    assert {world.row("c/0"), world.row("b/0")} == {job for job, *_ in asked(menus)}


A_MEMORY = 'must be an amount of memory above 0 with a unit, such as "150GB"'
A_BANDWIDTH = 'must be a bandwidth above 0 with a unit, such as "200MB/s"'


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("data_sets", {"res18": {**IMAGES, "size": "0GB"}}, f'data_sets.res18.size {A_MEMORY}, but got "0GB"'),
        ("data_sets", {"res18": {**IMAGES, "size": "150"}}, f'data_sets.res18.size {A_MEMORY}, but got "150"'),
        ("data_sets", {"res18": {**IMAGES, "process": "5kg"}}, f'data_sets.res18.process {A_MEMORY}, but got "5kg"'),
        ("data_sets", {"res18": {**IMAGES, "samples": 0}}, "data_sets.res18.samples must be greater than 0, but got 0"),
        ("data_sets", {"res18": {"samples": 3}}, "data_sets.res18.size must be given"),
        ("bandwidth", "200MB", f'bandwidth {A_BANDWIDTH}, but got "200MB"'),
        ("bandwidth", "0MB/s", f'bandwidth {A_BANDWIDTH}, but got "0MB/s"'),
        ("memory_step", 50, f"memory_step {A_MEMORY}, but got 50"),
        ("memory_step", "1MB", 'memory_step must be at least 1GB, but got "1MB"'),
        ("threshold", 0, "threshold must be greater than 0 and at most 1, but got 0"),
        ("again", "0s", 'again must be greater than 0, but got "0s"'),
    ],
)
def test_bad_options_are_refused(option: str, given: object, said: str) -> None:
    settings = {"stages.elasticity": "optimistic", f"plugins.optimistic.{option}": given}
    with pytest.raises(InputErrors) as refused:
        Profile.load("synergy", settings=settings)
    assert str(refused.value.errors[0]).startswith(said)


def test_a_cluster_without_cpus_is_refused() -> None:
    profile = Profile.load("fifo", settings={"stages.elasticity": "optimistic"})
    with pytest.raises(InputErrors) as refused:
        profile.stages(Cluster.parse("1x8 V100"))
    assert 'must be given for elasticity "optimistic", but got machine "m01" has none' in str(refused.value)
