"""Decides on which slots each job of an app runs: those of its own lease, or a share of the app's free ones."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import structlog

from eunomia.model.cluster import Cluster
from eunomia.model.forecasts import ASSUMED_SLOWDOWN
from eunomia_appmaster.master.change_words import pause_words
from eunomia_appmaster.master.division import Slowdown, Wish, divide, unused
from eunomia_appmaster.master.gangs import Gangs, Surroundings
from eunomia_appmaster.master.job_lives import JobLives
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.left_out import LeftOutNodes
from eunomia_appmaster.master.live_changes import LiveChanges
from eunomia_appmaster.master.round_words import decided
from eunomia_appmaster.master.slots import Slot, SlotBook
from eunomia_appmaster.master.widening import Widening
from eunomia_appmaster.runtimes.runtime import Entered
from eunomia_appmaster.tuner import TrialRun, Tuner

log = structlog.get_logger()


class LeaseFollower(JobLives):
    """Divides an app's slots among its jobs, and changes or stops their gangs to match.

    Args:
        around: the objects that all jobs of the app share.
        tuner: decides which trials run.
        jobs: saved by an earlier attempt of the app master.
    """

    def __init__(self, around: Surroundings, tuner: Tuner, jobs: Iterable[Job] = ()) -> None:
        super().__init__(around, tuner, jobs)
        self.gangs = Gangs(around, self.jobs)
        self.slots = SlotBook()
        self.cluster: Cluster | None = None
        self.is_cut_off = False
        """Whether the arbiter has not answered for the length of a lease, so that it may have granted the slots to
        other apps."""
        self.slowdowns: dict[int, Slowdown] = {}
        """Measured slowdown S by locality, by trial."""
        self.left_out = LeftOutNodes(around.runtimes, around.outbox)
        self._widening = Widening()
        self._live = LiveChanges(around, self.gangs, self.slots)

    def _is_ready(self, node: str) -> bool:
        """Return whether workers can be started on a node."""
        return self._around.runtimes.is_ready(node) and self.left_out.of_use(node)

    def _desired(
        self, slots: Mapping[int, Slot], runs: Mapping[int, TrialRun], now: float
    ) -> dict[int, tuple[int, ...]]:
        """Return the GPUs by job: those of its own lease, else a share of the free ones, in the tuner's order."""
        busy = self.gangs.busy()
        named: dict[int, list[int]] = {}
        for gpu, slot in slots.items():
            if slot.job is not None:
                named.setdefault(slot.job, []).append(gpu)
        desired: dict[int, tuple[int, ...]] = {}
        for number, gpus in named.items():
            if self._follow_lease(number, tuple(sorted(gpus)), runs, busy, now):
                desired[number] = tuple(sorted(gpus))
        return desired | self._divided(runs, named, busy, slots, now)

    def _divided(
        self,
        runs: Mapping[int, TrialRun],
        named: Collection[int],
        busy: set[int],
        slots: Mapping[int, Slot],
        now: float,
    ) -> dict[int, tuple[int, ...]]:
        """Divide the free GPUs of leases for the whole app among its jobs; GPUs left over may widen a running job.

        ``named``: jobs that have a lease of their own.
        """
        idle = [gpu for gpu, slot in slots.items() if slot.job is None and gpu not in busy]
        free = [gpu for gpu in idle if self._is_ready(slots[gpu].node)]
        if self.cluster is None:
            return {}
        run_now = [run for run in self._runs_with_gang(runs) if run.trial not in named]
        may_start = self._may_start(runs, named, len(free))
        ordered = sorted((*run_now, *may_start), key=lambda run: self.tuner.rank(run.trial))
        wishes = [self._wish(run) for run in ordered]
        nodes = {gpu: slot.node for gpu, slot in slots.items()}
        divided = divide([wish for wish in wishes if wish is not None], free, self.cluster, nodes)
        left = unused(free, divided)
        if left and not any(job.number in runs and job.number not in named for job in self._back_soon(now)):
            self._widen(left, run_now, self.cluster, nodes, now)
        return divided

    def _follow_lease(
        self, number: int, gpus: tuple[int, ...], runs: Mapping[int, TrialRun], busy: set[int], now: float
    ) -> bool:
        """Return whether a job must be started on its lease now; a gang on other slots is ordered to suspend."""
        job = self.jobs.get(number)
        if job is None or number not in runs:
            return False
        if job.gang is not None:
            if self._follows_live(job, job.gang, gpus):
                return not job.gang.confirmed
            if self._live.begins(job.gang) and set(job.gang.gpus) <= set(gpus):
                return not job.gang.confirmed
            if self._live.stays_on(job.gang) != set(gpus) and not job.gang.ordered:
                lease = self.slots.of_job(number)
                self._stop(job, f"its lease changed{'' if lease is None else decided(lease.causes)}", now)
            return not job.gang.confirmed
        return job.state is JobState.WAITING and not busy.intersection(gpus)

    def _follows_live(self, job: Job, gang: Gang, gpus: Collection[int]) -> bool:
        """Return whether a gang follows its slots without a restart, now or once it has made a step."""
        if self._live.can_change(job, gang) or self._live.can_shrink_early(job, gang, gpus):
            return True
        return self._begins_where_it_is(job, gang)

    def _begins_where_it_is(self, job: Job, gang: Gang) -> bool:
        """Return whether a gang that will be measured on fewer slots has yet to make a first step on all its slots."""
        return self._live.begins(gang) and self.slots.is_measured(job.number)

    def _wish(self, run: TrialRun) -> Wish | None:
        job = self.jobs[run.trial]
        gang = job.gang
        leaves = gang is not None and bool(gang.ordered)
        if leaves or (gang is None and job.state is not JobState.WAITING):
            return None
        slowdown = self.slowdowns.get(run.trial, ASSUMED_SLOWDOWN)
        runs_on = () if gang is None else gang.member_gpus
        across = self._around.file.job.slots.across_nodes
        return Wish(
            job=run.trial, least=run.least, most=run.most, runs_on=runs_on, across_nodes=across, slowdown=slowdown
        )

    def _widen(
        self, left: Sequence[int], runs: Sequence[TrialRun], cluster: Cluster, nodes: Mapping[int, str], now: float
    ) -> None:
        """Widen the first running job that the free GPUs would speed up enough, live or by a restart.

        GPUs whose lease ends before that is done are left out, until the arbiter renews it.
        """
        left = self.slots.lasting(left, now + self._widening.restart_seconds)
        for run in runs if left else ():
            job, wish = self.jobs[run.trial], self._wish(run)
            if wish is None or not wish.runs_on:
                continue
            extra = self._widening.extra(job, wish, self.goal(run), left, cluster, nodes)
            if extra and job.gang is not None and self._live.can_change(job, job.gang):
                if job.gang.membership is not None and job.gang.membership.planned is None:
                    self._follow_live(job, job.gang, {*job.gang.member_gpus, *extra}, now)
                return
            if extra:
                self._stop(job, f"it is to go on with {len(extra)} more GPUs", now)
                return

    def useful(self) -> dict[int, int]:
        """Return the number of slots that each running job would use if slots were unlimited, by job."""
        return {
            run.trial: len(gang.member_gpus) + self._widening.useful(self.jobs[run.trial], run.most, self.goal(run))
            for run in self._runs_with_gang(self.tuner.runs())
            if (gang := self.jobs[run.trial].gang) is not None and gang.running
        }

    def _may_widen_soon(self, runs: Mapping[int, TrialRun]) -> bool:
        """Return whether a job that could use more slots has just started, so that their benefit is not yet known."""
        return any(
            len(gang.gpus) < run.most and self.jobs[run.trial].seconds_per_step is None
            for run in self._runs_with_gang(runs)
            if (gang := self.jobs[run.trial].gang) is not None
        )

    # -- live changes

    def _change_live(self, slots: Mapping[int, Slot], runs: Mapping[int, TrialRun], now: float) -> None:
        """Change the gangs that change live to match their slots, and to go on without workers that died."""
        for run in self._runs_with_gang(runs):
            job = self.jobs[run.trial]
            gang = job.gang
            if gang is None or gang.membership is None or self._begins_where_it_is(job, gang):
                continue
            why = self._live.why_restart(gang)
            if why and not job.restarts_only:
                self._restarts_only(job, why)
            wanted = self._wanted(job, gang, slots)
            if not self._live.can_change(job, gang):
                if self._live.can_shrink_early(job, gang, wanted):
                    wanted &= set(gang.member_gpus)
                else:
                    continue
            if len(wanted) < run.least:
                self._stop(
                    job,
                    self._with_round("its lease was revoked", gang)
                    if set(gang.gpus) - set(slots)
                    else "too few of its workers are left",
                    now,
                )
            elif self._live.reaches(gang, wanted, slots):
                self._follow_live(job, gang, wanted, now)
            else:
                self._stop(job, "its lease has a slot on a node from which its store is not reached", now)

    def _with_round(self, why: str, gang: Gang) -> str:
        """Return the reason for a gang's end, with when the arbiter decided so, if it revoked slots of the gang."""
        return why + decided(self.slots.gone_for(gang.gpus))

    def _wanted(self, job: Job, gang: Gang, slots: Mapping[int, Slot]) -> set[int]:
        """Return the GPUs on which a gang is to run: those of its own lease, else its present ones that are leased."""
        own = {gpu for gpu, slot in slots.items() if slot.job == job.number}
        if own:
            return own
        awaited = {*gang.members, *(() if gang.membership is None else gang.membership.newcomers)}
        pairs = zip(gang.containers, gang.gpus, strict=True)
        dead = {status.container_id for status in self.gangs.statuses(gang) if status.completed}
        return {gpu for each, gpu in pairs if each in awaited and gpu in slots and each not in dead}

    def _follow_live(self, job: Job, gang: Gang, wanted: Collection[int], now: float) -> None:
        for entered in self._live.follow(job, gang, wanted, self.slots.slots(), now):
            self._has_entered(job, gang, entered, now)

    def awaited_workers(self, job: Job, gang: Gang) -> tuple[str, ...]:
        """Return the workers of a gang that changes live for which all its other workers wait; empty: none."""
        return self._live.awaited(gang) if self._live.can_change(job, gang) else ()

    def leave_out(self, job: Job, gang: Gang, workers: Collection[str], why: str, now: float) -> None:
        """Let a gang go on without workers that the runtime ends because they have stalled."""
        self._live.leave_out(workers)
        which = ", ".join(str(gang.members.index(each)) for each in workers if each in gang.members)
        self.stalled_apart(job, f"worker {which} {why}, and its gang goes on without it", now)

    def _has_entered(self, job: Job, gang: Gang, entered: Entered, now: float) -> None:
        """Record that a job trains at another size."""
        gpus = np.array(sorted(gang.trained_on), dtype=np.int64)
        locality = 0 if self.cluster is None or not gpus.size else int(self.cluster.locality(gpus))
        job.sizes = job.sizes | {job.incarnation: (len(gpus), locality)}
        ordinary, job.seconds_per_step = job.seconds_per_step, None
        gang.changed_at, gang.changed_step = now, entered.step
        gang.join_seconds, gang.pause_seconds = entered.join_seconds, entered.pause_seconds
        log.info(
            "gang.resized", job=self.id_of(job.number), generation=entered.generation, size=entered.size,
            step=entered.step, join_seconds=entered.join_seconds, pause_seconds=entered.pause_seconds,
        )  # fmt: skip
        self._widening.note_change(entered.join_seconds + entered.pause_seconds)
        why, pause = pause_words(entered, ordinary), entered.pause_seconds
        self._note("resized", job, now, gang.trained_on, step=entered.step, why=why, pause_seconds=pause)

    def _restarts_only(self, job: Job, why: str) -> None:
        """Resize a job only by restarts from now on, since its script cannot change live."""
        job.restarts_only = why
        log.warning("job.restarts_only", job=self.id_of(job.number), why=why)
        self._around.notices.add(f"{self.id_of(job.number)}: it changes its size by a restart, not live: {why}")

    # -- gangs that leave

    def _not_started(self, job: Job, why: str) -> None:
        log.info("gang.not_started", job=self.id_of(job.number), why=why)
        if job.gang is not None and job.gang.crosses:
            self.gangs.undo(job.gang, why)
        self.gangs.drop(job)
        job.state = JobState.WAITING

    def _stop(self, job: Job, reason: str, now: float) -> None:
        """Order a job's gang to suspend."""
        if job.gang is not None and job.gang.crosses and not job.gang.confirmed:
            self._not_started(job, reason)
        elif job.gang is not None and not job.gang.ordered:
            self.gangs.stop(job.gang, reason)
            self._is_stopping(job, now)

    def _is_stopping(self, job: Job, now: float) -> None:
        if job.state is JobState.RUNNING:
            job.state = JobState.STOPPING
            self._note("suspending", job, now)
