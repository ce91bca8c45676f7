"""An auction over the bids finds the best division of all GPUs, where each app can use few numbers of them."""

import itertools
import math

import numpy as np
import pytest

from eunomia.contract.bundles import ByBundle, MachineClasses
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Locality
from eunomia_plugins.themis.auction import run_auction
from eunomia_plugins.themis.bundles import FEW_SIZES
from eunomia_plugins.themis.rho import BidContext, bid, rho, rho_now
from eunomia_plugins.themis.work import RemainingWork

INSTANCES = 100
ONE_MACHINE = MachineClasses.of(machine=[0], free=[FEW_SIZES], gpu_type=[0], rack=[0])
Bidder = tuple[RemainingWork, BidContext]


def bidder(luck: np.random.Generator) -> Bidder:
    """An app of one to three jobs of different lengths, without GPUs."""
    jobs = int(luck.integers(1, 4))
    phase = Phase(
        jobs=tuple(
            JobForecast(
                iterations_left=float(luck.uniform(50.0, 500.0)),
                seconds_per_iteration=1.0,
                most=int(luck.integers(1, FEW_SIZES + 1)),
            )
            for _ in range(jobs)
        )
    )
    most = min(FEW_SIZES, sum(job.most for job in phase.jobs))
    context = BidContext(
        elapsed=float(luck.uniform(0.0, 500.0)),
        waited=0.0,
        ideal=float(luck.uniform(100.0, 800.0)),
        lease=60.0,
        usable=np.arange(1, most + 1),
        gpu_type=-1,
        held={},
        rack_of={},
    )
    return RemainingWork(Forecast(phases=(phase,), total_gpu_seconds=1.0, most=most)), context


def gain(app: Bidder, gpus: int) -> float:
    work, context = app
    if gpus == 0:
        return 0.0
    left = work.seconds([gpus], Locality.MACHINE, Locality.MACHINE)
    return math.log(rho_now(work, context) / rho(left, context))


def best_of_all(apps: list[Bidder]) -> float:
    sizes = [range(int(context.usable[-1]) + 1) for _, context in apps]
    gains = [[gain(app, size) for size in span] for app, span in zip(apps, sizes, strict=True)]
    divisions = (chosen for chosen in itertools.product(*sizes) if sum(chosen) <= FEW_SIZES)
    return max(sum(row[size] for row, size in zip(gains, chosen, strict=True)) for chosen in divisions)


@pytest.mark.parametrize("seed", range(4))
def test_the_auction_over_bids_equals_the_best_division(seed: int) -> None:
    luck = np.random.default_rng(seed)
    for _ in range(INSTANCES // 4):
        apps = [bidder(luck) for _ in range(int(luck.integers(2, 4)))]
        bids = [bid(work, context, ONE_MACHINE) for work, context in apps]
        table = ByBundle.of(ONE_MACHINE, [rho_now(work, context) for work, context in apps], bids)
        assert run_auction(table).objective == pytest.approx(best_of_all(apps), abs=1e-9)
