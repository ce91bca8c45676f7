"""The state, first start, end and total wait of every job of a run."""

import math
from typing import Final

from eunomia.units import Seconds
from eunomia_testbed.simulator.logs.logs import WaitLogger

AWAITED: Final = "awaited"
WAITING: Final = "waiting"
RUNNING: Final = "running"
PAUSED: Final = "paused"
FINISHED: Final = "finished"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
REJECTED: Final = "rejected"
OVER: Final = frozenset({FINISHED, STOPPED, FAILED, REJECTED})


class JobStates:
    """The state of each job, by row; a job that holds GPUs counts as running, whether or not it makes steps.

    Args:
        most: the largest gang of each job.
        waits: the log of waits; None: not kept.
    """

    def __init__(self, most: list[int], waits: WaitLogger | None) -> None:
        count = len(most)
        self.state = [AWAITED] * count
        self.start = [math.nan] * count
        self.finish = [math.nan] * count
        self.wait_seconds = [0.0] * count
        self.waiting = self.waiting_gpus = self.running = self.over = 0
        self.moves = 0
        """Number of starts, ends, arrivals and pauses so far."""
        self._since = [math.nan] * count
        self._most, self._waits = most, waits

    def is_over(self, job: int) -> bool:
        """Return whether a job has ended, successfully or not."""
        return self.state[job] in OVER

    def wait(self, job: int, now: float) -> None:
        """Record that a job waits from now on."""
        self.state[job] = WAITING
        self._since[job] = now
        self.waiting += 1
        self.waiting_gpus += self._most[job]
        self.moves += 1
        if self._waits is not None:
            self._waits.begin(job, now, "awaiting_round")

    def got_gpus(self, job: int, now: Seconds) -> None:
        """Record that a job holds GPUs from now on."""
        if self.state[job] != WAITING:
            return
        self._end_wait(job, now)
        self.running += 1
        self.state[job] = RUNNING
        self.moves += 1
        if self.start[job] != self.start[job]:
            self.start[job] = now

    def left_gpus(self, job: int, now: Seconds) -> None:
        """Record that a job no longer holds GPUs."""
        if self.state[job] == RUNNING:
            self.running -= 1
            self.wait(job, now)

    def pause(self, job: int, now: float) -> None:
        """Record that its app master has paused a job."""
        self._settle(job, now)
        self.state[job] = PAUSED

    def close(self, job: int, state: str, at: float) -> None:
        """Record a job's end in one of the states of ``OVER``, at a time in seconds."""
        self._settle(job, at)
        self.state[job] = state
        self.finish[job] = at
        self.over += 1

    def still_waits(self, job: int, now: float) -> None:
        """Add the wait of a job that is still waiting at the end of the run."""
        self.wait_seconds[job] += now - self._since[job]

    def _settle(self, job: int, now: float) -> None:
        """Remove a job from the counts of waiting and running jobs."""
        self.moves += 1
        if self.state[job] == RUNNING:
            self.running -= 1
        elif self.state[job] == WAITING:
            self._end_wait(job, now)

    def _end_wait(self, job: int, now: float) -> None:
        waited = now - self._since[job]
        if waited > 0.0:
            self.wait_seconds[job] += waited
        self.waiting -= 1
        self.waiting_gpus -= self._most[job]
        if self._waits is not None:
            self._waits.end(job, now)
