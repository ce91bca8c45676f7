"""Checks the workers' files against the journal: no worker runs on a slot before its order or after its lease."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eunomia_appmaster.journal_check.containers import FOREVER, Container, look_again
from eunomia_appmaster.journal_check.findings import AddFinding, Finding, Rule


@dataclass(slots=True)
class Workers:
    """Containers by slot and epoch, each checked against the journal.

    Attributes:
        folder: the checked folder, which contains their files.
        running: whether workers may still run, so that a container without a recorded end is no finding.
        timed: whether times of the files and of the journal can be compared.
    """

    note: AddFinding
    folder: Path
    running: bool
    timed: bool = True
    _mine: dict[tuple[int, int], list[Container]] = field(default_factory=lambda: defaultdict(list))

    def add(self, containers: Iterable[Container]) -> None:
        """Add containers that were read from the workers' files."""
        for container in containers:
            if container.slot is not None:
                self._mine[container.slot, container.epoch].append(container)

    def ordered(self, slot: int, epoch: int, app: str, at: float, place: str) -> None:
        """Check the containers that an order, journaled at ``at`` (Unix seconds), starts on a slot under an epoch."""
        for container in self._mine.get((slot, epoch), ()):
            container.ordered = True
            if container.app != app:
                what = f"{container.id} ran under epoch {epoch}, which is an order of {app}"
                self._find(Rule.RAN_UNHELD, what, container, place)
            if self.timed and container.start is not None and container.start < at:
                what = f"{container.id} started {at - container.start:.3f} s before its order was journaled"
                self._find(Rule.UNJOURNALED_ORDER, what, container, place, at)

    def left(self, slot: int, epochs: Iterable[int], since: float, until: float | None, place: str) -> None:
        """Check the containers of a lease that held a slot from ``since`` to ``until`` (None: still, or unknown)."""
        if not self.timed:
            return
        for container in self._of(slot, epochs):
            if container.start is None:
                continue
            if container.start < since:
                what = f"{container.id} started {since - container.start:.3f} s before its lease had the slot"
                self._find(Rule.RAN_UNHELD, what, container, place, since)
            if until is None:
                continue
            look_again(container, self.folder)
            if container.start > until:
                what = f"{container.id} started {container.start - until:.3f} s after its lease gave the slot back"
                self._find(Rule.OLD_EPOCH, what, container, place, until)
            elif container.end > until and not (container.end == FOREVER and self.running):
                what = f"{container.id} ran {container.span}, but its lease gave the slot back at {until:.3f}"
                self._find(Rule.RAN_UNHELD, what, container, place, until)

    def finish(self, first_epoch: int, last_epoch: int) -> None:
        """Check the remaining containers; orders up to ``first_epoch`` may be in dropped steps."""
        for containers in self._mine.values():
            for container in containers:
                if not container.ordered and container.epoch > first_epoch:
                    known = "an epoch of no order about it"
                    if container.epoch > last_epoch:
                        known = f"which the journal does not know (its last is {last_epoch})"
                    what = f"{container.id} was started under epoch {container.epoch}, {known}"
                    self._find(Rule.UNJOURNALED_ORDER, what, container, container.place)

    def _of(self, slot: int, epochs: Iterable[int]) -> Iterator[Container]:
        for epoch in epochs:
            yield from self._mine.get((slot, epoch), ())

    def _find(self, rule: Rule, what: str, container: Container, place: str, *times: float) -> None:
        at = (container.start, *times) if container.start is not None else times
        where = place if place == container.place else f"{place}; {container.place}"
        self.note(Finding(rule=rule, what=what, place=where, app=container.app, slot=container.slot, at=at))
