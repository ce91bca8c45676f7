"""The extension point for another simulator's round rules, so that results compare with its published ones.

With rules, time advances in rounds. At a boundary the engine reports ended jobs to the arbiter, then all other events
of the round together with ``RoundEnded`` and the arrivals; it carries the decision out at once, gets each running job's
progress in the round from the rules, and ends the round at the time that the rules set. Between boundaries the arbiter
gets no events and no wake-ups. The costs, delays and failures of the options do not apply. The rules handle the
regimes of a workload (``admitted`` and ``changes``): the engine does not enter them by itself.

The calls at one boundary, in order::

    work, round_ends        the result of the round
    changes                 batch sizes that change at the end of the round
                            step 1: JobFinished, AppFinished (triggers no round of the arbiter)
    admitted                for each job that arrives, in order of arrival
                            step 2: Released, JobReported, Adapted, RoundEnded, AppArrived, JobAdded (a round)
"""

from collections.abc import Sequence
from typing import Protocol

from eunomia.model.shapes import builds, value
from eunomia.units import Bools, Ints, Reals
from eunomia_testbed.workload import Regime


@builds
class RoundJobs:
    """The jobs that run in a round, one row each, ordered by job row."""

    number: int
    """Number of the round, from 0."""
    began: float
    job: Ints
    """Row of the job in the workload."""
    gpus: Ints
    gpu_type: Ints
    """Type of the job's first GPU, as an index into the cluster's types."""
    iterations_left: Reals
    """Remaining work in steps at the current batch size."""
    seconds_per_iteration: Reals
    """True seconds per step at the current batch size, on the GPUs that the job holds."""
    fresh: Bools
    """Whether the job did not run in the previous round."""
    moved: Bools
    """Whether the job ran in the previous round, on other GPUs."""


@builds
class Worked:
    """The progress of the running jobs in a round, in the same rows as ``RoundJobs``."""

    iterations: Reals
    """Iterations done; if they are at least ``iterations_left``, the job ends with this round."""
    seconds: Reals
    """Seconds from the round's beginning to the job's last step: the finish time of a job that ends with the round."""
    busy_seconds: Reals | None = None
    """Run time in seconds that is charged to the job, also in the ledger; None: ``seconds``."""
    ends: Bools | None = None
    """Whether the job ends; None: it ends if no iterations are left."""


@value
class Change:
    """A job's new batch size, and its remaining work and speed from now on."""

    job: int
    batch_size: float
    iterations_left: float
    """Remaining work in steps at the new batch size."""
    seconds_per_iteration: float
    """True seconds per step from now on, with the job's gang on any GPUs."""


class Rules(Protocol):
    """The round rules of another simulator; one object serves one run at a time, and ``begin`` resets it."""

    def begin(self, jobs: int, seed: int) -> None:
        """Reset the rules for a run with this number of jobs and this seed."""
        ...

    def admitted(self, job: int, now: float) -> Change | None:
        """Return the initial batch size, work and speed of an arriving job, if they differ from the workload's."""
        ...

    def coming(self, job: int) -> Sequence[Regime]:
        """Return the job's future regimes, in steps of its current batch size and seconds per such step.

        The engine calls this only if app masters know regimes: when a job arrives, and after each of its changes.
        """
        ...

    def work(self, running: RoundJobs) -> Worked:
        """Return the progress of each running job in this round."""
        ...

    def round_ends(self, running: RoundJobs, worked: Worked) -> float:
        """Return the end of the round in seconds, which must be later than its beginning."""
        ...

    def next_round(self, now: float, next_arrival: float) -> float:
        """Return the start of the round after one in which no job runs; after the first, it is later than ``now``."""
        ...

    def changes(self, running: RoundJobs, worked: Worked, active: Ints) -> list[Change]:
        """Return the changes of batch size at this round's end, among the active jobs (rows arrived and not over)."""
        ...
