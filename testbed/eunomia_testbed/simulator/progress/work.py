"""The true progress of every job: iterations done, current speed, and the time of the next change."""

import math

from eunomia_testbed.simulator.agenda import Agenda
from eunomia_testbed.simulator.executing.saves import PeriodicSaves
from eunomia_testbed.simulator.logs.logs import SegmentLogger
from eunomia_testbed.simulator.progress.truth import Speeds
from eunomia_testbed.workload import Regime, Workload

NOWHERE: tuple[int, ...] = ()


class Work:
    """The progress of each job by row, in plain lists, since reading one costs less than reading a numpy scalar.

    Args:
        workload: the workload with the jobs.
        speeds: the true speeds.
        agenda: the event queue, in which the ends of runs are scheduled.
        checkpoint_every: seconds between two checkpoints of a running job, which cost nothing.
        saves: checkpoints that take time, instead of those without cost; None: there are none.
        segments: the log of runs; None: not kept.
    """

    def __init__(
        self,
        workload: Workload,
        speeds: Speeds,
        agenda: Agenda,
        *,
        checkpoint_every: float = math.inf,
        saves: PeriodicSaves | None = None,
        segments: SegmentLogger | None = None,
    ) -> None:
        count = workload.size
        self.speeds = speeds
        self.total: list[float] = workload.jobs.iterations.tolist()
        self.done = [0.0] * count
        self.goal: list[float] = list(self.total)
        """Iterations up to which each job runs before its app master decides how it continues."""
        self.border: list[float] = list(self.total)
        """Iterations at which each job's current regime ends, or its goal if that comes first."""
        self.regime = [0] * count
        self.since = [math.nan] * count
        self.pace = [math.inf] * count
        """Seconds per iteration of each job while it runs."""
        self.on: list[tuple[int, ...]] = [NOWHERE] * count
        """The GPUs on which each job makes steps now."""
        self.turn = [0] * count
        self.run_seconds = [0.0] * count
        self.lost = [0.0] * count
        self.by_rules = False
        """Whether a peer's round rules set the progress in each round; runs then do not end by themselves."""
        self._set_pace: dict[int, float] = {}
        self._run_shares: dict[int, tuple[float | None, float | None]] = {}
        """CPUs and memory in GiB per GPU of each job's last run, if they are not its machine's share."""
        self._agenda = agenda
        self._every, self._saves = checkpoint_every, saves
        self._plain = speeds.plain and not workload.regimes
        """Whether speed depends only on the number of GPUs."""
        self._segments = segments
        for job in workload.regimes:
            self._set_border(job)

    def go(
        self, job: int, now: float, gpus: tuple[int, ...], cpus: float | None = None, memory_gib: float | None = None
    ) -> None:
        """Start a stopped job; CPUs and memory in GiB are per GPU, None: the machine's share."""
        if cpus is not None or memory_gib is not None:
            self._run_shares[job] = cpus, memory_gib
        elif self._run_shares:
            self._run_shares.pop(job, None)
        if job in self._set_pace:
            pace = self._set_pace[job]
        elif self._plain:
            pace = self.speeds.by_count(job, len(gpus))
        else:
            pace = self._pace(job, gpus, cpus, memory_gib)
        self.on[job] = gpus
        self.since[job] = now
        self.pace[job] = pace
        turn = self.turn[job] = self.turn[job] + 1
        saves = self._saves
        if saves is not None:
            saves.go(job, now, gpus, self.done[job])
        if pace < math.inf and not self.by_rules:
            seconds = (self.border[job] - self.done[job]) * pace
            self._agenda.end(now + (seconds if saves is None else saves.lasts(job, seconds)), job, turn)

    def go_on(self, job: int, now: float, gpus: tuple[int, ...]) -> None:
        """Restart a stopped job with the CPUs and memory of its last run."""
        self.go(job, now, gpus, *self._run_shares.get(job, (None, None)))

    def _pace(self, job: int, gpus: tuple[int, ...], cpus: float | None, memory_gib: float | None) -> float:
        return self.speeds.seconds_per_iteration(
            job, gpus, regime=self.present_regime(job), cpus=cpus, memory_gib=memory_gib
        )

    def present_regime(self, job: int) -> Regime | None:
        """Return the current regime of a job; None: the job has a single regime."""
        regimes = self.speeds.regimes(job)
        return regimes[self.regime[job]] if regimes else None

    def coming(self, job: int) -> tuple[Regime, ...]:
        """Return the regimes of a job after its current one."""
        return self.speeds.regimes(job)[self.regime[job] + 1 :]

    def stop(self, job: int, now: float, *, at_border: bool = False, leaves: bool = True) -> None:
        """Stop a running job and record its progress; if it leaves its GPUs, its next run begins a new save cycle."""
        ran = now - self.since[job]
        pace, steps = self.pace[job], ran
        if self._saves is not None:
            steps = self._saves.stop(job, now, self.on[job], ran=ran, pace=pace, done=self.done[job])
            if leaves and not at_border:
                self._saves.forget(job)
        if at_border:
            self.done[job] = self.border[job]
        elif ran > 0.0:
            self.done[job] = min(self.border[job], self.done[job] + steps / pace)
        self.run_seconds[job] += steps
        if self._segments is not None and ran > 0.0:
            # Mean over the whole period, including its checkpoints.
            mean = pace if steps == ran or steps <= 0.0 else pace * ran / steps
            self._segments.add(job, self.since[job], now, self.on[job], mean, self.regime[job])
        self.on[job] = NOWHERE
        self.turn[job] += 1

    def crash(self, job: int, now: float) -> None:
        """Stop a running job, which loses the work since its last checkpoint."""
        ran, pace = now - self.since[job], self.pace[job]
        before = self.done[job]
        self.stop(job, now)
        if math.isinf(pace):
            return
        lost = self._unsaved(job, before, ran, pace)
        self.done[job] -= lost
        self.lost[job] += lost

    def _unsaved(self, job: int, before: float, ran: float, pace: float) -> float:
        """Return the iterations that no checkpoint has saved, after a run that began at ``before`` iterations."""
        if self._saves is not None:
            return max(0.0, self.done[job] - self._saves.saved(job))
        seconds = ran if math.isinf(self._every) else ran % self._every
        return min(self.done[job] - before, seconds / pace)

    def book(self, job: int, began: float, end: float, iterations: float, ran: float, *, ended: bool) -> None:
        """Record a running job's iterations and seconds of steps (``ran``) in a round under a peer's rules."""
        if self._segments is not None:
            self._segments.add(job, began, began + ran, self.on[job], self.pace[job], self.regime[job])
        self.run_seconds[job] += ran
        self.done[job] = self.goal[job] if ended else min(self.goal[job], self.done[job] + iterations)
        self.since[job] = end
        if ended:
            self.on[job] = NOWHERE
            self.turn[job] += 1

    def become(self, job: int, iterations_left: float, pace: float) -> None:
        """Set the remaining work and the speed of a job from now on."""
        self.total[job] = self.goal[job] = self.border[job] = self.done[job] + iterations_left
        self._set_pace[job] = pace
        if self.on[job]:
            self.pace[job] = pace

    def done_at(self, job: int, now: float) -> float:
        """Return the iterations that a job has done by now."""
        if not self.on[job] or self.by_rules:
            return self.done[job]
        ran = now - self.since[job]
        steps = ran if self._saves is None else self._saves.steps(job, ran)
        return min(self.border[job], self.done[job] + steps / self.pace[job])

    def rate(self, job: int) -> float:
        """Return a running job's iterations per second, including the time of its checkpoints."""
        pace = self.pace[job]
        rate = 1.0 / pace if pace > 0.0 else 0.0
        return rate if self._saves is None else rate * self._saves.part

    def aim(self, job: int, iterations: float, now: float) -> None:
        """Set the number of iterations up to which a job runs; a running job continues without a pause."""
        self.goal[job] = min(iterations, self.total[job])
        gpus = self.on[job]
        if gpus:
            self.stop(job, now, leaves=False)
        self._set_border(job)
        if gpus:
            self.go_on(job, now, gpus)

    def is_whole(self, job: int) -> bool:
        """Return whether a job that has reached its border has also reached its goal."""
        return self.done[job] >= self.goal[job]

    def next_regime(self, job: int) -> float:
        """Move a job to its next regime, which starts a new checkpoint cycle, and return the regime's batch size."""
        if self._saves is not None:
            self._saves.forget(job)
        self.regime[job] += 1
        self._set_border(job)
        return self.speeds.regimes(job)[self.regime[job]].batch_size

    def _set_border(self, job: int) -> None:
        regimes = self.speeds.regimes(job)
        last = len(regimes) - 1
        end = self.total[job]
        if regimes and self.regime[job] < last:
            end = sum(stretch.iterations for stretch in regimes[: self.regime[job] + 1])
        self.border[job] = min(end, self.goal[job])
