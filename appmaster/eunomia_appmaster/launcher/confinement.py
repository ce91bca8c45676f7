"""Puts containers into control groups: sets limits per lease, kills unmarked processes, and detects lack of memory."""

import dataclasses
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from eunomia_appmaster.launcher.container import NO_SLOT, SUSPENDED, Container
from eunomia_appmaster.launcher.cores import Cores
from eunomia_appmaster.launcher.processes import ProcessId, identify, kill, members
from eunomia_appmaster.node.control_groups import BESIDE_PACED_WEIGHT, PACED_WEIGHT, ControlGroups, GroupLimits
from eunomia_appmaster.node.job_limits import DEFAULTS, JobLimits
from eunomia_appmaster.node.local_machine import GIB, LocalMachine
from eunomia_appmaster.node.machine_faults import out_of_memory_kills
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import launcher_pb2 as pb

log = structlog.get_logger()

_SWEEP_SECONDS = 5.0


class Confinement:
    """Creates the control group of each container of a launcher, and sets its limits.

    Args:
        groups: the control groups of this machine.
        machine: the machine with its slots; a lease has their CPUs and memory unless the arbiter orders other amounts.
        limits: returns the cluster's limits on jobs.
        system: provides the machine's clocks.
    """

    def __init__(
        self,
        groups: ControlGroups,
        machine: LocalMachine,
        *,
        limits: Callable[[], JobLimits] = lambda: DEFAULTS,
        system: System = MACHINE,
    ) -> None:
        self._groups, self._machine, self._system = groups, machine, system
        self._of_jobs = limits
        self.refusals: dict[int, str] = {}
        """Why the last order about a slot's CPUs or memory was refused, by slot."""

    def confine(self, container: Container, cores: Cores) -> None:
        """Create a container's group, which its worker joins before it executes any code.

        Raises:
            OSError: the kernel refused it.
        """
        limits = self.limits(container, cores)
        others = [slot for slot in self._machine.slots if slot.device and slot.index not in container.gang_slots]
        if container.status.slot != NO_SLOT:  # as torchrun does, a worker sees all GPUs of its gang
            limits = dataclasses.replace(limits, closed_devices=tuple(slot.device for slot in others))
        container.group = self._groups.make(container.mark, limits)

    def limits(self, container: Container, cores: Cores) -> GroupLimits:
        """Return the limits of a container: those of the last order about its slot, else its slot's share."""
        slot = self._machine.slot(container.status.slot)
        if container.status.slot == NO_SLOT or slot is None:  # an app master; or a GPU that is gone
            beside_paced = any(each.is_paced for each in self._machine.slots)
            return GroupLimits(cpu_weight=BESIDE_PACED_WEIGHT if beside_paced else None)
        ordered = cores.amounts(slot.index, container.status.epoch)
        cpus, memory_gib = (slot.cpus, slot.memory_gib) if ordered is None else ordered
        limits = self._limits(cpus, memory_gib)
        return dataclasses.replace(limits, cpu_weight=PACED_WEIGHT) if slot.is_paced else limits

    def admits(self, container: Container | None, slot: int, cpus: float, memory_gib: float) -> bool:
        """Set a slot's CPU and memory limits; returns False if they cannot be set, whose cause is logged once."""
        refusal = None if container is None else self._change(container, cpus, memory_gib)
        if refusal is None:
            self.refusals.pop(slot, None)
        elif self.refusals.get(slot) != refusal:
            self.refusals[slot] = refusal
            log.warning("slot.not_tuned", slot=slot, why=refusal)
        return refusal is None

    def _change(self, container: Container, cpus: float, memory_gib: float) -> str | None:
        """Set the limits of a running container; returns why they were refused, in which case nothing changes."""
        limits = self._limits(cpus, memory_gib)
        in_use = container.group.memory_in_use()
        if limits.memory_bytes is not None and in_use is not None and in_use > limits.memory_bytes:
            return f"a limit of {memory_gib:.2f} GiB is below the {in_use / GIB:.2f} GiB that {container.id} uses"
        try:
            container.group.limit(limits)
        except OSError as error:
            return f"the kernel refused a limit of {container.id}: {error}"
        return None

    def _limits(self, cpus: float, memory_gib: float) -> GroupLimits:
        return GroupLimits(
            cpus=cpus if cpus > 0 else None,
            memory_bytes=int(memory_gib * GIB) if memory_gib > 0 else None,
            processes=self._of_jobs().processes,
        )

    def sweep(self, containers: "list[Container]") -> None:
        """Kill processes left in groups of ended or unknown containers, as exist for instance after a lost record."""
        known = {container.mark for container in containers if not container.completed}
        left = {name: group for name, group in self._groups.left().items() if name not in known}
        clock = self._system
        deadline = clock.monotonic() + _SWEEP_SECONDS
        for name, group in left.items():
            if not group.is_empty():
                log.warning("group.killed", group=name, processes=len(group.processes()))
            while not group.is_empty() and clock.monotonic() < deadline:
                group.kill()
                clock.sleep(0.01)
            group.remove()

    def close(self) -> None:
        """Remove the launcher's folder of groups if it is empty."""
        self._groups.close()


def processes_of(container: Container) -> list[ProcessId]:
    """Return all living processes of a container except its shepherd, found by their marks and by its control group."""
    found = {process.pid: process for process in members(container.mark, container.worker, container.shepherd)}
    for pid in container.group.processes():
        if pid not in found and (process := identify(pid)) is not None:
            found[pid] = process
    return list(found.values())


def kill_short_of_memory(containers: "list[Container]") -> None:
    """Kill the remaining processes of each group in which the kernel has killed one for lack of memory.

    The kernel does so itself in version 2; in version 1, a worker could wait forever for a child that was killed.
    """
    for container in containers:
        if not container.completed and container.group.out_of_memory_kills() and not container.group.is_empty():
            log.warning("container.out_of_memory", container=container.id)
            container.group.kill()


def note_lack_of_memory(container: Container) -> None:
    """Record lack of memory as the cause if a worker failed without an order and the kernel killed for lack of memory.

    With a control group, the kernel counts its kills in that group, including kills of the worker's children. Without
    one, a SIGKILL while the machine's count of such kills rose counts as a kill for lack of memory.
    """
    status, group = container.status, container.group
    failed = status.exit.signal or status.exit.code not in (0, SUSPENDED)
    if status.killed or status.stop_reason or not failed:
        return
    if group.out_of_memory_kills() is None:
        rose = status.exit.signal == signal.SIGKILL and out_of_memory_kills() > container.kills_before
        words = "out of memory" if rose else None
    else:
        words = _lack_of_memory(container)
    if words is not None:
        status.out_of_memory = True
        status.diagnostics = words


def _lack_of_memory(container: Container) -> str | None:
    """Return a message about the kernel's kills for lack of memory in the container's group; None: there were none."""
    if not container.group.out_of_memory_kills():
        return None
    limit = container.group.memory_limit()
    return "out of memory" if limit is None else f"out of memory: its slot has {limit / GIB:.2f} GiB"


def drop_lost(link: Path) -> None:
    """Remove the link of a container whose record is missing, after a kill of the launcher or a power failure.

    In the first case nothing was started, in the second nothing runs any more; any process that still runs is killed.
    """
    lost = Container(pb.ContainerStatus(container_id=link.name), link.resolve())
    lost.read_worker()
    kill(members(lost.mark, lost.worker, lost.shepherd))
    link.unlink()
