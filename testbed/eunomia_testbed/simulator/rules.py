"""The extension point for the round rules of another simulator, so that results can be held against published ones.

With rules, time goes in rounds: the engine tells the arbiter what happened in the last round together with
``RoundEnded``, carries the decision out at once, asks the rules what each job does in the round, and lets the round
end when the rules say so. Costs, delays and failures of the options do not apply.
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
    """Index into the cluster's types."""
    iterations_left: Reals
    seconds_per_iteration: Reals
    """True, of the present batch size, on the GPUs that it has."""
    fresh: Bools
    """Did not run in the round before."""


@builds
class Worked:
    """What those jobs do in the round, a row each, in the same order."""

    iterations: Reals
    """At least ``iterations_left``: the job ends with this round."""
    seconds: Reals
    """From the round's beginning: when it stops making steps; a job that ends has this as its finish."""
    busy_seconds: Reals | None = None
    """Run time that is booked for it; None: ``seconds``."""


@value
class Change:
    """A job whose batch size changes with the round's end."""

    job: int
    batch_size: float
    iterations_left: float
    seconds_per_iteration: float
    """At its gang; the truth from now on."""


class Rules(Protocol):
    """Rounds as a peer has them. One object serves one run at a time: ``begin`` starts it anew."""

    def begin(self, jobs: int, seed: int) -> None:
        """Hear that a run of so many jobs begins."""
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
        """Say whose batch size changes with this round's end, of all active jobs (rows)."""
        ...
