"""What a run of a storm came to, as it is kept in a file and as a table."""

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chaos.kills.outcome import CHECKPOINT_SECONDS
from chaos.storms.plan import KINDS, WORKER, Scope, Way
from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.live_runs.outcome import held_twice
from eunomia_testbed.live_runs.redone import Span, redone

OUTCOME: Final = "outcome.json"
STEP_SECONDS: Final = 0.5
"""A checkpoint is due at the end of a step, and takes a moment itself."""
BUSY_STEP_SECONDS: Final = 4.0
"""The same beside busy loops, where one step of a gang may wait for all of them."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Hit:
    """A signal that a process got; a stop has ``until``, and ``ended`` if it was gone before its continuation."""

    action: int
    scope: str
    kind: str
    name: str
    pid: int
    way: str
    at: float
    until: float = 0.0
    ended: bool = False


@dataclasses.dataclass(slots=True, kw_only=True)
class StormRun:
    """A run, and what it came to.

    Attributes:
        states: of the apps.
        wrong: what should not be.
        redone: seconds of work done again at each resume of a job with the helper.
        stalls: gangs, app masters and launchers that were ended since they hung, by kind.
    """

    hits: list[Hit]
    seconds: float
    busy: bool
    states: dict[str, str]
    findings: list[str]
    wrong: list[str]
    redone: list[float]
    stalls: dict[str, int]

    def save(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "StormRun":
        """Read such a file."""
        plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**plain, "hits": [Hit(**hit) for hit in plain["hits"]]})


def judge(
    run: LiveRun, hits: list[Hit], wrong: list[str], *, seconds: float, busy: bool, stalls: Mapping[str, int]
) -> StormRun:
    """Judge a run that has been stopped."""
    findings = [str(finding) for finding in check_folder(run.folder, over=True).findings]
    states = {app: life.state for app, life in run.record.apps.items()}
    again = list(redone(run.folder, _stopped(hits)))
    most = CHECKPOINT_SECONDS + (BUSY_STEP_SECONDS if busy else STEP_SECONDS)
    made = StormRun(
        hits=hits,
        seconds=seconds,
        busy=busy,
        states=states,
        findings=findings,
        wrong=[
            *(f"{app} is {state}, not finished" for app, state in states.items() if state != "finished"),
            *held_twice(run.record),
            *(f"{one.job} did {one.seconds:.2f} s of work again" for one in again if one.seconds > most),
            *_needless(hits, stalls),
            *wrong,
        ],
        redone=[one.seconds for one in again],
        stalls=dict(stalls),
    )
    run.record.close()
    return made


def _stopped(hits: Sequence[Hit]) -> dict[str, list[Span]]:
    """Return by job when one of its workers was stopped."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for hit in hits:
        if hit.kind == WORKER and hit.until:
            app, job, *_ = hit.name.rsplit(".", 3)
            spans[f"{app}/{job}"].append((hit.at, hit.until))
    return spans


def _needless(hits: Sequence[Hit], stalls: Mapping[str, int]) -> Iterator[str]:
    """Yield kinds of which more were ended as hung than were stopped for 90 s."""
    long = Counter(hit.kind for hit in hits if hit.way == Way.LONG_STOP)
    for kind, count in stalls.items():
        if count > long[kind]:
            yield f"{count} of kind {kind} were ended as hung, but {long[kind]} were stopped for 90 s"


# -- the table


def table(runs: Sequence[StormRun]) -> list[str]:
    """Return hits by kind and way, actions by scope, and what all came to."""
    hits = [hit for run in runs for hit in run.hits]
    lines = [_row("hit", *Way, "all")]
    for kind in (*KINDS, "all"):
        mine = [hit for hit in hits if kind in (hit.kind, "all")]
        lines.append(_row(kind, *(sum(hit.way == way for hit in mine) for way in Way), len(mine)))
    actions = {hit.action: hit.scope for hit in hits}
    scopes = Counter(actions.values())
    states = Counter(state for run in runs for state in run.states.values())
    again = [seconds for run in runs for seconds in run.redone]
    long = [hit for hit in hits if hit.way == Way.LONG_STOP]
    stalls: Counter[str] = sum((Counter(run.stalls) for run in runs), Counter())
    busy = sum(run.busy for run in runs)
    return [
        *lines,
        "actions: " + ", ".join(f"{scopes[scope]} {scope}" for scope in Scope) + f"; {len(actions)} in all",
        f"{len(runs)} runs, {busy} of them beside eight busy loops, {sum(run.seconds for run in runs):.0f} s",
        f"apps finished: {states['finished']} of {states.total()}",
        f"findings of the journal checker: {sum(len(run.findings) for run in runs)}; of /proc, orphans and others: "
        f"{sum(len(run.wrong) for run in runs)}",
        f"stopped for 90 s: {len(long)}, of which {sum(hit.ended for hit in long)} were ended before; ended as hung: "
        + (", ".join(f"{count} {kind}" for kind, count in stalls.items() if count) or "none"),
        f"work done again: {len(again)} times, at most {max(again, default=0.0):.2f} s, with {CHECKPOINT_SECONDS:g} s "
        "between checkpoints",
    ]


def _row(first: str, *cells: object) -> str:
    return f"{first:<12}" + "".join(f"{cell!s:>20}" for cell in cells)
