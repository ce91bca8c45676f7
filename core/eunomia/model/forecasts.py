"""Forecasts of an app's remaining work (Themis §4.3.1 and §4.3.2): app masters report them, valuations read them."""

from eunomia.model.shapes import value
from eunomia.units import Locality

ASSUMED_SLOWDOWN = (1.0, 1.0, 1.1, 1.3)
"""Themis' S(G) by locality, used until S is measured (§4.3.1, footnote 3): island, machine, rack, cluster."""


@value
class JobForecast:
    """The remaining work of one job of a phase: Themis' ``JobInfo`` (Figure 7)."""

    iterations_left: float
    """Remaining iterations of the job in this phase."""
    seconds_per_iteration: float
    """Duration of an iteration in seconds on one GPU, without slowdown."""
    least: int = 1
    """Smallest gang of the job, in GPUs."""
    most: int = 1
    """job_demand_max: the number of GPUs beyond which the job gains no speed."""
    slowdown: tuple[float, float, float, float] | None = None
    """Measured S by locality (island, machine, rack, cluster), each at least 1; None: not measured."""

    def slowdown_at(self, locality: Locality, assumed: tuple[float, float, float, float] = ASSUMED_SLOWDOWN) -> float:
        """Return S(G) at a locality: the measured value, or else the assumed one."""
        return (self.slowdown or assumed)[locality]


@value
class Phase:
    """A set of jobs that run concurrently; the phase ends when the last of them completes its iterations."""

    jobs: tuple[JobForecast, ...]


@value
class LossCurve:
    """A job's fitted loss after some iterations: ``asymptote + amplitude * (iterations + 1) ** -exponent``."""

    job: str
    asymptote: float
    amplitude: float
    exponent: float


@value
class Forecast:
    """An app's remaining phases, the current one first, and its total work.

    A single training run has one phase with one job. Successive halving has log2 n + 1 phases: the current one contains
    the remaining work of its jobs, later ones contain copies of the median job (§4.3.2). Curve stopping has one phase,
    whose jobs end where the most optimistic curve converges.
    """

    phases: tuple[Phase, ...]
    total_gpu_seconds: float
    """Themis' B: the work of the whole app in serial GPU-seconds, including the work already done."""
    most: int
    """app_demand_max: the maximum number of GPUs that the app can use at once in any phase."""
    losses: tuple[LossCurve, ...] = ()
    """Loss curves of the app's jobs, if the app fits them; used by valuations of quality (SLAQ)."""
