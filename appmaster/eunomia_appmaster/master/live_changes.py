"""Carries out live changes: resizes gangs to match their slots, or to go on without dead workers, without a restart."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final

import structlog

from eunomia_appmaster.master.change_words import change_words, given_up_words, reason
from eunomia_appmaster.master.changes import Decision, Membership, What, Worker, decide, holders
from eunomia_appmaster.master.endings import has_failed, why_failed
from eunomia_appmaster.master.gangs import START_WAIT_SECONDS, Gangs, Surroundings
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.slot_failures import Place, SlotFailures
from eunomia_appmaster.master.slots import Slot, SlotBook
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.runtimes.runtime import (
    SUSPENDED,
    ContainerState,
    ContainerStatus,
    Entered,
    Exit,
    LeaseOverError,
    RefusedError,
    RuntimeAwayError,
    SlotBusyError,
)

log = structlog.get_logger()

READY_SECONDS: Final = 300.0
"""Seconds after which a newcomer that is not ready is given up; more if the job's own start took long."""
STARTS: Final = 3.0
"""A newcomer that is not ready is kept for at least this multiple of the time that its job's start took."""
LEAVE_SECONDS: Final = 30.0
"""Seconds after which a worker that is no longer a member of its gang, and has not left, is killed."""
STOPPED_SECONDS: Final = 10.0
"""Seconds after which a worker whose process is stopped by a signal is left out, and killed."""
LOOPBACK: Final = ("127.", "localhost", "::1")
"""Prefixes of addresses that other machines cannot reach."""


