"""Checkpoints that a job takes by itself while it runs: after so many seconds of steps it stands until one is taken.

No event is needed for them: how far a run is after some time, and when it ends, is read off its place in the cycle of
steps and saving.
"""

import math


class PeriodicSaves:
    """Where every job is in its cycle, and what its last checkpoint holds.

    A run that follows the end of one at the same moment on the same GPUs, such as that of a trial which is to go on,
    goes on in its cycle; any other begins one, from the checkpoint with which its job left its last GPUs.

    Args:
        jobs: how many there are.
        every: seconds of steps between two checkpoints; above 0.
        takes: seconds of one, in which no step is made; may be 0.
    """

    def __init__(self, jobs: int, every: float, takes: float) -> None:
        self._every, self._takes = every, takes
        self._cycle = every + takes
        self._at = [0.0] * jobs
        """By job, its place in the cycle when it last began or ended: up to ``every`` it makes steps, then it saves."""
        self._saved = [0.0] * jobs
        """By job, the iterations that its last checkpoint holds."""
        self._stood: list[tuple[float, tuple[int, ...]]] = [(math.nan, ())] * jobs

    @property
    def part(self) -> float:
        """The part of a long run in which steps are made."""
        return self._every / self._cycle

    def saved(self, job: int) -> float:
        """Return the iterations that a job's last checkpoint holds."""
        return self._saved[job]

    def forget(self, job: int) -> None:
        """Let a job's next run begin a cycle, wherever it begins."""
        self._stood[job] = (math.nan, ())

    def go(self, job: int, now: float, gpus: tuple[int, ...], done: float) -> None:
        """A job with so many iterations done begins to run."""
        if self._stood[job] != (now, gpus):
            self._at[job], self._saved[job] = 0.0, done

    def lasts(self, job: int, steps: float) -> float:
        """Return in how many seconds a job that begins now has made so many seconds of steps.

        A checkpoint that is due when they are made is not waited for.
        """
        whole = self._steps_at(self._at[job]) + steps
        before = max(0, math.ceil(whole / self._every) - 1)
        return max(0.0, whole + before * self._takes - self._at[job])

    def steps(self, job: int, ran: float) -> float:
        """Return how many seconds of steps a job has made, so many seconds after it began."""
        return self._steps_at(self._at[job] + ran) - self._steps_at(self._at[job])

    def stop(self, job: int, now: float, gpus: tuple[int, ...], *, ran: float, pace: float, done: float) -> float:
        """A job stands after a run; return how many seconds of steps it made.

        Args:
            job: row.
            now: the time.
            gpus: it ran on.
            ran: for how many seconds.
            pace: seconds an iteration.
            done: iterations before the run.
        """
        before = self._steps_at(self._at[job])
        place = self._at[job] + ran
        cycles = math.floor(place / self._cycle)
        if cycles and pace < math.inf:
            self._saved[job] = done + (cycles * self._every - before) / pace
        steps = self._steps_at(place) - before
        self._at[job], self._stood[job] = place - cycles * self._cycle, (now, gpus)
        return steps

    def _steps_at(self, place: float) -> float:
        cycles = math.floor(place / self._cycle)
        return cycles * self._every + min(self._every, place - cycles * self._cycle)
