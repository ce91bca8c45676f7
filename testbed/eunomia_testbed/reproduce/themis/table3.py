"""Reproduces Table 3 of Themis, the example of §4.3.3, by the auction of a simulation."""

import numpy as np

from eunomia.model.cluster import Cluster
from eunomia_testbed.reproduce.recipes import Recipe, run_profile
from eunomia_testbed.simulator import SimulationOptions, simulate_one
from eunomia_testbed.workload import AppColumns, JobColumns, SimulatedSearch, UserColumns, Workload

SECONDS = (120.0, 100.0, 100.0, 80.0)
"""Serial seconds of an iteration, for each trial."""


def example() -> Workload:
    """Return four apps for 16 GPUs; the first is that of §4.3.3: four trials, three phases of 8, 16 and 36 iterations.

    The slowest trial comes first, so that two GPUs finish the first phase in 1600 s, as in the paper.
    """
    ids = ["example", "other1", "other2", "other3"]
    first = len(SECONDS)
    count = first + 3
    most = np.array([8] * first + [4] * 3, dtype=np.int64)
    return Workload(
        name="themis-example",
        users=UserColumns(id=ids, weight=np.ones(4)),
        apps=AppColumns(id=ids, user=np.arange(4), weight=np.ones(4), arrival_seconds=np.zeros(4)),
        jobs=JobColumns(
            id=[*(f"example/{trial}" for trial in range(1, first + 1)), *(f"{name}/1" for name in ids[1:])],
            app=np.array([0] * first + [1, 2, 3], dtype=np.int64),
            arrival_seconds=np.zeros(count),
            least=np.ones(count, dtype=np.int64),
            most=most,
            iterations=np.array([60.0] * first + [1e5] * 3),
            seconds_per_iteration=np.array([*(seconds / 8 for seconds in SECONDS), 1.0, 1.0, 1.0]),
            model=np.full(count, -1, dtype=np.int64),
        ),
        searches={
            0: SimulatedSearch(
                tuner="successive_halving",
                options={"rungs": "equal_budget", "demand": "full"},
                # The trial of 120 s and one of 100 s continue.
                curves=((0.1, 1.0, 0.5), (0.2, 1.0, 0.5), (0.3, 1.0, 0.5), (0.4, 1.0, 0.5)),
            )
        },
        source="Themis §4.3.3",
    )


def bid_table() -> dict[str, float]:
    """Return ρ by number of GPUs, such as ``4 GPUs``, from the example app's bids in a simulation's first auction."""
    settings = {"rounds.bid_deadline": "none", "plugins.themis.fairness_knob": 0.0}
    profile = run_profile(Recipe(policy="themis", preset="themis", settings=settings))
    run = simulate_one(example(), Cluster.parse("1x16 V100"), profile, options=SimulationOptions(until=1.0))
    _, _, record = run.records["themis"][0]
    columns = record.columns
    at = list(columns["app"]).index("example")
    table = str(columns["bid_table"][at])
    bids = {int(size): float(rho) for size, rho in (part.split(":") for part in table.split(","))}
    return {f"{size} GPUs": bids[size] for size in (1, 2, 4, 8, 16)}
