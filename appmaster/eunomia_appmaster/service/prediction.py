"""Predicts the finish-time fairness of a live app: its total time over its time with an equal share.

The ρ by which an auction ranks apps is a priority: it grows while an app waits, so that the app gets its turn. It tells
little about the app's final fairness. The ρ shown to users is a prediction instead: T_sh is the time since the app
arrived, plus a lease of waiting if it holds no GPU, plus the time of its remaining work on 1/N of the GPUs at the
efficiency measured so far; T_id is that of Themis (equations 1 and 2), with N_avg over the predicted whole life.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from eunomia.contract.snapshot import Snapshot
from eunomia.model.forecasts import Forecast, Phase
from eunomia.model.shapes import value
from eunomia.units import Seconds

EXPECTED_PART: Final = 0.1
"""Weight of an assumed efficiency of 1, as a fraction of the app's total work; measured work outweighs it later."""
LEAST_EFFICIENCY: Final = 0.05


@value
class Share:
    """The service that an app has received so far, and the cluster that it shares.

    Attributes:
        elapsed: seconds since the app arrived.
        contention: mean number of apps since then; at least 1.
        apps: number of apps that share the cluster now, including this one.
        gpus: number of GPUs of the cluster.
        leased: GPU-seconds that the app has leased so far.
        wait: expected seconds until the app holds GPUs; 0 if it holds some.
    """

    elapsed: float
    contention: float
    apps: int
    gpus: int
    leased: float
    wait: float


def expected_rho(forecast: Forecast, share: Share) -> float:
    """Return an app's expected T_sh / T_id; less is better, at most 1 is fair."""
    total = max(forecast.total_gpu_seconds, 1e-9)
    apps = max(1, share.apps)
    remaining = sum(map(_work, forecast.phases))
    done = max(0.0, total - remaining)
    prior = EXPECTED_PART * total
    efficiency = min(1.0, max(LEAST_EFFICIENCY, (done + prior) / (share.leased + prior)))
    left = sum(_seconds(phase, share.gpus / apps) for phase in forecast.phases) / efficiency
    left += share.wait if remaining > 0.0 else 0.0
    life = max(share.elapsed + left, 1e-9)
    contention = (max(1.0, share.contention) * share.elapsed + apps * left) / life
    return life / (total / max(1, min(share.gpus, forecast.most)) * max(1.0, contention))


def expected_rhos(snapshot: Snapshot, forecasts: Mapping[int, Forecast], lease: Seconds) -> dict[str, float]:
    """Return the expected ρ by app id, for the apps that have reported their remaining work.

    Args:
        snapshot: the present state.
        forecasts: forecasts of apps, by app row.
        lease: length of a lease in seconds; infinite: unlimited.
    """
    held = set(snapshot.holdings.app[: snapshot.cluster.gpus].tolist())
    ledger, here = snapshot.ledger.apps, int(snapshot.active_apps.size)
    wait = float(lease) if np.isfinite(lease) else 0.0
    found: dict[str, float] = {}
    for row, forecast in forecasts.items():
        share = Share(
            elapsed=max(0.0, snapshot.now - float(snapshot.apps.arrived[row])),
            contention=float(np.nan_to_num(ledger.contention[row], nan=1.0)),
            apps=here,
            gpus=int(snapshot.cluster.capacity.sum()),
            leased=float(ledger.gpu_seconds[row]),
            wait=0.0 if row in held else wait,
        )
        found[str(snapshot.apps.id[row])] = expected_rho(forecast, share)
    return found


def _work(phase: Phase) -> float:
    """Return the remaining serial GPU-seconds of a phase."""
    return sum(job.iterations_left * job.seconds_per_iteration for job in phase.jobs)


def _seconds(phase: Phase, gpus: float) -> float:
    """Return the seconds that a phase takes on ``gpus`` GPUs; no job uses more than its largest size."""
    jobs = [job for job in phase.jobs if job.iterations_left > 0.0]
    if not jobs:
        return 0.0
    longest = max(job.iterations_left * job.seconds_per_iteration / min(job.most, max(1.0, gpus)) for job in jobs)
    return max(longest, _work(phase) / min(gpus, sum(job.most for job in jobs)))
