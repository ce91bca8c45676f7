"""Moments at which a kill hurts most: an open offer, a checkpoint that is being written, a container that starts."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from chaos.kills.victims import Container, containers
from eunomia.journal.journal import Step

AUCTION, CHECKPOINT, START, BETWEEN = "auction", "checkpoint", "start", "between"
MOMENTS = (AUCTION, CHECKPOINT, START)


class Offers:
    """The times at which offers were open, from the journal; Unix seconds."""

    def __init__(self) -> None:
        self.open_since: dict[int, float] = {}
        self.closed: list[tuple[float, float]] = []

    def take(self, steps: Iterable[Step]) -> None:
        """Fold steps."""
        for step in steps:
            if step.decision.closed is not None:
                since = self.open_since.pop(int(step.decision.closed), None)
                if since is not None:
                    self.closed.append((since, step.at))
            for offer in step.decision.offers:
                self.open_since[int(offer.id)] = step.at

    def was_open(self, at: float) -> bool:
        """Whether an offer was open then."""
        spans = [*self.closed, *((since, float("inf")) for since in self.open_since.values())]
        return any(since <= at < until for since, until in spans)


def starting(folder: Path) -> list[Container]:
    """Containers of workers that have been asked for and have not said hello."""
    return [each for each in containers(folder) if not each.is_master and not each.hello]


def writing(folder: Path) -> Iterator[tuple[str, int]]:
    """App and pid of each process that writes a checkpoint now."""
    for path in folder.glob("apps/*/[0-9]*/checkpoints/*/.*.tmp"):
        pid = path.name.split(".")[-3]
        if pid.isdecimal() and _lives(int(pid)):
            yield path.parts[-5], int(pid)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
