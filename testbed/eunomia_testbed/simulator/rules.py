"""The extension point for the round rules of another simulator, so that results can be held against published ones.

With rules, time goes in rounds. At a boundary the engine tells the arbiter who ended, then everything else that
happened in the round together with ``RoundEnded`` and those who arrived; it carries the decision out at once, asks the
rules what each running job does in the round, and lets the round end when the rules say so. Between boundaries the
arbiter hears nothing, wake-ups included. Costs, delays and failures of the options do not apply, and a workload's
regimes are the rules' business (``admitted`` and ``changes``): the engine does not walk through them by itself.

The order of what one boundary brings is the order of calls here::

    work, round_ends        what the round comes to
    changes                 whose batch size changes with its end
                            step 1: JobFinished, AppFinished of those who ended (no round of the arbiter)
    admitted                for each job that arrives, in order of arrival
                            step 2: Released, JobReported, Adapted, RoundEnded, AppArrived, JobAdded (a round)
"""

from typing import Protocol

from eunomia.shapes import builds, value
from eunomia.units import Bools, Ints, Reals


@builds
class RoundJobs:
    """The jobs that run in a round, a row each, by job row."""

    number: int
    """Of the round, from 0."""
    began: float
    job: Ints
    """Row of the workload."""
    gpus: Ints
    gpu_type: Ints
    """Index into the cluster's types; of the first GPU."""
    iterations_left: Reals
    """In steps of the present batch size."""
    seconds_per_iteration: Reals
    """True, of the present batch size, on the GPUs that it has."""
    fresh: Bools
    """Did not run in the round before."""
    moved: Bools
    """Ran in the round before, on other GPUs."""


@builds
class Worked:
    """What those jobs do in the round, a row each, in the same order."""

    iterations: Reals
    """At least ``iterations_left``: the job ends with this round."""
    seconds: Reals
    """From the round's beginning: when it stops making steps; a job that ends has this as its finish."""
    busy_seconds: Reals | None = None
    """Run time that is booked for it, by the ledger too; None: ``seconds``."""
    ends: Bools | None = None
    """Whether it ends; None: where no iterations are left."""


@value
class Change:
    """A job's batch size, and what follows from it, from now on."""

    job: int
    batch_size: float
    iterations_left: float
    """In steps of this batch size."""
    seconds_per_iteration: float
    """At its gang: the truth from now on, on any GPUs."""


class Rules(Protocol):
    """Rounds as a peer has them. One object serves one run at a time: ``begin`` starts it anew."""

    def begin(self, jobs: int, seed: int) -> None:
        """Hear that a run of so many jobs begins."""
        ...

    def admitted(self, job: int, now: float) -> Change | None:
        """Hear that a job arrives with this boundary; say what it starts with, where the workload tells otherwise."""
        ...

    def work(self, running: RoundJobs) -> Worked:
        """Say what each running job does in this round."""
        ...

    def round_ends(self, running: RoundJobs, worked: Worked) -> float:
        """Say when the round ends: later than it began."""
        ...

    def next_round(self, now: float, next_arrival: float) -> float:
        """Say when the next round begins where nothing runs: at least ``now``; inf: never."""
        ...

    def changes(self, running: RoundJobs, worked: Worked, active: Ints) -> list[Change]:
        """Say whose batch size changes with this round's end, of all jobs (rows) that are here and not over."""
        ...
