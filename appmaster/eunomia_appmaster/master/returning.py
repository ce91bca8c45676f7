"""Gives back slots that an app cannot use: idle ones, those of unreachable nodes, and those on which workers fail."""

from collections.abc import Collection, Mapping, Set

import structlog

from eunomia_appmaster.master.away_nodes import AwayNodes
from eunomia_appmaster.master.gangs import Surroundings
from eunomia_appmaster.master.outbox import ReleaseReport
from eunomia_appmaster.master.slots import Slot, SlotBook

log = structlog.get_logger()


class Returning:
    """Decides which slots are given back, and reports them to the arbiter.

    Args:
        around: the objects that all jobs of the app share.
        book: the app's leases.
    """

    def __init__(self, around: Surroundings, book: SlotBook) -> None:
        self._around = around
        self._book = book
        self._away = AwayNodes(around.runtimes)
        self._idle_since: dict[int, float] = {}

    def reached(self, node: str) -> None:
        """Record that a node has answered."""
        self._away.answered(node)

    def idle(self, slots: Mapping[int, Slot], busy: Set[int], now: float, *, patience: float, wait: bool) -> None:
        """Give back slots of leases for the whole app that have been idle for ``patience`` seconds.

        Args:
            slots: the app's slots, by GPU.
            busy: GPUs that are in use, or soon will be.
            now: Unix time in seconds.
            patience: seconds for which slots must be idle.
            wait: whether to give back nothing now, since a job that is stopping may use the slots.
        """
        ready = {gpu for gpu, slot in slots.items() if slot.job is None and self._around.runtimes.is_ready(slot.node)}
        self._idle_since = {gpu: self._idle_since.get(gpu, now) for gpu in ready - busy}
        over = [gpu for gpu, since in self._idle_since.items() if now - since >= patience]
        if not wait:
            self._give_back(slots, over)

    def unreachable(self, slots: Mapping[int, Slot], kept: Collection[int], now: float) -> None:
        """Give back slots of nodes that the app master cannot reach, after growing pauses.

        Args:
            slots: the app's slots, by GPU.
            kept: GPUs on which workers may still run.
            now: Unix time in seconds.
        """
        nodes = self._away.due({slot.node for slot in slots.values()}, now)
        self._give_back(slots, [gpu for gpu, slot in slots.items() if slot.node in nodes and gpu not in kept])

    def of_no_use(self, slots: Mapping[int, Slot], nodes: Collection[str], kept: Collection[int]) -> None:
        """Give back the slots of nodes that lack a prerequisite; ``kept``: GPUs of workers that run there."""
        self._give_back(slots, [gpu for gpu, slot in slots.items() if slot.node in nodes and gpu not in kept])

    def unusable(self, slots: Mapping[int, Slot], gpus: Collection[int]) -> None:
        """Give back slots of jobs' own leases on which workers fail, or that are surplus to a job's allowed size."""
        self._give_back(slots, gpus)

    def _give_back(self, slots: Mapping[int, Slot], over: Collection[int]) -> None:
        leases: dict[tuple[int, int], list[int]] = {}
        for gpu in sorted(over):
            leases.setdefault((slots[gpu].lease, slots[gpu].epoch), []).append(gpu)
        for (lease, epoch), gpus in leases.items():
            log.info("slots.given_back", lease=lease, gpus=gpus)
            report = ReleaseReport(lease=lease, epoch=epoch, gpus=tuple(gpus))
            self._around.outbox.put("releases", report, key=(lease, epoch, tuple(gpus)))
            self._book.lose(gpus, epoch)
