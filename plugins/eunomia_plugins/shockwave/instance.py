"""The programme of a plan: values by number of rounds, the makespan bound, and capacity (equations 8, 10 and 11)."""

import dataclasses

import numpy as np

from eunomia.units import Ints, Reals


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instance:
    """The jobs to plan for a window of T rounds on M GPUs, one entry or row per job."""

    gpus: Ints
    """[job] size of the gang."""
    value: Reals
    """[job, rounds granted] weight times the logarithm of utility, which never decreases with more rounds."""
    left: Reals
    """[job] remaining run time in seconds at the start of the window."""
    total: Reals
    """[job] total run time in seconds."""
    capacity: int
    """Number of GPUs, M."""
    seconds: float
    """Length of a round in seconds, D."""
    regularizer: float
    """Weight of the makespan bound, λ."""
    by_gpus: bool = False
    """Whether the sum in H is in GPU-seconds; if not, it is in seconds, as in equation (10)."""

    @property
    def rounds(self) -> int:
        """Return the number of rounds in the window, T."""
        return int(self.value.shape[1]) - 1

    @property
    def jobs(self) -> int:
        """Return the number of jobs, N."""
        return int(self.gpus.size)

    @property
    def scale(self) -> float:
        """Return N M, by which the objective of equation (11) is multiplied, as solvers assume values of order one."""
        return float(max(1, self.jobs) * max(1, self.capacity))

    @property
    def price(self) -> float:
        """Return λ N M / Z0, the decrease of the objective (times N M) per second of H."""
        return self.regularizer * self.scale / max(float(self.total.sum()), 1.0)

    @property
    def part(self) -> Reals:
        """Return what one second of each job's remaining time adds to the mean in H: 1 / M, or its gang size / M."""
        gang = self.gpus if self.by_gpus else np.ones(self.jobs)
        return gang / max(1.0, float(self.capacity))

    @property
    def useful(self) -> Ints:
        """Return the number of rounds of the window in which each job has work."""
        found: Ints = np.clip(np.ceil(self.left / self.seconds - 1e-9), 0, self.rounds).astype(np.int64)
        return found

    def remaining(self) -> Reals:
        """Return R: each job's seconds of work left after the window, [job, rounds granted]."""
        return np.maximum(self.left[:, None] - self.seconds * np.arange(self.rounds + 1), 0.0)

    def terms(self, counts: Ints) -> tuple[float, float]:
        """Return both terms of H in seconds: all jobs' work spread over the GPUs, and the longest job's time left."""
        left = np.maximum(self.left - self.seconds * counts, 0.0)
        return float(self.part @ left), float(left.max(initial=0.0))

    def objective(self, counts: Ints) -> float:
        """Return the objective, equation (11), times N M.

        Args:
            counts: [job] rounds granted within the window.
        """
        return float(self.value[np.arange(self.jobs), counts].sum()) - self.price * max(self.terms(counts))


def logarithmic(utility: Reals, weight: Reals, points: tuple[float, ...], origin: float) -> Reals:
    """Return weight times the piecewise-linear logarithm of utility (equation 8), [job, rounds].

    Args:
        utility: [job, rounds] utility after 0 or more rounds; it may exceed 1 as a job's last round counts as whole.
        weight: [job] weight.
        points: utilities between which the logarithm is linear, ascending from 0 to 1.
        origin: utility that replaces 0 in the logarithm.
    """
    log = np.log(np.maximum(points, origin))
    beyond = (log[-1] - log[-2]) / (points[-1] - points[-2])
    over = np.maximum(utility - points[-1], 0.0)
    found: Reals = weight[:, None] * (np.interp(utility, points, log) + beyond * over)
    return found
