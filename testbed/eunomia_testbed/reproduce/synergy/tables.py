"""Tables 2 and 3: the arbiter places four jobs on two servers, for every order of arrival."""

import itertools
from collections.abc import Mapping

from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded, KindProfiled
from eunomia.model.cluster import Cluster
from eunomia.model.kind_profiles import KnownRate
from eunomia.units import AppId, JobId, Locality, Seconds, UserId
from eunomia_testbed.reproduce.recipes import Recipe, run_profile

GPUS = 4
SHARE = (12.0, 250.0)
"""CPUs and GiB of the proportional share for four of a server's eight GPUs."""
DEMANDS: Mapping[str, tuple[float, float]] = {
    "J1": (23.0, 400.0),
    "J2": (12.0, 450.0),
    "J3": (1.0, 100.0),
    "J4": (12.0, 50.0),
}
"""CPUs and GiB that each job of Table 3 demands, with four GPUs each."""
PLAIN: Mapping[str, object] = {"stages.refiners": [], "stages.placement": "packed"}
"""Settings for GPU-proportional shares, without resource sensitivity."""
Placed = dict[str, tuple[int, float, float]]
"""The server of each job, with the job's CPUs and GiB."""


def placed(scheme: Mapping[str, object], order: tuple[str, ...]) -> Placed:
    """Return the placement of the four jobs by one round, before which they arrive in this order.

    Args:
        scheme: settings that override the preset ``synergy``.
        order: names of the jobs.
    """
    cluster = Cluster.parse("2x8 V100 24cpu 500GiB")
    stages = run_profile(Recipe(policy="synergy", preset="synergy", settings=scheme)).stages(cluster)
    arbiter = Arbiter(cluster, stages, stages)
    profiled = [KindProfiled(kind=name, rates=_rates(name)) for name in order]
    added = [
        JobAdded(app=AppId("a"), job=JobId(f"a/{name}"), least=GPUS, most=GPUS, kind=name, iterations=1e6)
        for name in order
    ]
    orders = [
        *arbiter.step(Seconds(0.0), [*profiled, AppArrived(app=AppId("a"), user=UserId("u")), *added]).transitions,
        *arbiter.step(Seconds(300.0), []).transitions,
    ]
    return {
        str(one.job).removeprefix("a/"): (
            int(cluster.machine[one.gpus[0]]),
            float(one.cpus.sum()),
            float(one.memory_gib.sum()),
        )
        for one in orders
        if one.job is not None
    }


def orders_as_table_3() -> dict[str, float]:
    """Count the orders, of 24, in which Tune places J1 with J3 and J2 with J4, each with its full demand."""
    found = sum(_is_table_3(placed({}, order)) for order in itertools.permutations(DEMANDS))
    return {"orders of arrival": float(found)}


def orders_as_table_2() -> dict[str, float]:
    """Count the orders, of 24, in which every job gets its proportional share, without sensitivity."""
    found = [placed(PLAIN, order) for order in itertools.permutations(DEMANDS)]
    alike = sum(len(one) == len(DEMANDS) and {row[1:] for row in one.values()} == {SHARE} for one in found)
    return {"orders of arrival": float(alike)}


def _is_table_3(found: Placed) -> bool:
    if found.keys() != DEMANDS.keys():
        return False
    on = {name: row[0] for name, row in found.items()}
    given = all(
        abs(here - wanted) < 1e-6
        for name, row in found.items()
        for here, wanted in zip(row[1:], DEMANDS[name], strict=True)
    )
    return given and on["J1"] == on["J3"] != on["J2"] == on["J4"]


def _rates(name: str) -> tuple[KnownRate, ...]:
    """Return rates that give a job the table's demand: more than its share doubles its speed, less has no effect."""
    demand = DEMANDS[name]
    more = any(wanted > share for wanted, share in zip(demand, SHARE, strict=True))
    points = [(demand, 2.0), (SHARE, 1.0)] if more else [(demand, 1.0)]
    return tuple(
        KnownRate(
            gpus=GPUS, gpu_type="V100", locality=Locality.ISLAND, rate=rate, cpus=amounts[0], memory_gib=amounts[1]
        )
        for amounts, rate in points
    )
