"""Gangs of an app: started and stopped through the runtime, adopted after a restart."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import structlog

from eunomia.model.cluster import Cluster
from eunomia.model.shapes import builds
from eunomia_appmaster.app.app_file import AppFile
from eunomia_appmaster.app.checkpoints import Checkpoint, CheckpointError
from eunomia_appmaster.app.command import Filling
from eunomia_appmaster.app.fences import Fence
from eunomia_appmaster.app.job_checkpoints import BEST_FOLDER, CHECKPOINTS_FOLDER, JobCheckpoints, name_of
from eunomia_appmaster.app.outputs import OUTPUT_FOLDER
from eunomia_appmaster.master.changes import Generation, Membership
from eunomia_appmaster.master.files import ActivityLog
from eunomia_appmaster.master.jobs import Gang, Job, JobState
from eunomia_appmaster.master.notices import Notices
from eunomia_appmaster.master.outbox import Outbox
from eunomia_appmaster.master.slots import Slot
from eunomia_appmaster.runtimes.nodes import NodeRuntimes
from eunomia_appmaster.runtimes.runtime import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Exit,
    GangSpec,
    LiveSpec,
    RefusedError,
    RuntimeAwayError,
)
from eunomia_appmaster.tuner import TrialRun

log = structlog.get_logger()

GRACE_SECONDS = 30.0
"""Seconds from the app master's own order to suspend to the kill."""
START_WAIT_SECONDS = 0.2
"""Seconds for which a start waits for the previous container on a slot to end."""


@builds
class Surroundings:
    """The objects that all jobs of an app share: app file, folder, machine, runtime, outbox."""

    app: str
    attempt: int
    """Number of this app master's attempt; files of its gangs are newer than those of all earlier attempts."""
    file: AppFile
    app_dir: Path
    working_folder: Path
    env: Mapping[str, str]
    """The submitter's PATH, HOME, LANG and VIRTUAL_ENV."""
    runtimes: NodeRuntimes
    outbox: Outbox
    activity: ActivityLog
    notices: Notices
    save: Callable[[], None]
    """Saves the state; called before a gang is started, so that no incarnation number is ever used twice."""

    def store(self, job: Job) -> JobCheckpoints:
        """Return the store of a job's checkpoints; the checkpoint that it reported last is also looked up by name."""
        fence = Fence(job.attempt, job.incarnation)
        named = [f"{fence.name}/{job.saved_step:06d}"] if job.saved_step and job.incarnation else []
        return JobCheckpoints(self.app_dir / str(job.number) / CHECKPOINTS_FOLDER, named=named)

    def best_store(self, job: Job) -> JobCheckpoints:
        """Return the store of the checkpoint that a job keeps for its best metric."""
        return JobCheckpoints(self.app_dir / str(job.number) / BEST_FOLDER, keep=1)


def lost_checkpoints(job: Job, newest: Checkpoint | None, faults: Sequence[CheckpointError]) -> str:
    """Return a text on lost work if a job's newest good checkpoint is older than the last it saved; empty: none."""
    if job.saved_step <= (0 if newest is None else newest.step):
        return ""
    how = f" ({faults[-1]})" if faults else ""
    what = f"its checkpoint of step {job.saved_step} is damaged or gone{how}"
    if newest is not None:
        return f"{what}; it goes on from the one before, of step {newest.step}"
    return f"{what}, and no earlier one is good; it starts again from the beginning"


