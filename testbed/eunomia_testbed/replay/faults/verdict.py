"""The results of the faults in a replay's real runs: targets hit, work repeated, and findings in the journal."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eunomia.model.shapes import value
from eunomia.units import parse_duration
from eunomia_appmaster.csv_cells import csv_text
from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.live_runs.redone import Span, redone
from eunomia_testbed.replay.app_files import CHECKPOINT_EVERY
from eunomia_testbed.replay.cells import RealRun, is_done, state_folder
from eunomia_testbed.replay.faults.carrying import Hit
from eunomia_testbed.replay.faults.plan import FaultKind, FaultPlan
from eunomia_testbed.results.writing import write_text

NAME: Final = "faults.json"
"""File in a run's state folder."""
TABLE: Final = "faults.csv"
"""File in a replay's folder."""
HEADINGS: Final = (
    "policy", "repeat", "number", "kind", "planned_seconds", "at_seconds", "target", "job", "pid", "stopped_seconds",
)  # fmt: skip
SAVE_SECONDS: Final = 5.0
"""Seconds beyond a checkpoint interval that a fault may cost, since saving waits for the end of a step."""


@value
class FaultVerdict:
    """The results of the faults in one real run.

    Attributes:
        hits: the faults that were carried out.
        redone: seconds of work that was repeated, one entry for each resume that repeated steps.
        findings: findings of ``eunomia journal check`` in the run's folder.
    """

    hits: tuple[Hit, ...]
    redone: tuple[float, ...]
    findings: tuple[str, ...]

    @property
    def wrong(self) -> list[str]:
        """Return the violations: findings, and resumes that repeated more work than a checkpoint interval."""
        most = float(parse_duration(CHECKPOINT_EVERY, name="checkpoint_every", place="")) + SAVE_SECONDS
        late = [f"{seconds:.1f} s of work were done again, more than {most:g} s" for seconds in self.redone]
        return [*self.findings, *(each for each, seconds in zip(late, self.redone, strict=True) if seconds > most)]

    def write(self, folder: Path) -> None:
        """Write the verdict to a run's state folder."""
        plain = {"hits": [hit.to_plain() for hit in self.hits], "redone": self.redone, "findings": self.findings}
        write_text(json.dumps(plain, indent=1) + "\n", folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> "FaultVerdict":
        """Read the verdict from a run's state folder."""
        plain: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return cls(
            hits=tuple(Hit.from_plain(hit) for hit in plain["hits"]),
            redone=tuple(plain["redone"]),
            findings=tuple(plain["findings"]),
        )


def judged(folder: Path, hits: Sequence[Hit]) -> FaultVerdict:
    """Return the fault results of a run whose processes have ended, and write them to its state folder.

    Args:
        folder: the run's state folder.
        hits: the faults that were carried out.
    """
    stopped = defaultdict[str, list[Span]](list)
    for hit in hits:
        if hit.kind is FaultKind.STOP:
            stopped[hit.job].append((hit.at, hit.until))
    made = FaultVerdict(
        hits=tuple(hits),
        redone=tuple(each.seconds for each in redone(folder, stopped)),
        findings=tuple(str(finding) for finding in check_folder(folder, over=True).findings),
    )
    made.write(folder)
    return made


def write_faults(out: Path, runs: Sequence[RealRun], plan: FaultPlan) -> tuple[list[str], bool]:
    """Write the table of faults of all done runs; return summary lines, and whether there is no violation.

    Args:
        out: the replay's folder.
        runs: the replay's real runs.
        plan: the planned faults of each run.
    """
    done = [run for run in runs if is_done(out, run) and (state_folder(out, run) / NAME).is_file()]
    verdicts = {run: FaultVerdict.read(state_folder(out, run)) for run in done}
    write_text(csv_text([HEADINGS, *(row for run in done for row in _rows(run, verdicts[run], plan))]), out / TABLE)
    lines = [_line(run, verdict, plan) for run, verdict in verdicts.items()]
    wrong = [f"WRONG    {run.name}: {each}" for run, verdict in verdicts.items() for each in verdict.wrong]
    return [*lines, *wrong], not wrong


def _rows(run: RealRun, verdict: FaultVerdict, plan: FaultPlan) -> Iterator[tuple[object, ...]]:
    hits = {hit.number: hit for hit in verdict.hits}
    for fault in plan.faults:
        hit = hits.get(fault.number)
        planned = (run.policy, run.repeat, fault.number, fault.kind.value, round(fault.at_seconds, 3))
        if hit is None:
            yield (*planned, None, None, None, None, None)
        else:
            lasted = round(hit.until - hit.at, 3) if hit.until else None
            yield (*planned, round(hit.at_seconds, 3), hit.target, hit.job, hit.pid, lasted)


def _line(run: RealRun, verdict: FaultVerdict, plan: FaultPlan) -> str:
    again = math.fsum(verdict.redone)
    return (
        f"{run.name}: {len(verdict.hits)} of {len(plan.faults)} faults carried out; "
        f"{again:.1f} s of work done again at {len(verdict.redone)} resumes, at most "
        f"{max(verdict.redone, default=0.0):.1f} s; findings in the journal: {len(verdict.findings)}"
    )