class LiveChanges:
    """Changes the members of gangs that change live to match their slots.

    Args:
        around: the objects that all jobs of the app share.
        gangs: the app's gangs, with the last statuses of their containers.
        book: the app's leases.
    """

    def __init__(self, around: Surroundings, gangs: Gangs, book: SlotBook) -> None:
        self._around, self._gangs, self._book = around, gangs, book
        self._failures = SlotFailures()
        self._counted: set[str] = set()
        """Containers whose failure is counted."""
        self._killed: set[str] = set()
        """Containers that were killed because they are left out."""
        self._named: set[str] = set()
        """Lost workers for which an event was written."""
        self._stopped_since: dict[str, float] = {}
        self._surplus_since: dict[str, float] = {}
        self._told: dict[int, tuple[int, int, set[str], list[str]]] = {}
        """By job: its incarnation, the newest generation, the nodes that have received it, and the lost containers."""

    # -- questions

    def can_change(self, job: Job, gang: Gang) -> bool:
        """Return whether a gang can change live now: it trains with the helper, has a store, and is not leaving."""
        if gang.membership is None or gang.ordered or not gang.confirmed or not gang.running or gang.by_logs:
            return False
        if job.state is not JobState.RUNNING or not job.has_helper or job.restarts_only:
            return False
        if not self._has_begun(gang) or not holders(gang.membership, self._workers(gang, 0.0)):
            return False
        statuses = self._gangs.statuses(gang)
        if any(self.leaves_in_order(status) for status in statuses):
            return False
        return not self._has_lost_store(gang)

    def _has_lost_store(self, gang: Gang) -> bool:
        reports = [status.live for status in self._gangs.statuses(gang) if not status.completed]
        return any(report is not None and report.store_lost for report in reports)

    def _has_begun(self, gang: Gang) -> bool:
        """Return whether a generation of a gang has made a step."""
        reports = [status.live for each in gang.containers if (status := self._gangs.status(each)) is not None]
        entered = any(report is not None and report.entered is not None for report in reports)
        return entered or (gang.membership is not None and gang.membership.current.number > 0)

    def begins(self, gang: Gang) -> bool:
        """Return whether a gang has yet to make its first step, after which it can change live."""
        return gang.membership is not None and gang.confirmed and not gang.ordered and not gang.running

    def can_shrink_early(self, job: Job, gang: Gang, slots: Collection[int]) -> bool:
        """Return whether a gang of which no generation has made a step can go on without its workers on lost slots.

        It can, since before the first step all its workers have the state with which the job starts.
        """
        if gang.membership is None or gang.ordered or not gang.confirmed or (gang.running and self._has_begun(gang)):
            return False
        if job.state is not JobState.RUNNING or not job.has_helper or job.restarts_only or self._has_lost_store(gang):
            return False
        kept = set(gang.member_gpus) & set(slots)
        shrinks = gang.membership.forming is not None or bool(set(gang.gpus) - kept)
        return bool(kept) and shrinks and not any(status.completed for status in self._gangs.statuses(gang))

    def leaves_in_order(self, status: ContainerStatus) -> bool:
        """Return whether a member has finished or suspends, so that its whole gang ends; False if it was left out."""
        if status.container_id in self._killed:
            return False
        if status.state is ContainerState.STOPPING:
            return True
        if not status.completed or has_failed(status) or status.killed or status.never_began:
            return False
        # A worker that leaves its gang alone, between two generations, exits with 75 too.
        return status.finished or bool(status.stop_reason) or status.suspended_step is not None

    def left_alone(self, status: ContainerStatus) -> bool:
        """Return whether a worker has left its gang between two generations, without an order to suspend."""
        left = status.completed and status.exit == Exit(code=SUSPENDED) and not status.never_began
        return left and status.live is not None and not status.stop_reason and status.suspended_step is None

    def why_restart(self, gang: Gang) -> str:
        """Return the reason that a gang's helper reports for being unable to change live; empty: it reports none."""
        statuses = [] if gang.membership is None else self._gangs.statuses(gang)
        reports = [status.live for status in statuses if status.live is not None and not status.completed]
        return next((report.unfit for report in reports if report.unfit), "")

    def reaches(self, gang: Gang, wanted: Collection[int], slots: Mapping[int, Slot]) -> bool:
        """Return whether workers on all wanted GPUs can reach the gang's store, which may listen only on loopback."""
        nodes = {slots[gpu].node for gpu in wanted if gpu in slots}
        return nodes <= set(gang.nodes) or not host_of(self._store(gang)).startswith(LOOPBACK)

    def stays_on(self, gang: Gang) -> set[int]:
        """Return the GPUs on which a gang that cannot change live continues to train.

        If its store is lost, these are the GPUs of its current generation, without those of a pending change.
        """
        if gang.membership is None or not self._has_lost_store(gang):
            return set(gang.gpus)
        places = dict(zip(gang.containers, gang.gpus, strict=True))
        members = gang.membership.current.members
        return {places[each] for each in members if each in places and not self._has_ended(each)}

    def awaited(self, gang: Gang) -> tuple[str, ...]:
        """Return the workers for which all other workers of a gang wait; empty: no worker waits, or all do."""
        known = [status for status in self._gangs.statuses(gang) if status.container_id not in self._killed]
        running = [status for status in known if not status.completed]
        here = tuple(status.container_id for status in running if status.phase is not Phase.PEERS)
        return here if len(here) < len(running) else ()

    def given_back(self, job: Job, gang: Gang, least: int, slots: Mapping[int, Slot], now: float) -> set[int]:
        """Return the GPUs of a job's own lease that are to be given back, since two workers failed on each of them.

        The job keeps at least ``least`` GPUs, and those on which a process may still run.
        """
        own = [gpu for gpu, slot in slots.items() if slot.job == job.number]
        failed = [gpu for gpu in own if self._failures.may_be_given_back(self._place(job, gpu, slots), now)]
        here = dict(zip(gang.containers, gang.gpus, strict=True))
        busy = {gpu for container, gpu in here.items() if container in gang.members or not self._has_ended(container)}
        back = sorted(set(failed) - busy)[: max(len(own) - least, 0)]
        for gpu in back:
            self._failures.gives_back(self._place(job, gpu, slots))
        return set(back)

    # -- the change

    def leave_out(self, workers: Collection[str]) -> None:
        """Count workers that the runtime is ending as dead, so that their gang goes on without them."""
        self._killed.update(workers)
        self._named.update(workers)

    def follow(
        self, job: Job, gang: Gang, wanted: Collection[int], slots: Mapping[int, Slot], now: float
    ) -> list[Entered]:
        """Take the next steps towards a gang on the wanted GPUs; returns the generations entered since the last call.

        Args:
            job: the job, whose gang can change live.
            gang: the job's gang.
            wanted: GPUs on which it is to run.
            slots: the app's slots, by GPU.
            now: Unix time in seconds.
        """
        entered: list[Entered] = []
        self._leave_out_stopped(gang, now)
        self._count_failures(job, gang, slots, now)
        while gang.membership is not None:
            decision = self._decide(job, gang, gang.membership, wanted, slots, now)
            if not self._carry_out(job, gang, decision, slots, now):
                break
            if decision.what is What.ENTERED:
                entered += self._entered(gang)
        self._start_newcomers(job, gang, slots, now)
        self._tell(job, gang)
        self._clear(job, gang, now)
        return entered

    def withdraw(self, job: Job, gang: Gang) -> None:
        """Withdraw an ordered change if the job ends before it: a member that was to stay has finished or suspended.

        Otherwise newcomers would wait for that member forever. A report of a leaver shows that the change was made.
        """
        membership = gang.membership
        if membership is None or membership.forming is None:
            return
        number = membership.forming.number
        known = [status for each in gang.containers if (status := self._gangs.status(each)) is not None]
        for report in (status.live for status in known if status.live is not None):
            has_entered = report.entered is not None and report.entered.generation >= number
            if has_entered or (report.leaving is not None and report.leaving >= number):
                return
        stays = set(membership.current.members) & set(membership.forming.members)
        if any(each.container_id in stays and each.completed and self.leaves_in_order(each) for each in known):
            log.info("gang.change_withdrawn", job=job.number, ordered=number, why="the job has ended before it")
            gang.membership = dataclasses.replace(membership, forming=None, planned=None)

    def end_newcomers(self, gang: Gang) -> None:
        """Kill the newcomers of a gang whose members have ended."""
        if gang.membership is not None:
            self._kill(gang, [each for each in gang.containers if each not in gang.members], "its gang has ended")

    def _decide(
        self,
        job: Job,
        gang: Gang,
        membership: Membership,
        wanted: Collection[int],
        slots: Mapping[int, Slot],
        now: float,
    ) -> Decision:
        places: dict[str, int] = {}

        def name(gpu: int) -> str:
            container = f"{self._around.app}.{job.number}.{gang.incarnation}.{gang.made + len(places)}"
            places[container] = gpu
            return container

        usable = [gpu for gpu in wanted if self._is_usable(job, gang, gpu, slots, now)]
        decision = decide(membership, self._workers(gang, now), usable, name)
        for container, gpu in places.items():
            self._gangs.add(job, container, gpu, slots[gpu].node)
            gang.newcomers[container] = now
        gang.made += len(places)
        return decision

    def _workers(self, gang: Gang, now: float) -> dict[str, Worker]:
        return {each: self._worker(gang, each, gpu, now) for each, gpu in zip(gang.containers, gang.gpus, strict=True)}

    def _worker(self, gang: Gang, container: str, gpu: int, now: float) -> Worker:
        status = self._gangs.status(container)
        report = None if status is None or status.live is None else status.live
        alive = container not in self._killed and (status is None or not status.completed)
        ready = report is not None and report.ready is not None
        patience = max(READY_SECONDS, STARTS * gang.start_seconds)
        late = container in gang.newcomers and now - gang.newcomers[container] > patience and not ready
        if report is None:
            return Worker(gpu=gpu, alive=alive, useless=late)
        return Worker(
            gpu=gpu,
            alive=alive,
            ready=ready,
            useless=late or bool(report.unfit),
            resized=-1 if report.entered is None else report.entered.generation,
            heard=report.ordered,
            broken=-1 if report.broken is None else report.broken,
            leaves=report.leaving is not None,
        )

    def _is_usable(self, job: Job, gang: Gang, gpu: int, slots: Mapping[int, Slot], now: float) -> bool:
        """Return whether a gang can have a worker on a GPU: one that it has, or a newcomer."""
        if gpu not in slots:
            return False
        place = self._place(job, gpu, slots)
        if gpu in gang.member_gpus and not self._failures.has(place):
            return True
        given_up = self._failures.is_given_up(place, now)
        return not given_up and (gpu in gang.gpus or self._around.runtimes.is_ready(slots[gpu].node))

    @staticmethod
    def _place(job: Job, gpu: int, slots: Mapping[int, Slot]) -> Place:
        return job.number, gpu, slots[gpu].epoch

    def _carry_out(self, job: Job, gang: Gang, decision: Decision, slots: Mapping[int, Slot], now: float) -> bool:
        """Save a decision before any worker or event log gets it; returns whether another decision may follow."""
        before = gang.membership
        gang.membership = decision.membership
        if decision.what is What.NOTHING:
            return False
        if decision.what in (What.ORDER, What.PLAN):
            try:
                self._around.save()
            except OSError as error:
                log.warning("change.not_saved", job=job.number, why=str(error))
                gang.membership = before
                return False
        log.info(
            "gang.change", job=job.number, what=decision.what.value, current=decision.membership.current.number,
            ordered=decision.membership.ordered.number, members=len(decision.membership.ordered.members),
            newcomers=len(decision.membership.newcomers),
        )  # fmt: skip
        if before is not None:
            self._note(job, gang, before, decision, slots, now)
        for container in gang.members:
            gang.newcomers.pop(container, None)
        self._kill(gang, decision.given_up, "it is not awaited any more")
        return True

    def _note(
        self, job: Job, gang: Gang, before: Membership, decision: Decision, slots: Mapping[int, Slot], now: float
    ) -> None:
        """Write the events of a decision: first one for each member that it leaves out as dead or stopped."""
        lost = self._lost(gang, before) if decision.what is What.ORDER else {}
        places = dict(zip(gang.containers, gang.gpus, strict=True))
        for each, how in lost.items():
            if each not in self._named:
                self._named.add(each)
                why = f"worker on slot {places[each]} {how}, and its gang goes on without it"
                self._around.activity.note("left_out", job, now, slots=gang.member_gpus, why=why)
        own = sum(slot.job == job.number for slot in slots.values())
        why = reason(lost=lost, lease=self._book.of_job(job.number), own=own)
        if words := change_words(before, decision, why):
            self._around.activity.note("change", job, now, slots=gang.member_gpus, why=words)

    def _lost(self, gang: Gang, before: Membership) -> dict[str, str]:
        """Return how the members that an order leaves out were lost, by container; without those that left in order."""
        lost = {}
        for each in before.ordered.members:
            status = self._gangs.status(each)
            if each in gang.members or status is None or each not in gang.containers:
                continue
            if each in self._killed or (status.completed and has_failed(status)):
                lost[each] = "was stopped" if each in self._killed else why_failed(status, alone=True)
        return lost

    def _entered(self, gang: Gang) -> list[Entered]:
        """Return the report of the current generation's first step."""
        number = -1 if gang.membership is None else gang.membership.current.number
        statuses = [self._gangs.status(each) for each in gang.containers]
        reports = [status.live.entered for status in statuses if status is not None and status.live is not None]
        return [each for each in reports if each is not None and each.generation >= number][:1]

    # -- newcomers

    def _start_newcomers(self, job: Job, gang: Gang, slots: Mapping[int, Slot], now: float) -> None:
        """Start the newcomers that no node has reported yet."""
        places, store = dict(zip(gang.containers, gang.gpus, strict=True)), self._store(gang)
        for container in () if gang.membership is None or not store else gang.membership.newcomers:
            gpu = places.get(container)
            if gpu in slots and gpu is not None and self._gangs.status(container) is None:
                self._start(job, gang, container, slots[gpu], store, slots, now)

    def _start(
        self,
        job: Job,
        gang: Gang,
        container: str,
        slot: Slot,
        store: str,
        slots: Mapping[int, Slot],
        now: float,
    ) -> None:
        try:
            spec = self._gangs.newcomer(job, gang, container, slots, store)
            spec = dataclasses.replace(spec, master_address=host_of(store))
            statuses = self._around.runtimes.of(slot.node).start(spec, wait_seconds=START_WAIT_SECONDS)
        except (SlotBusyError, RuntimeAwayError, OSError) as error:
            log.info("newcomer.delayed", container=container, why=str(error))
        except LeaseOverError as error:
            log.info("newcomer.not_started", container=container, why=str(error))
            self._book.lose([slot.gpu], slot.epoch)
        except RefusedError as error:
            log.warning("newcomer.refused", container=container, why=str(error))
            self._failures.count(self._place(job, slot.gpu, slots), now, for_good=True)
        else:
            list(self._gangs.hear(statuses))

    def _store(self, gang: Gang) -> str:
        """Return the address of the gang's store; empty: no worker has reported it."""
        statuses = [self._gangs.status(each) for each in gang.containers]
        return next((one.live.store for one in statuses if one is not None and one.live and one.live.store), "")

    # -- orders

    def _tell(self, job: Job, gang: Gang) -> None:
        """Send the newest generation to the gang's workers on all nodes that have not received it."""
        forming = None if gang.membership is None else gang.membership.forming
        if forming is None:
            return
        incarnation, number, nodes, lost = self._told.get(job.number, (0, 0, set(), []))
        if (incarnation, number) != (gang.incarnation, forming.number):
            lost = [each for each in gang.containers if each in self._killed or self._has_ended(each)]
            nodes = set()
        self._told[job.number] = gang.incarnation, forming.number, nodes, lost
        seconds = self._around.file.job.stall_limits.peers_seconds
        for node, containers in gang.by_node().items():
            known = [each for each in containers if self._runs(each) and each not in gang.newcomers]
            if node in nodes or not known:
                continue
            try:
                self._around.runtimes.of(node).order_change(
                    known, forming.number, forming.members, timeout_seconds=seconds, lost=lost
                )
                nodes.add(node)
            except (RefusedError, RuntimeAwayError) as error:
                log.warning("change.not_sent", node=node, why=str(error))

    def _runs(self, container: str) -> bool:
        status = self._gangs.status(container)
        return status is not None and not status.completed

    def _has_ended(self, container: str) -> bool:
        status = self._gangs.status(container)
        return status is not None and status.completed

    # -- workers that are left out

    def _leave_out_stopped(self, gang: Gang, now: float) -> None:
        """Kill workers whose processes have been stopped for too long, so that the others go on without them."""
        for container in gang.members:
            status = self._gangs.status(container)
            if status is None or status.completed or status.phase is not Phase.STOPPED:
                self._stopped_since.pop(container, None)
            elif now - self._stopped_since.setdefault(container, now) >= STOPPED_SECONDS and len(gang.members) > 1:
                self._kill(gang, [container], "its process is stopped, and its gang goes on without it")

    def _clear(self, job: Job, gang: Gang, now: float) -> None:
        """Forget containers that have ended and are not members, and kill those that should have left.

        Members of the current generation are kept until the next one is entered: their reports show that it has begun.
        """
        membership = gang.membership
        trained = () if membership is None or membership.forming is None else membership.current.members
        awaited = {*gang.members, *(() if membership is None else membership.newcomers)}
        for container in [each for each in gang.containers if each not in awaited]:
            status = self._gangs.status(container)
            if status is not None and status.completed:
                if container in trained:
                    continue
                self._gangs.remove(job, container)
                self._surplus_since.pop(container, None)
                self._killed.discard(container)
            elif membership is None or membership.forming is not None:
                continue  # it trains with the others until these have entered their generation
            elif now - self._surplus_since.setdefault(container, now) > LEAVE_SECONDS:
                self._kill(gang, [container], "it has not left its gang")

    def _count_failures(self, job: Job, gang: Gang, slots: Mapping[int, Slot], now: float) -> None:
        """Count the failures of slots: workers that died, and newcomers that cannot join."""
        newcomers = () if gang.membership is None else gang.membership.newcomers
        for container, worker in self._workers(gang, now).items():
            if worker.gpu not in slots or container in self._counted or container not in (*gang.members, *newcomers):
                continue
            if not worker.alive or (worker.useless and container in newcomers):
                self._counted.add(container)
                self._failures.count(self._place(job, worker.gpu, slots), now, for_good=worker.useless)
                if container in newcomers:
                    why = given_up_words(worker.gpu, self._gangs.status(container))
                    self._around.activity.note("left_out", job, now, slots=gang.trained_on, why=why)

    def _kill(self, gang: Gang, containers: Collection[str], reason: str) -> None:
        for node, known in gang.by_node().items():
            mine = [each for each in known if each in containers and self._runs(each) and each not in self._killed]
            if not mine:
                continue
            self._killed.update(mine)
            try:
                self._around.runtimes.of(node).stop(mine, deadline_seconds=0.0, reason=reason)
            except (RefusedError, RuntimeAwayError) as error:
                log.warning("runtime.order_lost", node=node, why=str(error))


def host_of(address: str) -> str:
    """Return the host of ``host:port``."""
    return address.rpartition(":")[0].strip("[]")
