"""Findings of the checker: violated rules, each with its place."""

import dataclasses
from collections.abc import Callable
from enum import Enum
from typing import ClassVar


class Rule(Enum):
    """The checked rules; the value is a rule's short name."""

    HELD_TWICE = "held-twice"
    """A slot has at most one lease at a time, and at most one job."""
    RAN_TWICE = "ran-twice"
    """A slot has at most one worker process at a time, by the workers' own files."""
    RAN_UNHELD = "ran-unheld"
    """A worker runs only while its app holds the slot according to the journal."""
    GANG_IN_PART = "gang-in-part"
    """All workers of a gang run, at a size that its job allows, or none does."""
    APP_LOST = "app-lost"
    """Every app that arrived has ended as finished, failed or cancelled."""
    UNJOURNALED_ORDER = "unjournaled-order"
    """A container starts after the order that it carries out was journaled, and under an epoch of such an order."""
    OLD_EPOCH = "old-epoch"
    """No worker starts on a slot under an epoch that was released there, or after a newer epoch."""
    EPOCH_DOWN = "epoch-down"
    """Every order has a greater epoch than all orders before it."""
    STEPS = "steps"
    """Steps are numbered without gaps, including at the end."""
    TIME_BACK = "time-back"
    """The arbiter's clock and the version of its state never decrease, and a decision has the time of its step."""
    NO_SUCH_SLOT = "no-such-slot"
    """Orders name slots of the cluster, on machines that respond."""
    TOO_MUCH = "too-much"
    """Jobs on a machine hold at most its GPUs, CPUs and memory."""
    RELEASED_TWICE = "released-twice"
    """Only the holder of a slot gives it back, and only once."""
    NO_SUCH_LEASE = "no-such-lease"
    """Orders name existing leases, apps and jobs."""
    CHECKPOINT_DIFFERS = "checkpoint-differs"
    """A saved state equals the replay of the steps before it."""
    NOT_RECOVERABLE = "not-recoverable"
    """An arbiter can start from the journal, as a dry run of the arbiter's own code shows."""
    UNREADABLE = "unreadable"
    """Every row is readable and matches its checksum."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation of a rule.

    Attributes:
        rule: the violated rule.
        what: the violation, as a sentence.
        place: the journal's row (``step 27``, ``checkpoint after step 200``) or a file below the folder.
        at: Unix times of the violation, in seconds.
    """

    rule: Rule
    what: str
    place: str
    app: str | None = None
    slot: int | None = None
    at: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.what} ({self.place})"

    def to_json(self) -> dict[str, object]:
        """Return the finding as plain values."""
        return {
            "rule": self.rule.value,
            "what": self.what,
            "place": self.place,
            "app": self.app,
            "slot": self.slot,
            "at": list(self.at),
        }


AddFinding = Callable[[Finding], None]


@dataclasses.dataclass(slots=True, kw_only=True)
class Report:
    """The result of a check.

    Attributes:
        findings: the first ``MOST`` findings.
        found: number of all findings.
        steps: number of steps that were read, from ``first_step`` to ``last_step`` (0: none).
        orders: number of orders about leases.
        containers: number of workers' containers, according to the workers' files.
        apps: number of apps by outcome; ``live``: those that have not ended.
        running: whether an arbiter holds the journal.
        remarks: what was not checked, and why.
    """

    MOST: ClassVar[int] = 1000

    findings: list[Finding] = dataclasses.field(default_factory=list)
    found: int = 0
    steps: int = 0
    first_step: int = 0
    last_step: int = 0
    orders: int = 0
    checkpoints: int = 0
    containers: int = 0
    apps: dict[str, int] = dataclasses.field(default_factory=dict)
    running: bool = False
    remarks: list[str] = dataclasses.field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it if fewer than ``MOST`` are kept."""
        self.found += 1
        if len(self.findings) < self.MOST:
            self.findings.append(finding)

    def to_json(self) -> dict[str, object]:
        """Return the report as plain values."""
        plain = dataclasses.asdict(self)
        plain["findings"] = [finding.to_json() for finding in self.findings]
        return plain
