"""The core of the app master: starts and stops jobs according to the arbiter's leases, the logs and the tuner.

The conductor is not thread-safe. It starts and stops gangs through a runtime, reports trials to the tuner, and puts
reports for the arbiter into an outbox. It reads no clock; ``now`` is Unix time in seconds throughout.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import structlog

from eunomia_appmaster.master.announcements import Announcements
from eunomia_appmaster.master.app_jobs import SOON_SECONDS
from eunomia_appmaster.master.endings import GangOutcome, has_failed, judge, misuse_of, time_of_end
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.lease_follower import LeaseFollower
from eunomia_appmaster.master.logs import NewPoints
from eunomia_appmaster.master.lost_workers import LostWorkers
from eunomia_appmaster.master.returning import Returning
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.master.unfit_leases import surplus, words
from eunomia_appmaster.master.unformed import UnformedGangs
from eunomia_appmaster.node.own_ends_limit import DEFAULT_LIMIT
from eunomia_appmaster.runtimes.runtime import (
    ContainerStatus,
    LacksError,
    LeaseOverError,
    RefusedError,
    RuntimeAwayError,
    SlotBusyError,
)
from eunomia_appmaster.tuner import Action, TrialRun, Tuner

log = structlog.get_logger()

GRACE_SECONDS = 30.0
"""Seconds from the app master's own order to suspend to the kill."""
SILENT_SECONDS = 3.0
"""Seconds without a log entry after which a script without the helper counts as running."""
SILENT_LIVE_SECONDS = 120.0
"""The same for a job that changes live, whose script may be slow to start; until then it is not changed."""
IDLE_SECONDS = 1.0
"""Seconds after which slots that no job of the app can use are given back."""
UNTOLD_EXITS = 1
"""Number of a job's exits with code 75 without an order that do not count as failures."""


NOT_COUNTED = (GangOutcome.INTERRUPTED, GangOutcome.LOST, GangOutcome.STOPPED)
"""Outcomes that use none of a job's retries."""