class Gangs:
    """The gangs of all jobs, with their containers' last statuses."""

    def __init__(self, around: Surroundings, jobs: Mapping[int, Job]) -> None:
        self._around = around
        self._jobs = jobs
        self._statuses: dict[str, ContainerStatus] = {}
        self._owner = {each: job for job in jobs.values() if job.gang for each in job.gang.containers}
        self._undelivered: dict[str, str] = {}
        """Reason of an order to suspend that a container's node has not received, by container."""
        for gang in (job.gang for job in jobs.values() if job.gang and not job.gang.nodes):
            gang.nodes = (around.runtimes.own_node,) * len(gang.containers)  # saved by a one-node version

    # -- statuses

    def hear(self, statuses: Sequence[ContainerStatus]) -> Iterator[tuple[Job, ContainerStatus]]:
        """Store statuses of containers and yield them with their jobs; unknown containers are ordered to suspend."""
        for status in statuses:
            job = self._owner.get(status.container_id)
            if job is None or job.gang is None:
                self._skip_incarnation(status)
                self._refuse_stranger(status)
                continue
            known = self._statuses.get(status.container_id)
            if known is None or not known.completed:
                job.gang.confirmed |= not job.gang.crosses  # across nodes: once all parts have begun
                self._repeat_order(status)
                self._statuses[status.container_id] = self._on_arbiters_clock(status)
                yield job, status

    def _on_arbiters_clock(self, status: ContainerStatus) -> ContainerStatus:
        """Return a status with its end converted to the arbiter's clock, to compare the ends of a gang's workers."""
        ahead = self._around.runtimes.clock_ahead(status.node)
        if not ahead or status.ended_at is None:
            return status
        return dataclasses.replace(status, ended_at=status.ended_at - ahead)

    def statuses(self, gang: Gang) -> list[ContainerStatus]:
        """Return the last statuses of the workers of a gang that train together, by rank."""
        return [self._statuses[each] for each in gang.members if each in self._statuses]

    def busy(self) -> set[int]:
        """Return the GPUs on which processes of a gang may run; a completed container no longer uses its slot."""
        gangs = {id(job.gang): job.gang for job in self._owner.values() if job.gang is not None}
        return {
            gpu
            for gang in gangs.values()
            for gpu, container in zip(gang.gpus, gang.containers, strict=True)
            if not self._has_ended(container)
        }

    def _skip_incarnation(self, status: ContainerStatus) -> None:
        """Raise a job's incarnation above one that the runtime knows but the saved state has lost."""
        job = self._jobs.get(status.job)
        if job is not None and status.incarnation > job.incarnation:
            log.warning("incarnation.skipped", container=status.container_id)
            job.incarnation = status.incarnation

    def _refuse_stranger(self, status: ContainerStatus) -> None:
        """Stop a live container of an old incarnation; completed ones are ignored."""
        if status.state in (ContainerState.NEW, ContainerState.STARTING, ContainerState.RUNNING):
            log.warning("container.unknown", container=status.container_id)
            self._order_to_leave({status.node: (status.container_id,)}, "its app master does not know it")

    def _repeat_order(self, status: ContainerStatus) -> None:
        """Repeat the order to suspend for a worker whose node did not get it."""
        reason = self._undelivered.pop(status.container_id, "")
        if reason and status.state in (ContainerState.NEW, ContainerState.STARTING, ContainerState.RUNNING):
            self._order_to_leave({status.node: (status.container_id,)}, reason)

    def lose(self, gang: Gang, node: str, why: str, now: float) -> None:
        """Count a gang's workers on a node as lost; those that had ended before are unchanged."""
        for rank, container in enumerate(gang.containers):
            if gang.nodes[rank] == node and not self._has_ended(container):
                known = self._statuses.get(container) or _unheard(container, rank, gang, self._owner[container])
                self._statuses[container] = dataclasses.replace(
                    known, state=ContainerState.COMPLETED, exit=Exit(), ended_at=now, diagnostics=why
                )

    def waits_for(self, gang: Gang) -> set[str]:
        """Return the nodes with workers of a gang that have not ended."""
        pairs = zip(gang.containers, gang.nodes, strict=True)
        return {node for container, node in pairs if not self._has_ended(container)}

    def is_known_on(self, gang: Gang, node: str) -> bool:
        """Return whether a node has reported workers of a gang."""
        return any(container in self._statuses for container in gang.by_node().get(node, ()))

    def _has_ended(self, container: str) -> bool:
        return container in self._statuses and self._statuses[container].completed

    # -- actions

    def prepare(self, job: Job, run: TrialRun, slots: Sequence[Slot], cluster: Cluster | None, now: float) -> Gang:
        """Create a job's next incarnation, and save it before the runtime is called to start it.

        Raises:
            OSError: it could not be saved; the job has no gang.
        """
        store = self._around.store(job)
        checkpoint = store.latest()
        from_step = 0 if checkpoint is None else checkpoint.step
        lost = lost_checkpoints(job, checkpoint, store.faults)
        if job.has_helper or checkpoint is not None:
            job.lost += max(job.step - from_step, 0)
            job.step = from_step
        before = job.attempt, job.incarnation
        job.attempt, job.incarnation = self._around.attempt, job.incarnation + 1
        job.state = JobState.RUNNING
        job.seconds_per_step = None
        slots = in_order_of_ranks(slots)
        name = f"{self._around.app}.{job.number}.{job.incarnation}"
        job.gang = Gang(
            attempt=job.attempt,
            incarnation=job.incarnation,
            gpus=tuple(slot.gpu for slot in slots),
            containers=tuple(f"{name}.{rank}" for rank in range(len(slots))),
            nodes=tuple(slot.node for slot in slots),
            stop_at=run.stop_at,
            began_at=now,
            from_step=from_step,
            checkpoint="" if checkpoint is None else name_of(checkpoint),
        )
        self._make_live(job, job.gang)
        gpus = np.array(job.gang.gpus, dtype=np.int64)
        job.sizes[job.incarnation] = (len(slots), 0 if cluster is None else int(cluster.locality(gpus)))
        self._owner.update(dict.fromkeys(job.gang.containers, job))
        try:
            self._around.save()
        except OSError:  # the runtime was not called
            self.drop(job)
            del job.sizes[job.incarnation]
            job.attempt, job.incarnation = before
            raise
        if lost:
            job.notice, job.saved_step = lost, from_step  # so that each loss makes one notice
            self._around.notices.add(f"{self._around.app}/{job.number}: {lost}")
            self._around.activity.note("lost_checkpoints", job, now)
        return job.gang

    def _make_live(self, job: Job, gang: Gang) -> None:
        """Give a gang a membership, so that it can change its size live, if the app file has ``elastic = "live"``.

        A script that cannot change live is started in the same way after each restart, so that it runs as before.
        """
        if self._around.file.job.elastic == "live":
            gang.membership = Membership(current=Generation(number=0, members=gang.containers))
            gang.made = len(gang.containers)

    def add(self, job: Job, container: str, gpu: int, node: str) -> None:
        """Add a newcomer to a running gang; the newcomer is started once the state is saved."""
        if job.gang is not None:
            job.gang.add(container, gpu, node)
            self._owner[container] = job

    def remove(self, job: Job, container: str) -> None:
        """Remove a container that has left a running gang, or was never started."""
        if job.gang is not None:
            job.gang.remove(container)
        for known in (self._owner, self._undelivered, self._statuses):
            known.pop(container, None)

    def status(self, container: str) -> ContainerStatus | None:
        """Return the last status of a container; None: no node has reported it."""
        return self._statuses.get(container)

    def newcomer(self, job: Job, gang: Gang, container: str, slots: Mapping[int, Slot], store: str) -> GangSpec:
        """Return the specification with which one newcomer of a gang's planned generation is started."""
        generation = None if gang.membership is None else gang.membership.planned
        members = () if generation is None else generation.members
        rank = members.index(container)
        whole = self._spec(job, gang, slots, [container])
        return dataclasses.replace(
            whole,
            containers=(dataclasses.replace(whole.containers[0], rank=rank),),
            world_size=len(members),
            live=LiveSpec(generation=0 if generation is None else generation.number, members=members, store=store),
        )

    def start(self, job: Job, gang: Gang, slots: Mapping[int, Slot]) -> tuple[ContainerStatus, ...]:
        """Start a gang through the runtime. Idempotent, so that a call whose answer was lost can be repeated.

        Raises:
            SlotBusyError: the previous container on a slot has not ended.
            LeaseOverError: a lease has ended.
            RefusedError: the gang can never be started.
            RuntimeAwayError: the runtime does not answer.
            OSError: its folders cannot be created.
        """
        return self._around.runtimes.start(self._parts(job, gang, slots), wait_seconds=START_WAIT_SECONDS)

    def part(self, job: Job, gang: Gang, slots: Mapping[int, Slot], node: str) -> GangSpec:
        """Return the specification of the part of a gang that a node starts."""
        return self._parts(job, gang, slots)[node]

    def undo(self, gang: Gang, reason: str) -> None:
        """Cancel the unfinished start of a gang over several nodes; its job has done no work there yet."""
        self._around.runtimes.undo(gang.by_node(), reason)

    def stop(self, gang: Gang, reason: str) -> None:
        """Order a gang to suspend, once."""
        if not gang.ordered:
            gang.ordered = reason
            self._order_to_leave(gang.by_node(), reason)

    def move_rung(self, gang: Gang, stop_at: int | None) -> None:
        """Send a running gang the new step at which it pauses; None: it does not pause."""
        gang.stop_at = stop_at
        for node, containers in gang.by_node().items():
            try:
                self._around.runtimes.of(node).order_stop_at(containers, stop_at)
            except (RefusedError, RuntimeAwayError) as error:
                log.warning("runtime.order_lost", node=node, why=str(error))

    def end_stalled(self, gang: Gang, silent_seconds: float, reason: str, *, only: Collection[str] = ()) -> bool:
        """End the workers of a stalled gang on all its nodes; returns False if one has made progress after all.

        Once one node has ended its workers, those of other nodes are ordered to suspend even if they make progress.

        Args:
            gang: the stalled gang.
            silent_seconds: seconds without progress.
            reason: the reason that the workers' statuses report.
            only: the workers to end; empty: all.
        """
        ended = False
        for node, known in gang.by_node().items():
            containers = tuple(each for each in known if not only or each in only)
            if not containers:
                continue
            try:
                runtime = self._around.runtimes.of(node)
                silent = runtime.end_stalled(containers, silent_seconds=silent_seconds, reason=reason)
            except (RefusedError, RuntimeAwayError) as error:
                log.warning("stall.not_ended", containers=containers, why=str(error))
                silent = False
            if not silent and not ended:
                return False
            if not silent:
                self._order_to_leave({node: containers}, reason)
            ended = True
        return ended

    def drop(self, job: Job) -> None:
        """Drop a job's gang, which has ended or never started."""
        if job.gang is not None:
            for container in job.gang.containers:
                self._owner.pop(container, None)
                self._undelivered.pop(container, None)
                self._statuses.pop(container, None)
        job.gang = None

    def _order_to_leave(self, containers: Mapping[str, tuple[str, ...]], reason: str) -> None:
        """Order workers to suspend, by node; a node that does not answer gets the order once it does."""
        for node, ids in containers.items():
            try:
                self._around.runtimes.of(node).stop(ids, deadline_seconds=GRACE_SECONDS, reason=reason)
            except RefusedError as error:
                log.warning("runtime.order_lost", node=node, why=str(error))
            except RuntimeAwayError as error:
                log.warning("runtime.order_delayed", node=node, why=str(error))
                self._undelivered.update(dict.fromkeys(ids, reason))

    def _parts(self, job: Job, gang: Gang, slots: Mapping[int, Slot]) -> dict[str, GangSpec]:
        """Return the specification of the part of a gang that each node starts, by node; the node of rank 0 first."""
        whole = self._spec(job, gang, slots, gang.containers)
        nodes = list(gang.by_node())
        address = self._around.runtimes.of(nodes[0]).host()
        reachable = gang.crosses or self._around.file.job.slots.across_nodes
        live = None if gang.membership is None else LiveSpec(generation=0, members=gang.members, reachable=reachable)
        return {
            node: dataclasses.replace(
                whole,
                containers=tuple(spec for spec, on in zip(whole.containers, gang.nodes, strict=True) if on == node),
                world_size=len(gang.containers),
                master_address=address,
                group_rank=group_rank,
                live=live,
            )
            for group_rank, node in enumerate(nodes)
        }

    def _spec(self, job: Job, gang: Gang, slots: Mapping[int, Slot], chosen: Collection[str]) -> GangSpec:
        around = self._around
        folder = around.app_dir / str(job.number)
        filling = Filling(
            parameters=job.parameters,
            seed=job.seed,
            max_iterations=around.file.search.max_iterations,
            log_dir=folder / "logs",
            checkpoint_dir=folder / CHECKPOINTS_FOLDER,
        )
        for path in (filling.log_dir, filling.checkpoint_dir, folder / OUTPUT_FOLDER):
            path.mkdir(parents=True, exist_ok=True)
        return GangSpec(
            job=job.number,
            incarnation=gang.incarnation,
            containers=tuple(
                ContainerSpec(
                    container_id=container,
                    slot=slots[gpu].slot,
                    epoch=slots[gpu].epoch,
                    token=slots[gpu].token,
                    rank=rank,
                )
                for rank, (container, gpu) in enumerate(zip(gang.containers, gang.gpus, strict=True))
                if container in chosen
            ),
            command=tuple(around.file.command.fill(filling, virtual_env=around.env.get("VIRTUAL_ENV"))),
            working_folder=around.working_folder,
            env=self._environment(job, gang),
            run_folder=folder,
            app_folder=around.app_dir,
        )

    def _environment(self, job: Job, gang: Gang) -> dict[str, str]:
        file = self._around.file
        env = dict(self._around.env) | file.job.env
        env["EUNOMIA_ATTEMPT"] = str(gang.attempt)
        env["EUNOMIA_CHECKPOINT"] = gang.checkpoint
        env["EUNOMIA_PARAMS"] = json.dumps(dict(job.parameters))
        env["EUNOMIA_SEED"] = str(job.seed)
        if file.search.max_iterations is not None:
            env["EUNOMIA_MAX_ITERATIONS"] = str(file.search.max_iterations)
        env["EUNOMIA_PEERS_SECONDS"] = f"{file.job.stall_limits.peers_seconds:g}"
        if file.job.trust_checkpoints:
            env["EUNOMIA_TRUST_CHECKPOINTS"] = "1"
        if file.job.checkpoint_every is not None:
            env["EUNOMIA_CHECKPOINT_EVERY_SECONDS"] = str(file.job.checkpoint_every)
        if file.search.metric is not None:
            env["EUNOMIA_METRIC"], env["EUNOMIA_METRIC_MODE"] = file.search.metric, file.search.mode
        if gang.stop_at is not None:
            env["EUNOMIA_STOP_AT"] = str(gang.stop_at)
        return env


def in_order_of_ranks(slots: Sequence[Slot]) -> list[Slot]:
    """Return slots in the order of a gang's ranks: grouped by node, the node with most slots first."""
    sizes = Counter(slot.node for slot in slots)
    first = {node: min(slot.gpu for slot in slots if slot.node == node) for node in sizes}
    return sorted(slots, key=lambda slot: (-sizes[slot.node], first[slot.node], slot.gpu))


def _unheard(container: str, rank: int, gang: Gang, job: Job) -> ContainerStatus:
    """Return a placeholder status for a worker that no node has reported."""
    return ContainerStatus(
        container_id=container,
        job=job.number,
        incarnation=gang.incarnation,
        slot=0,
        epoch=0,
        rank=rank,
        state=ContainerState.NEW,
        pid=None,
        exit=None,
        started_at=None,
        ended_at=None,
        step=None,
        seconds_per_step=None,
        saved_step=None,
        suspended_step=None,
        announced={},
        hello=False,
        forked=False,
        killed=False,
        stop_reason="",
        diagnostics="",
        version=-1,
        node=gang.nodes[rank],
    )
