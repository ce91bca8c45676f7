"""OEF's tenants, each with many jobs of one model, whose speed-up on faster GPUs differs by model (OEF, §6).

The paper gives the speed-up of the RTX 3090 over the 3070 for two models: VGG 1.39, LSTM 2.15. The memory bandwidths of
these GPUs, 448 and 936 GB/s (data sheets; 760 GB/s for the 3080), have the ratio 2.09. A speed-up is assumed to be a
power of that ratio: 0.45 for VGG, 1.04 for LSTM, and evenly spaced exponents between them for the four other models.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from pydantic import Field

from eunomia.units import Ints, Reals
from eunomia_testbed.generators.drawing import derived_minutes, picked, stream
from eunomia_testbed.generators.options import Chances4, Count, GeneratorOptions, Share
from eunomia_testbed.performance import DeclaredModel, DeclaredSpeeds
from eunomia_testbed.workload import Workload

BANDWIDTH: Final[Mapping[str, float]] = {"RTX3070": 448.0, "RTX3080": 760.0, "RTX3090": 936.0}
"""Memory bandwidth in GB/s, from NVIDIA's data sheets."""
PRINTED: Final[Mapping[str, float]] = {"VGG": 1.39, "LSTM": 2.15}
"""Speed-ups of the RTX 3090 over the 3070 that the paper states (§2.2)."""
MODELS: Final = ("VGG", "ResNet", "DenseNet", "Transformer", "RNN", "LSTM")
"""The models of §6.1.2, by increasing gain from faster GPUs."""
GANGS: Final = np.array([1, 2, 4, 8], dtype=np.int64)


class OefOptions(GeneratorOptions):
    """Options of ``oef``; the defaults are those of §6.3.2."""

    tenants: Count = 50
    """Number of tenants."""
    jobs_per_tenant: float = Field(default=20.0, ge=1.0, le=10_000.0)
    """Mean number of jobs per tenant; each has at least one."""
    days: float = Field(default=3.0, gt=0.0, le=3650.0)
    """Planned length of the run, in days."""
    arriving: Share = 0.5
    """Fraction of the run over which tenants arrive, evenly spaced and each with all its jobs."""
    gpus: Count = 24
    """Number of GPUs of the cluster: 8 of each type."""
    load: float = Field(default=1.0, gt=0.0, le=1000.0)
    """The total work, as a fraction of what ``gpus`` GPUs of the slowest type do in ``days``; the paper states only
    that the contention is Philly's."""
    gpu_split: Chances4 = (0.70, 0.10, 0.20)
    """Probabilities of 1, 2, 4 and 8 GPUs (assumed: Gavel's, cut at the 4 GPUs of a host)."""


def generate(options: OefOptions, seed: int) -> Workload:
    """Draw tenants and their jobs; durations are distributed as in Philly's trace, scaled to the load.

    Raises:
        InputError: the seed is negative.
    """
    extra = stream(seed, "jobs").poisson(options.jobs_per_tenant - 1.0, options.tenants)
    owner = np.repeat(np.arange(options.tenants), 1 + extra)
    kinds = picked(stream(seed, "models"), options.tenants, [1.0] * len(MODELS))
    arrivals = np.sort(stream(seed, "arrivals").random(options.tenants)) * options.arriving * options.days * 86_400.0
    arrivals -= arrivals[0]
    gpus = GANGS[picked(stream(seed, "gpus"), owner.size, options.gpu_split)]
    seconds = _scaled(derived_minutes(stream(seed, "durations"), owner.size), gpus, options)
    width = len(str(options.tenants - 1))
    names = [f"tenant{row:0{width}d}" for row in range(options.tenants)]
    number = np.arange(owner.size) - np.concatenate([[0], np.cumsum(1 + extra)[:-1]])[owner]
    return Workload.single_jobs(
        f"oef-{options.tenants}-seed{seed}",
        ids=[f"{names[tenant]}-{job}" for tenant, job in zip(owner.tolist(), number.tolist(), strict=True)],
        users=[names[tenant] for tenant in owner.tolist()],
        arrival_seconds=arrivals[owner],
        gpus=gpus,
        iterations=np.maximum(1.0, np.floor(seconds)),
        seconds_per_iteration=np.ones(owner.size),
        models=[MODELS[kind] for kind in kinds[owner].tolist()],
        reference_type=min(BANDWIDTH, key=lambda kind: BANDWIDTH[kind]),
        source="generated as OEF's tenants",
    )


def oef_speeds() -> DeclaredSpeeds:
    """Return the models' speeds: linear in GPUs, with the speed-ups by GPU type that the module's docstring derives."""
    ratio = math.log(BANDWIDTH["RTX3090"] / BANDWIDTH["RTX3070"])
    powers = np.linspace(math.log(PRINTED["VGG"]) / ratio, math.log(PRINTED["LSTM"]) / ratio, len(MODELS))
    slowest = min(BANDWIDTH.values())
    return DeclaredSpeeds(
        {
            model: DeclaredModel(speed={kind: (amount / slowest) ** float(power) for kind, amount in BANDWIDTH.items()})
            for model, power in zip(MODELS, powers, strict=True)
        },
        place="OEF's models",
    )


def _scaled(minutes: Reals, gpus: Ints, options: OefOptions) -> Reals:
    asked = float((minutes * gpus).sum()) * 60.0
    wanted = options.load * options.gpus * options.days * 86_400.0
    scaled: Reals = minutes * 60.0 * wanted / asked
    return scaled