class Conductor(LeaseFollower):
    """Runs an app's jobs.

    Args:
        around: the objects that all jobs of the app share.
        tuner: decides which trials run.
        jobs: saved by an earlier attempt of the app master.
    """

    def __init__(self, around: Surroundings, tuner: Tuner, jobs: Iterable[Job] = ()) -> None:
        super().__init__(around, tuner, jobs)
        self._announcements = Announcements()
        self._returning = Returning(around, self.slots)
        self._unformed = UnformedGangs(around.notices)
        self._lost_workers = LostWorkers(around.runtimes, self.gangs)

    # -- input

    def hear_statuses(self, statuses: Sequence[ContainerStatus], now: float) -> None:
        """Process statuses of containers that have changed."""
        heard = list(self.gangs.hear(statuses))
        for job, status in heard:
            self._follow(job, status, now)
        for job in {job.number: job for job, _ in heard}.values():
            if job.gang is not None:
                self._watch_gang(job, job.gang, now)

    def hear_logs(self, now: float) -> None:
        """Read the new log points of running jobs."""
        for job in self.jobs.with_gang():
            if job.gang is not None:
                self._read_logs(job, now)
                self._mind_rung(job, job.gang, now)
                patience = SILENT_SECONDS if job.gang.membership is None else SILENT_LIVE_SECONDS
                if job.gang.confirmed and not job.has_helper and now - job.gang.began_at > patience:
                    self._is_running(job, job.gang, now)

    def heard_all_of(self, node: str, now: float) -> None:
        """Handle gangs missing in a node's full report: drop those that never started, count the others as lost.

        Args:
            node: the node, whose runtime has sent its first full report since this process began or the node was away.
            now: Unix time in seconds.
        """
        self._returning.reached(node)
        for job in self.jobs.with_gang():
            gang = job.gang
            if gang is None or node not in gang.nodes or self.gangs.is_known_on(gang, node):
                continue
            if gang.crosses and gang.confirmed:
                self._lose(job, gang, node, f"{node} does not know it any more", now)
            else:
                self._not_started(job, f"{node} does not know it")

    def nodes(self) -> set[str]:
        """Return the nodes on which the app has slots or gangs, and the left-out nodes that are tried again."""
        gangs = {node for job in self.jobs.with_gang() if job.gang is not None for node in job.gang.nodes}
        return gangs | {slot.node for slot in self.slots.slots().values()} | self.left_out.nodes()

    def _may_form(self, nodes: Sequence[str], now: float, *, again: bool = False) -> bool:
        """Return whether a gang can form over ``nodes``; several nodes must be able to connect to each other."""
        held = [slot.node for slot in self.slots.slots().values()]
        return len(set(nodes)) == 1 or self.left_out.may_cross(nodes, held, now, again=again)

    def _follow(self, job: Job, status: ContainerStatus, now: float) -> None:
        """Store the reports of rank 0: progress, checkpoints, regimes."""
        gang = job.gang
        if gang is None or not gang.members or status.container_id != gang.members[0]:
            return
        job.has_helper = job.has_helper or status.hello
        if status.step is not None:
            self._count_steps(job, gang, status.step, hello=status.hello)
        if status.seconds_per_step is not None:
            job.seconds_per_step = status.seconds_per_step
        if status.saved_step is not None and status.saved_step != job.saved_step:
            job.saved_step = status.saved_step
            job.step = max(job.step, status.saved_step)
            job.signs += 1
            self._note("saved", job, now, step=status.saved_step)
        ahead = self._around.runtimes.clock_ahead(status.node)
        for number, report in self._announcements.hear(job, self.id_of(job.number), status, ahead=ahead):
            self._around.outbox.put("adapted", report, key=(status.container_id, number))
        if status.step is not None:
            self._is_running(job, gang, now)

    def _count_steps(self, job: Job, gang: Gang, step: int, *, hello: bool) -> None:
        """Store the steps that a worker reported; 0 steps are ignored if the gang's steps come from its logs."""
        done = max(step, gang.from_step) if hello else step
        if gang.by_logs and step <= gang.from_step:
            return
        gang.by_logs = False
        job.signs += done != job.step
        job.step = done

    def _is_running(self, job: Job, gang: Gang, now: float) -> None:
        if not gang.running:
            gang.running, gang.start_seconds = True, max(now - gang.began_at, 0.0)
            self._widening.note_start(now - gang.began_at)
            self._note("resumed" if gang.from_step else "running", job, now, step=gang.from_step)

    def _watch_gang(self, job: Job, gang: Gang, now: float) -> None:
        self._live.withdraw(job, gang)
        statuses = self.gangs.statuses(gang)
        if any(self._live.leaves_in_order(status) and not status.completed for status in statuses):
            self._is_stopping(job, now)
        completed = [status for status in statuses if status.completed]
        if len(completed) == len(gang.members) and not self._live.can_change(job, gang):
            self._live.end_newcomers(gang)
            self._gang_ended(job, gang, statuses, now)
        elif misuse_of(completed):
            self._stop(job, "a worker of its gang has failed in a way that no restart cures", now)
        elif self._live.can_change(job, gang):
            return  # the remaining workers go on
        elif any(has_failed(status) for status in completed):
            # A gang runs whole or not at all. Ranks that leave without a failure leave together.
            self._stop(job, "another worker of its gang has failed", now)
        elif any(status.never_began for status in completed):
            self._stop(job, "another worker of its gang never started", now)
        elif any(self._live.left_alone(status) for status in completed):
            self._stop(job, "another worker has left its gang, which cannot change now", now)

    def _read_logs(self, job: Job, now: float) -> None:
        seen = self.logs(job.number).poll()
        gang = job.gang
        if gang is not None and seen.last_step is not None:
            job.signs += 1
            self._count_by_logs(job, gang, seen, now)
        for point in seen.points:
            if point.step <= job.metric_step:
                continue  # logged a second time, after a resume from an earlier step or a restart of this process
            job.metric, job.metric_step = point.value, point.step
            if math.isfinite(point.value):
                better = self._around.file.search.better_first
                if job.best is None or better(point.value) < better(job.best):
                    job.best, job.best_step = point.value, point.step
            action = self.tuner.on_result(job.number, point.step, point.value)
            self.add_new_trials()
            if action is not Action.CONTINUE:
                self._stop(job, f"its tuner says {action.value}", now)

    def _count_by_logs(self, job: Job, gang: Gang, seen: NewPoints, now: float) -> None:
        """Derive the progress of a script without the helper, or whose helper counts no step, from its logged steps."""
        if job.has_helper:
            uncounted = gang.by_logs or job.step <= gang.from_step
            if seen.first_step is not None and seen.last_step is not None and uncounted and seen.last_step > job.step:
                job.step, gang.by_logs = seen.last_step, True
                self._is_running(job, gang, now)
            return
        if seen.first_step is not None and gang.from_step == 0 and seen.first_step <= job.step and job.incarnation > 1:
            job.lost += job.step - seen.first_step
            gang.from_step = max(seen.first_step, 1)
        if seen.last_step is not None:
            job.step = seen.last_step
        self._is_running(job, gang, now)

    def _mind_rung(self, job: Job, gang: Gang, now: float) -> None:
        """Order a job whose steps are known only from its logs to suspend once it reaches its rung."""
        by_logs = gang.by_logs or not job.has_helper
        if gang.stop_at is not None and by_logs and job.step >= gang.stop_at and not gang.ordered:
            self._stop(job, f"it reached its rung at {gang.stop_at}", now)

    # -- how gangs end

    def _gang_ended(self, job: Job, gang: Gang, statuses: Sequence[ContainerStatus], now: float) -> None:
        suspended = [status.suspended_step for status in statuses if status.suspended_step is not None]
        if suspended:
            job.step = suspended[0]
        self._read_logs(job, now)
        ending = judge(statuses, order=gang.ordered, stop_at=gang.stop_at, step=job.step)
        log.info(
            "gang.ended", job=self.id_of(job.number), incarnation=gang.incarnation, outcome=ending.outcome.value,
            step=job.step, why=ending.why or None,
        )  # fmt: skip
        at = time_of_end(statuses, now)
        self.gangs.drop(job)
        self._lost_workers.forget(job.number)
        if ending.outcome is GangOutcome.FINISHED:
            self._finish(job, gang, at)
        elif ending.outcome is GangOutcome.AT_RUNG:
            self._pause_at_rung(job, gang, at)
        elif ending.outcome is GangOutcome.SUSPENDED:
            self._suspended(job, gang, at, ending.why if gang.ordered else self._with_round(ending.why, gang))
        elif ending.outcome is GangOutcome.ODD and job.odd_exits < UNTOLD_EXITS:
            job.odd_exits += 1
            self._suspended(job, gang, at, ending.why)
        elif ending.outcome is GangOutcome.MISUSED:
            self._fail_for_good(job, gang, ending.why, at)
        else:
            failed = gang.crosses and ending.outcome in (GangOutcome.FAILED, GangOutcome.HUNG)
            apart = failed and not self._may_form(gang.nodes, now, again=True)
            excused = apart or self._unformed.excuses(self.id_of(job.number), gang, ending)
            counted = ending.outcome not in NOT_COUNTED and not excused
            if not counted:
                times = job.interrupt(now)
                counted = ending.outcome is GangOutcome.INTERRUPTED and times > DEFAULT_LIMIT.ends
            self._failed(job, gang, self._explained(job, ending), now, counted=counted, at=at)
        self._close_ended(now)

    # -- actions

    def act(self, now: float) -> None:
        """Start, stop and widen gangs, so that the running jobs match the tuner's requests and the leases."""
        self.add_new_trials()
        self._close_ended(now)
        self._wake_retries(now)
        self.left_out.look(now)
        self._give_back_unfit()
        slots = self.slots.slots()
        runs = self.tuner.runs()
        self._mind_nodes(slots, now)
        self._move_rungs(runs)
        self._change_live(slots, runs, now)
        self._leave_lost_slots(slots, runs, now)
        desired = {} if self.is_cut_off else self._desired(slots, runs, now)
        for number, gpus in desired.items():
            job = self.jobs[number]
            if job.gang is None and job.state is JobState.WAITING:
                if all(self._is_ready(slots[gpu].node) for gpu in gpus):
                    self._start(job, runs[number], [slots[gpu] for gpu in gpus], now)
            elif job.gang is not None and not job.gang.confirmed:
                self._confirm(job, job.gang, now)
        self._give_back(slots, runs, now)

    def _mind_nodes(self, slots: Mapping[int, Slot], now: float) -> None:
        """Count workers as lost that no longer work although no node reports their end."""
        for job in self.jobs.with_gang():
            gang = job.gang
            for node, why in () if gang is None else self._lost_workers.of(job, gang, slots, now):
                if gang is not None and job.gang is gang:
                    self._lose(job, gang, node, why, now)

    def _lose(self, job: Job, gang: Gang, node: str, why: str, now: float) -> None:
        log.warning("gang.lost", job=self.id_of(job.number), node=node, why=why)
        if gang.crosses and not gang.confirmed:
            self._not_started(job, why)
            return
        self.gangs.lose(gang, node, why, now)
        self._watch_gang(job, gang, now)

    def _move_rungs(self, runs: Mapping[int, TrialRun]) -> None:
        for run in self._runs_with_gang(runs):
            gang = self.jobs[run.trial].gang
            if gang is not None and gang.confirmed and gang.stop_at != run.stop_at and not gang.ordered:
                self.gangs.move_rung(gang, run.stop_at)

    def _leave_lost_slots(self, slots: Mapping[int, Slot], runs: Mapping[int, TrialRun], now: float) -> None:
        """Stop jobs that were paused or lost their leases; the launcher itself warns the workers of lost slots."""
        for job in self.jobs.with_gang():
            gang = job.gang
            if gang is None or gang.ordered:
                continue
            if job.number not in runs:
                self._stop(job, "its tuner paused it", now)
            elif self._follows_live(job, gang, slots):
                continue
            elif not set(gang.gpus) <= set(slots) and self.gangs.statuses(gang):
                self._stop(job, self._with_round("its lease was revoked", gang), now)
            elif not set(gang.gpus) <= set(slots) and not self._may_run_unheard(gang):
                self._not_started(job, "its lease was revoked before it began")

    def _may_run_unheard(self, gang: Gang) -> bool:
        """Return whether a gang without any report may still have begun, on a node that does not answer."""
        return not gang.crosses and any(self._around.runtimes.is_unreachable(node) for node in gang.nodes)

    # -- gangs

    def _start(self, job: Job, run: TrialRun, slots: Sequence[Slot], now: float) -> None:
        if not self._may_form([slot.node for slot in slots], now):
            return
        try:
            gang = self.gangs.prepare(job, run, slots, self.cluster, now)
        except OSError as error:
            self._not_started(job, f"its start could not be written down: {error}")
            return
        self._note("start", job, now)
        self._confirm(job, gang, now)

    def _confirm(self, job: Job, gang: Gang, now: float) -> None:
        """Request the start of a gang from the runtime; called again until the runtime answers."""
        slots = self.slots.slots()
        try:
            statuses = self.gangs.start(job, gang, slots)
        except (SlotBusyError, RuntimeAwayError, OSError) as error:
            log.info("gang.start_delayed", job=self.id_of(job.number), why=str(error))
            if (
                gang.crosses
                and isinstance(error, RuntimeAwayError)
                and self._around.runtimes.is_unreachable(error.node)
            ):
                self._not_started(job, str(error))
        except LeaseOverError as error:
            over = [gpu for gpu, node in zip(gang.gpus, gang.nodes, strict=True) if error.node in ("", node)]
            self.slots.lose(over, max(slots[gpu].epoch for gpu in over))
            self._not_started(job, str(error))
        except RefusedError as error:
            if isinstance(error, LacksError) and error.node:
                wanted = self.gangs.part(job, gang, slots, error.node)
                if self.left_out.lacks(error.node, wanted, str(error), now):
                    self._not_started(job, str(error))
                    return
            if gang.crosses:
                self.gangs.undo(gang, str(error))
            self.gangs.drop(job)
            self._failed(job, gang, f"it could not be started: {error}", now)
        else:
            if gang.crosses and any(status.never_began for status in statuses):
                self._not_started(job, "a part of it was given up")
                return
            gang.confirmed = True
            self.hear_statuses(statuses, now)

    # -- slots that the app cannot use

    def _give_back(self, slots: Mapping[int, Slot], runs: Mapping[int, TrialRun], now: float) -> None:
        """Give back slots that no job of the app could use for a while, and those of unreachable nodes."""
        busy = self.gangs.busy()
        if any(job.number in runs for job in self._back_soon(now)):
            busy |= set(slots)
        patience = SOON_SECONDS if self._may_widen_soon(runs) else IDLE_SECONDS
        patience = 0.0 if self.tuner.is_done() else patience
        wait = bool(self.jobs.numbers_in(JobState.STOPPING))
        self._returning.idle(slots, busy, now, patience=patience, wait=wait)
        gangs = [job.gang for job in self.jobs.with_gang() if job.gang is not None and job.gang.confirmed]
        kept = {gpu for gang in gangs for gpu in gang.gpus}
        self._returning.unreachable(slots, kept, now)
        self._give_back_failed(slots, runs, now)
        self._returning.of_no_use(
            slots, [slot.node for slot in slots.values() if not self.left_out.of_use(slot.node)], kept
        )

    def _give_back_unfit(self) -> None:
        """Give back the surplus slots of leases whose size is not allowed for their job."""
        slots, sizes = self.slots.slots(), self._around.file.job.slots
        for number, lease in [(each.job, each) for each in self.slots if each.job is not None]:
            gang = self.jobs[number].gang if number in self.jobs else None
            members = () if gang is None else gang.member_gpus
            back = surplus(lease, slots, members=members, busy=self.gangs.busy(), least=sizes.min, most=sizes.max)
            if back:
                why = words(lease, self.id_of(number), sizes.min, sizes.max)
                self._around.notices.add(f"{why}; {len(back)} given back")
                self._returning.unusable(slots, back)

    def _give_back_failed(self, slots: Mapping[int, Slot], runs: Mapping[int, TrialRun], now: float) -> None:
        """Give back slots on which two workers of a job that changes live have failed, so that the arbiter decides."""
        for run in self._runs_with_gang(runs):
            job = self.jobs[run.trial]
            if job.gang is not None and self._live.can_change(job, job.gang):
                back = self._live.given_back(job, job.gang, run.least, slots, now)
                if back:
                    log.warning("slots.failed", job=self.id_of(job.number), gpus=sorted(back))
                    self._returning.unusable(slots, back)
