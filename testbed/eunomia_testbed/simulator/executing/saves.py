"""Periodic checkpoints: after a number of seconds of steps, a job pauses until its checkpoint is saved.

They need no events: a run's progress and end are computed from its position in the cycle of steps and saving.
"""

import math


class PeriodicSaves:
    """The position of every job in its checkpoint cycle, and the iterations at its last checkpoint.

    A run that follows another at the same time on the same GPUs, such as the next rung of a trial, continues the cycle;
    any other run begins a new cycle, from the checkpoint that its job saved when it left its last GPUs.

    Args:
        jobs: number of jobs.
        every: seconds of steps between two checkpoints; above 0.
        save_seconds: seconds to save a checkpoint, in which the job makes no step; may be 0.
    """

    def __init__(self, jobs: int, every: float, save_seconds: float) -> None:
        self._every, self._save_seconds = every, save_seconds
        self._cycle = every + save_seconds
        self._at = [0.0] * jobs
        """Position of each job in the cycle when its run last began or ended, in seconds: steps up to ``every``, then
        saving."""
        self._saved = [0.0] * jobs
        """Iterations of each job at its last checkpoint."""
        self._stood: list[tuple[float, tuple[int, ...]]] = [(math.nan, ())] * jobs

    @property
    def part(self) -> float:
        """Return the fraction of a long run in which the job makes steps."""
        return self._every / self._cycle

    def saved(self, job: int) -> float:
        """Return a job's iterations at its last checkpoint."""
        return self._saved[job]

    def forget(self, job: int) -> None:
        """Discard where a job's last run ended, so that the next run begins a new cycle."""
        self._stood[job] = (math.nan, ())

    def go(self, job: int, now: float, gpus: tuple[int, ...], done: float) -> None:
        """Start a run of a job that has done ``done`` iterations."""
        if self._stood[job] != (now, gpus):
            self._at[job], self._saved[job] = 0.0, done

    def lasts(self, job: int, steps: float) -> float:
        """Return the seconds that a job starting now needs for some seconds of steps, including checkpoints.

        A checkpoint that is due exactly at the end does not count.
        """
        whole = self._steps_at(self._at[job]) + steps
        before = max(0, math.ceil(whole / self._every) - 1)
        return max(0.0, whole + before * self._save_seconds - self._at[job])

    def steps(self, job: int, ran: float) -> float:
        """Return the seconds of steps that a job has made within ``ran`` seconds after its start."""
        return self._steps_at(self._at[job] + ran) - self._steps_at(self._at[job])

    def stop(self, job: int, now: float, gpus: tuple[int, ...], *, ran: float, pace: float, done: float) -> float:
        """End a job's run; return the seconds of steps that it made.

        Args:
            job: row of the job.
            now: the time in seconds.
            gpus: the GPUs on which it ran.
            ran: seconds for which it ran.
            pace: seconds per iteration.
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
