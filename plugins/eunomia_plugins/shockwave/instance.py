"""The programme of a plan: values by rounds granted, the makespan bound, and capacity (equations 8, 10 and 11)."""

import dataclasses

import numpy as np

from eunomia.units import Ints, Reals


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """Jobs to plan for a window of T rounds on M GPUs, one entry or row per job."""

    gpus: Ints
    """Size of the gang."""
    value: Reals
    """[job, rounds granted] weight times the logarithm of utility; more rounds never lower it."""
    left: Reals
    """Seconds that the job still has to run at the start of the window."""
    total: Reals
    """Total run time in seconds."""
    capacity: int
    """Number of GPUs, M."""
    seconds: float
    """Length of a round in seconds, D."""
    regularizer: float
    """Weight of the makespan bound, λ."""
    by_gpus: bool = False
    """Whether the sum in H counts GPU-seconds; else seconds, as in equation (10)."""

    @property
    def rounds(self) -> int:
        """Number of rounds in the window, T."""
        return int(self.value.shape[1]) - 1

    @property
    def jobs(self) -> int:
        """Number of jobs, N."""
        return int(self.gpus.size)

    @property
    def scale(self) -> float:
        """N M: the objective of equation (11) is multiplied by it, since solvers assume values of order one."""
        return float(max(1, self.jobs) * max(1, self.capacity))

    @property
    def price(self) -> float:
        """Return λ N M / Z0: how much one second of H lowers the objective, times N M."""
        return self.regularizer * self.scale / max(float(self.total.sum()), 1.0)

    @property
    def part(self) -> Reals:
        """Return by job the seconds of the mean in H per second left: 1 / M, or its gang over M."""
        gang = self.gpus if self.by_gpus else np.ones(self.jobs)
        return gang / max(1.0, float(self.capacity))

    @property
    def useful(self) -> Ints:
        """Return by job the rounds of the window in which it has work."""
        found: Ints = np.clip(np.ceil(self.left / self.seconds - 1e-9), 0, self.rounds).astype(np.int64)
        return found

    def remaining(self) -> Reals:
        """Return [job, rounds granted] seconds left after the window, R."""
        return np.maximum(self.left[:, None] - self.seconds * np.arange(self.rounds + 1), 0.0)

    def terms(self, counts: Ints) -> tuple[float, float]:
        """Return both terms of H in seconds: the work of all jobs spread over the GPUs, and the longest job's."""
        left = np.maximum(self.left - self.seconds * counts, 0.0)
        return float(self.part @ left), float(left.max(initial=0.0))

    def objective(self, counts: Ints) -> float:
        """Equation (11) times N M.

        Args:
            counts: by job, rounds granted within the window.
        """
        return float(self.value[np.arange(self.jobs), counts].sum()) - self.price * max(self.terms(counts))


def logarithmic(utility: Reals, weight: Reals, points: tuple[float, ...], origin: float) -> Reals:
    """Return [job, rounds] weight times the piecewise-linear logarithm of utility (equation 8).

    Args:
        utility: [job, rounds] from 0 on; a last round that counts as a whole one may end above 1.
        weight: by job.
        points: utilities between which the logarithm is linear, ascending from 0 to 1.
        origin: utility that replaces 0 in the logarithm.
    """
    log = np.log(np.maximum(points, origin))
    beyond = (log[-1] - log[-2]) / (points[-1] - points[-2])
    over = np.maximum(utility - points[-1], 0.0)
    found: Reals = weight[:, None] * (np.interp(utility, points, log) + beyond * over)
    return found
