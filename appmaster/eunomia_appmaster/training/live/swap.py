"""Adapts a run to a new generation: its state, division of batches, duties of rank 0, and reports of the change."""

import os
import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NoReturn

import torch
from torch import nn

from eunomia_appmaster.training.changes import NO_STATE
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.keeper import Keeper
from eunomia_appmaster.training.kept import KeptModel, KeptOptimizer
from eunomia_appmaster.training.live import transfer
from eunomia_appmaster.training.live.gang import EntryRow, LiveGang, same_as
from eunomia_appmaster.training.live.groups import PeerGroup
from eunomia_appmaster.training.live.memory import readable
from eunomia_appmaster.training.loader import PreparedLoader
from eunomia_appmaster.training.logbook import Logbook
from eunomia_appmaster.training.supervision import Supervision


@dataclass(frozen=True, slots=True)
class Entered:
    """How a worker has entered a generation: at which step, and whether it took the state of another worker."""

    step: int
    taken: bool


@dataclass(slots=True)
class _Report:
    """Times of a change that rank 0 reports once the next step can begin, in seconds of the monotonic clock."""

    heard_at: float
    boundary_at: float
    at_least: bool = False
    """Whether the run may have stood still since before the boundary: the end of its last whole step is not known."""


class Swap:
    """Enters generations for a run.

    Args:
        gang: this worker's gang.
        keeper: the keeper of the run's state.
        supervision: the run's supervision.
        logbook: the run's logs.
        suffix: end of the name of a log file of this incarnation.
        loaders: all loaders that the run has prepared so far.
    """

    def __init__(
        self,
        gang: Gang,
        keeper: Keeper,
        supervision: Supervision,
        logbook: Logbook,
        suffix: str,
        loaders: list[PreparedLoader],
    ) -> None:
        self._gang, self._keeper, self._supervision, self._logbook = gang, keeper, supervision, logbook
        self._suffix, self._loaders = suffix, loaders
        self._was_main = gang.rank == 0 and not gang.newcomer
        self._step, self._taken = 0, False
        self._began = gang.newcomer
        self._report: _Report | None = None
        self._whole_at: tuple[float, int] | None = None
        """Time, in seconds of the monotonic clock, of the end of the last whole step, or of the boundary after it from
        which all workers went on, and the number of other things that the script had done by then."""
        self._room: list[torch.Tensor] = []
        """Memory for the state that this newcomer will receive."""
        self._has_layout = False

    def begins(self) -> None:
        """Publish, as the first loop begins, a description of what is trained, which newcomers compare with theirs."""
        if isinstance(self._gang, LiveGang) and not self._gang.newcomer:
            if self._began:
                return
            self._began = True
            self._gang.fingerprint(self._fingerprint())
            self._report = _Report(time.monotonic(), time.monotonic())

    def joins(self) -> Entered:
        """Wait for the first generation, as a newcomer that has built the objects that it trains."""
        gang = self._live
        mine, theirs = self._fingerprint(), gang.fingerprint("") or self._fingerprint()
        if why := _difference(mine, theirs):
            self._supervision.go("unfit", {"generation": gang.newest, "why": why}, f"left: {why}")
        if gang.device.type == "cpu":
            self._room = self._room_for(gang.layout() or [])
        gang.says_ready()
        return self._enters(NO_STATE)

    def changes(self, step: int, generation: int) -> Entered:
        """Enter a newer generation at a step boundary on which all workers agreed."""
        if self._report is None:  # else the run stands still since the loss of a peer
            self._report = _Report(self._live.heard_at, time.monotonic())
        self._live.leaves_group(generation)
        return self._enters(step)

    def mends(self, step: int) -> Entered:
        """Enter a newer generation after the loss of a peer; the run stands still from the end of its last whole step.

        That end is not known where the script has done other things since, such as an evaluation.
        """
        whole_at, others = self._whole_at or (0.0, -1)
        known = others == self._supervision.signs.others
        since = whole_at if known else time.monotonic()
        self._report = self._report or _Report(since, since, at_least=not known)
        return self._enters(step)

    def goes_on(self, step: int, *, begins: bool) -> None:
        """Process that all workers of the present generation are at the same polling point.

        Args:
            step: number of optimizer steps.
            begins: whether a step begins now, if the script does not evaluate.
        """
        if begins:
            self._notes_whole()
        if self._gang.live:
            self._live.has_begun()
            self._keep_for_newcomers(step)
        report, self._report = self._report, None
        if report is None or not self._gang.live:
            return
        if self._gang.rank == 0:
            now = time.monotonic()
            content = {
                "generation": self._gang.generation,
                "size": self._gang.size,
                "step": step,
                "join_seconds": report.boundary_at - report.heard_at,
                "pause_seconds": now - report.boundary_at,
                "at_least": report.at_least,
                "at": time.time(),
            }
            self._supervision.say("resized", content)

    def stepped(self) -> None:
        """Process that a step was made in the present generation, and has just ended."""
        if self._gang.live:
            self._notes_whole()
            self._live.drop_old_group()

    def _notes_whole(self) -> None:
        self._whole_at = time.monotonic(), self._supervision.signs.others

    # -- the interface of gangs (Entry)

    def exchange(self, group: PeerGroup | None, rows: list[EntryRow]) -> int:
        """Receive the state of a member with more steps, or send this worker's state to members with fewer steps."""
        furthest = max(row.step for row in rows)
        if group is None or furthest == NO_STATE:
            return furthest
        holders = [rank for rank, row in enumerate(rows) if row.step == furthest]
        lacking = [rank for rank, row in enumerate(rows) if row.step < furthest]
        same_as(group, holders[0], [buffer for model in self._modules for buffer in model.buffers()])
        source_of = {rank: holders[number % len(holders)] for number, rank in enumerate(lacking)}
        if group.rank in source_of:
            self._take(transfer.receive(group, source_of[group.rank], self._gang.device, self._room))
        elif group.rank in source_of.values():
            state = self._state()
            with readable():
                sent = [
                    transfer.StateTransfer(group, state, rank) for rank, of in source_of.items() if of == group.rank
                ]
                for each in sent:
                    each.finish()
        return furthest

    def leave(self, generation: int) -> NoReturn:
        """End the process, since the gang goes on without this worker."""
        content = {"generation": generation, "step": self._step}
        self._supervision.go("leaving", content, f"left at step {self._step}, the other workers go on")

    def stop(self, why: str) -> NoReturn:
        """End the process, since an order ends it, or no gang can be formed."""
        content = {"generation": max(self._gang.generation, 0), "step": max(self._step, 0)}  # a newcomer has none yet
        where = "before its first step" if self._step < 0 else f"at step {self._step} between two generations"
        self._supervision.go("leaving", content, f"left {where}: {why}")

    # -- parts

    @property
    def _live(self) -> LiveGang:
        if not isinstance(self._gang, LiveGang):
            raise TypeError("only a live gang changes")
        return self._gang

    @property
    def _modules(self) -> list[nn.Module]:
        return [kept.module for kept in self._keeper.kept if isinstance(kept, KeptModel)]

    def _enters(self, step: int) -> Entered:
        self._step, self._taken = step, False
        newcomer = self._gang.newcomer
        self._live.form(self, step)
        if self._taken and not newcomer:
            self._keeper.restore_taken()
        self._settle()
        return Entered(self._step, self._taken)

    def _keep_for_newcomers(self, step: int) -> None:
        """Publish ``run.state`` and, after the optimizer's first step, the layout for which newcomers need memory."""
        self._live.keep_state(self._keeper.state)
        if step and self._gang.rank == 0 and not self._has_layout:
            self._has_layout, self._step = True, step
            self._live.keep_layout([transfer.layout_of(each) for each in self._state()["objects"]])

    def _room_for(self, layouts: list[transfer.Layout]) -> list[torch.Tensor]:
        """Return memory for the large tensors of each object: of models, which a newcomer has not trained, their own.

        The memory of others is touched here, before the peers wait for this worker.
        """
        room: list[torch.Tensor] = []
        for kept, layout in zip(self._keeper.kept, layouts, strict=False):
            own = kept.module.state_dict() if isinstance(kept, KeptModel) else {}
            in_place = all(each.is_contiguous() for each in own.values() if isinstance(each, torch.Tensor))
            in_place = in_place and transfer.layout_of(own) == layout
            room += transfer.large_tensors(own) if in_place else transfer.room_for(layout)
        return room

    def _state(self) -> dict[str, Any]:
        return self._keeper.alone(self._keeper.capture(self._step)) | {"randomness": []}

    def _take(self, state: dict[str, Any]) -> None:
        self._keeper.take(state)
        self._step, self._taken = int(state["step"]), True

    def _settle(self) -> None:
        """Adapt the run to the generation that it has entered."""
        gang = self._gang
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(gang.rank), str(gang.size)
        for loader in self._loaders:
            loader.redivide(gang.rank, gang.size)
        for model in self._modules:
            for parameter in model.parameters():
                parameter.grad = None
        if gang.rank == 0 and not self._was_main:
            self._keeper.take_over()
            self._supervision.best.take_over()
            self._logbook.take_over(f"{self._suffix}.g{gang.generation}", self._step + 1)
        elif gang.rank and self._was_main:
            self._logbook.stop()
        self._was_main, self._room = gang.rank == 0, []

    def _fingerprint(self) -> str:
        """Return what is trained, one fact per line: shapes by name, parameters by group, kinds of other objects."""
        facts: list[str] = []
        for kept in self._keeper.kept:
            if isinstance(kept, KeptModel):
                facts += [f"{kept.kind} {name} {tuple(one.shape)}" for name, one in kept.module.state_dict().items()]
            elif isinstance(kept, KeptOptimizer):
                facts.append(f"{kept.kind} {[len(group['params']) for group in kept.optimizer.param_groups]}")
            else:
                facts.append(kept.kind)
        return "\n".join(facts)


def _difference(mine: str, theirs: str) -> str:
    """Return a text on the first fact in which two descriptions of what is trained differ; empty: there is none."""
    for own, others in zip_longest(mine.splitlines(), theirs.splitlines(), fillvalue="nothing more"):
        if own != others:
            return f"it trains {own}, and its peers {others}"
    return ""
