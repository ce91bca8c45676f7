"""Texts about nodes: their states, their effects on running and waiting jobs, and the machines that a job lacks."""

import math
from collections import Counter
from typing import Final

import numpy as np

from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.units import NONE, format_duration
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.node_leases import lease_words
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.service import Service

UP: Final = "up"
DOWN: Final = "down"
DRAINING: Final = "draining"
_ENDS: Final = (GpuState.LEAVING, GpuState.DOWN)
STORAGE: Final = "waits for storage or a device"
NAMED: Final = 5
"""Maximum number of processes that a text names."""
_WAITS: Final = (JobState.WAITING, JobState.PAUSED)


class NodeWords:
    """Describes problems of nodes; call it under the driver's lock.

    Args:
        service: the arbiter's service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    # --- one node --------------------------------------------------------------------------------------------------

    def state(self, node: Node) -> str:
        """Return ``up``, ``draining`` while a lease includes slots of it, ``drained``, or ``down``."""
        if node.lost or not node.registered:
            return DOWN
        if not (node.drains or node.draining):
            return UP
        held = self._service.view.gpus.app
        return DRAINING if any(held[gpu] != NONE for gpu in self._gpus(node)) else "drained"

    def why(self, node: Node) -> str:
        """Return the text to show about a node; empty if there is nothing to report."""
        down = node.lost or not node.registered
        clock = "" if down else node.clock_offset.words
        return "; ".join(filter(None, [self._reason(node), *_unkilled(node), clock]))

    def _reason(self, node: Node) -> str:
        """Return why a node is not up, or will not stay up; empty if it is up and stays up."""
        if node.lost and node.registered:
            return f"it is back; its slots wait until what ran there has ended{_left_on(node)}"
        if node.lost and node.left:
            return "its launcher was ended; its slots are used again once it is back"
        if node.lost:
            return f"silent; its slots wait until its processes are known to be dead{self._cure(node)}"
        if not node.registered:
            return "not heard since the arbiter's start"
        order = self._service.upkeep.order(node.name)
        silent = lease_words(node.silent_seconds, node.lease)
        if node.drains:
            return "; ".join(
                filter(None, [order.why, "it is removed once it is empty" if order.leaves else "", silent])
            )
        return silent or ("its launcher was ordered to end" if node.draining else "")

    def _cure(self, node: Node) -> str:
        """Return the remedy for a silent node; empty if none is needed, since its supervisor restarts its launcher."""
        if node.is_head:
            return ""
        several = self._service.nodes.are_several
        off = f", or eunomia nodes remove {node.name} --is-off once the machine is off" if several else ""
        return f": start its launcher again{off}"

    def _verb(self, node: Node) -> str:
        """Return a node's state as a verb, with the reason: ``drains (ana: maintenance)``."""
        state, why = self.state(node), self._reason(node)
        verb = "is down" if state == DOWN else "is up" if state == UP else "drains"
        return f"{verb} ({why})" if why else verb

    def _gpus(self, node: Node) -> list[int]:
        """Return the GPUs of a node, without those that its launcher did not find."""
        layout, missing = self._service.nodes.layout, self._service.nodes.missing(node)
        gpus = [] if layout is None else layout.gpus_of(node.name)
        return [gpu for gpu in gpus if layout is not None and layout.places[gpu].slot not in missing]

    def slots_of(self, job: int) -> dict[str, int]:
        """Return a job's number of slots by node, by the job's row; empty: none, or the cluster has only one node."""
        layout = self._service.nodes.layout
        if layout is None or len(layout.nodes) == 1:
            return {}
        held = np.flatnonzero(self._service.view.gpus.job == job).tolist()
        return dict(sorted(Counter(layout.node_of(gpu) for gpu in held).items()))

    # --- a job -----------------------------------------------------------------------------------------------------

    def about(self, job: int) -> list[str]:
        """Return how nodes affect a job, by the job's row: unused nodes if it waits, ending ones if it runs."""
        view = self._service.view
        if view.jobs.state[job] in _WAITS:
            short = self.shortage(int(view.jobs.least[job]), int(view.jobs.gpu_type[job]))
            return [*filter(None, [short]), *self._unused(int(view.jobs.gpu_type[job]))]
        return [*self._ending(job)]

    def shortage(self, least: int, kind: int = NONE) -> str:
        """Return text on the machines that the cluster lacks for a gang of ``least`` slots of a type; empty: none.

        Args:
            least: slots of the job's smallest gang.
            kind: number of the requested GPU type; -1: any.
        """
        service, view = self._service, self._service.view
        there = view.cluster.present()
        if kind != NONE:
            there = there[view.cluster.gpu_type[there] == kind]
        up = there[view.gpus.state[there] != GpuState.DOWN]
        idle = [gpu for node in service.nodes if self.state(node) != UP for gpu in self._gpus(node)]
        serves = int(up.size - np.isin(up, idle).sum()) if idle else int(up.size)
        if least <= serves:
            return ""
        most = service.upkeep.most_slots
        if least <= there.size:
            return f"it needs {_slots(least)}, and {serves} of {there.size} are there"
        found = [gpu for node in service.nodes for gpu in self._gpus(node)]
        size = f"it needs {_slots(least)}, and the cluster has {int(np.isin(there, found).sum())}"
        return (
            f"{size}; it had {most} at once"
            if kind != NONE or least <= most
            else f"{size}, and never had more than {most} at once"
        )

    def _unused(self, kind: int) -> list[str]:
        """Return lines about nodes with slots of a type on which no job starts, or that may be lost soon."""
        view, found = self._service.view, []
        for node in self._service.nodes:
            usable = [gpu for gpu in self._gpus(node) if kind in (NONE, int(view.cluster.gpu_type[gpu]))]
            state, why = self.state(node), self._reason(node)
            if usable and state != UP:
                found.append(f"{node.name} {self._verb(node)}: no job starts on its {_slots(len(usable))}")
            elif usable and why:
                found.append(f"{node.name}: {why}")
            found += [f"{node.name}: {words}" for words in _unkilled(node) if usable]
        return found

    def _ending(self, job: int) -> list[str]:
        """Return lines about the nodes of a running job on which it cannot stay for long."""
        view, now = self._service.view, float(self._service.driver.clock.now())
        mine, found = set(np.flatnonzero(view.gpus.job == job).tolist()), []
        for node in self._service.nodes:
            held = sorted(mine & set(self._gpus(node)))
            if not held or (self.state(node) == UP and not self._reason(node)):
                continue
            ends = min(float(view.gpus.ends_at[gpu]) for gpu in held) - now
            leaves = any(view.gpus.state[gpu] in _ENDS for gpu in held)
            term = f", and its lease there ends in {_seconds(ends)}" if math.isfinite(ends) and not leaves else ""
            found.append(f"it runs on {_slots(len(held))} of {node.name}, which {self._verb(node)}{term}")
        return found


def _left_on(node: Node) -> str:
    """Return text on the processes that are left on a node, with their jobs: `` (nets/4: process 4711)``."""
    left = [f"{one.app}/{one.job}: process {one.pid}" for one in node.containers if one.pid]
    return (
        f" ({', '.join(left[:NAMED])}{f', and {len(left) - NAMED} more' if len(left) > NAMED else ''})" if left else ""
    )


def _unkilled(node: Node) -> list[str]:
    """Return the slots of a node that responds on which processes have not ended since SIGKILL, as texts."""
    if node.lost or not node.registered:
        return []
    return [
        f"slot {state.slot} waits for {', '.join(map(_named, state.unkilled[:NAMED]))}, killed but not ended"
        for _, state in sorted(node.slot_states.items())
        if state.unkilled
    ]


def _named(process: pb.UnkilledProcess) -> str:
    """Return a process that does not end as text: ``process 4711 of nets/4 (state S)``."""
    words = f": {STORAGE}" if process.state == "D" else ""
    return f"process {process.pid} of {process.app}/{process.job} (state {process.state or '?'}{words})"


def _slots(count: int) -> str:
    return f"{count} slot{'' if count == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 59.5 else format_duration(seconds)
