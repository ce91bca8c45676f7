"""Data on Themis's workloads 1 and 2 (NSDI'20): distributions of Figures 3 and 8, the mix of Table 4, the slowdown.

The paper has only plots; the points were digitized by the public repository ``TuftsNATLab/PCS`` (MIT).
"""

from collections.abc import Mapping
from typing import Final

from eunomia_testbed.generators.drawing import Steps
from eunomia_testbed.performance import AnalyticModel, DeclaredModel, DeclaredSpeeds
from eunomia_testbed.performance.declared import COMPUTE_INTENSIVE, NETWORK_INTENSIVE

_SOURCE: Final = "Themis (NSDI'20), as read off by TuftsNATLab/PCS"

GPUS_PER_JOB: Final[Mapping[int, Steps]] = {
    1: Steps(points=((1, 0.75), (2, 0.98), (3, 1)), source=f"{_SOURCE}: Figure 8, workload 1"),
    2: Steps(points=((1, 0.20), (2, 0.38), (4, 0.98), (8, 1)), source=f"{_SOURCE}: Figure 8, workload 2"),
}
JOBS_PER_APP: Final[Mapping[int, Steps]] = {
    1: Steps(
        points=((1, 0.10), (20, 0.12), (75, 0.50), (100, 1)),
        source="Themis (NSDI'20), §2.2 and Figure 2: 10 % of one job, a median of 75, at most 100; else a few tens",
    ),
    2: Steps(
        points=((1, 0.10), (5, 0.43), (13, 0.70), (23, 0.77), (28, 0.87), (64, 0.90), (87, 0.96), (90, 1)),
        source=f"{_SOURCE}: Figure 8, workload 2; its 10 % of one job: Figure 2",
    ),
}
"""Number of jobs per app, by workload. Workload 1 is the trace of §2.2 and follows Figure 2; Figure 8, as digitized,
has a median of 47."""
TASK_SECONDS: Final = Steps(
    points=(
        *((360, 0), (1_600, 0.05), (4_000, 0.15), (15_000, 0.50)),
        *((16_800, 0.75), (20_000, 0.95), (24_000, 1)),
    ),
    source=(
        "Themis (NSDI'20), Figure 4: over all tasks a median of 3.75 hours. No public reading is known: the others are "
        "chosen so that the sums over an app agree with Figure 3, with 11.5 GPU-days and with 0.2 % and 2 % of §6.2.3"
    ),
)
"""GPU time of a task in seconds: the time that a job runs on one of its GPUs."""
GPU_SECONDS_PER_APP: Final = Steps(
    points=(
        *((3_600, 0), (9_216, 0.01), (40_284, 0.11), (108_864, 0.28), (297_072, 0.35), (447_552, 0.45)),
        *((1_028_304, 0.53), (1_291_464, 0.74), (1_696_176, 0.88), (2_176_452, 0.96), (2_625_444, 1)),
    ),
    source=f"{_SOURCE}: Figure 3",
)

MIX: Final[Mapping[str, tuple[float, tuple[str, ...]]]] = {
    "vision": (0.1, ("Inception-v3", "AlexNet", "ResNet-50", "VGG16", "VGG19")),
    "language": (0.6, ("Bi-Att-Flow", "LangModel", "GNMT", "Transformer")),
    "speech": (0.3, ("WaveNet", "DeepSpeech")),
}
"""The fraction and the models of each category in Table 4. Its models are equally frequent (an assumption; the paper
says only that they are Gandiva's)."""

MODELS: Final = tuple(model for _, models in MIX.values() for model in models)
SHARES: Final = tuple(part / len(models) for part, models in MIX.values() for _ in models)
NETWORK_INTENSIVE_MODELS: Final = frozenset(filter(AnalyticModel().is_network_intensive, MODELS))
"""Models that lose more than 5 % across two servers in the analytic model: all but Inception-v3, Bi-Att-Flow,
WaveNet."""

APPS: Final = 85
"""Number of apps in the trace that a tuning framework submitted (§2.2)."""
DAYS: Final = 14.0
"""Length of the snapshot in days (§6.1). 85 apps with the mean of Figure 3 in 14 days need 58 GPUs on average; the
paper states about 50 (§2.2)."""


def themis_speeds() -> DeclaredSpeeds:
    """Return the speeds of Themis's simulator: linear, network-intensive models slowed by 1.1 and 1.3 (footnote 3)."""
    return DeclaredSpeeds(
        {
            model: DeclaredModel(slowdown=NETWORK_INTENSIVE if model in NETWORK_INTENSIVE_MODELS else COMPUTE_INTENSIVE)
            for model in MODELS
        },
        place="Themis' Table 4",
    )
