"""What a run with kills came to: who was killed when, what was lost, what the journal checker found."""

import dataclasses
import statistics
from collections.abc import Sequence

from chaos.kills.losses import Loss, victim_of
from chaos.kills.moments import BETWEEN, MOMENTS
from chaos.kills.victims import ALL_KINDS, WORKER, Kill

CHECKPOINT_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KillRun:
    """A run with kills, and what it came to.

    Attributes:
        left: kinds that were to be killed, too, but every app had finished before.
        states: of the apps.
        findings: of the journal checker.
        others: what else should not be: slots that were held twice by the demo's own reckoning, processes that ran on.
        restarts: of the arbiter.
    """

    kills: tuple[Kill, ...]
    left: tuple[str, ...]
    seconds: float
    states: dict[str, str]
    findings: tuple[str, ...]
    others: tuple[str, ...]
    losses: tuple[Loss, ...]
    restarts: int

    @property
    def wrong(self) -> list[str]:
        """What should not be."""
        ends = [f"{app} is {state}, not finished" for app, state in self.states.items() if state != "finished"]
        lost = [
            f"{loss.job} lost {loss.steps} steps, {loss.seconds:.2f} s of work, with {CHECKPOINT_SECONDS:g} s between "
            f"checkpoints"
            for loss in self.losses
            if loss.seconds > CHECKPOINT_SECONDS
        ]
        return [*ends, *self.findings, *self.others, *lost]

    def loss_of(self, kill: Kill) -> Loss | None:
        """What was lost with a worker that was killed; None: its job lost nothing, or did not go on."""
        if kill.kind != WORKER:
            return None
        job, incarnation = victim_of(kill.victim)
        return next((loss for loss in self.losses if (loss.job, loss.incarnation) == (job, incarnation)), None)


# -- the table


def table(runs: Sequence[KillRun]) -> list[str]:
    """Kills by kind and moment, and what all came to."""
    kills = [(run, kill) for run in runs for kill in run.kills]
    kinds = [kind for kind in ALL_KINDS if any(kill.kind == kind for _, kill in kills)]
    lines = [_row("killed", "kills", *(f"in {moment}" for moment in MOMENTS), BETWEEN, "lost most", "median")]
    for name, wanted in [*((kind, (kind,)) for kind in kinds), ("all", tuple(kinds))]:
        mine = [(run, kill) for run, kill in kills if kill.kind in wanted]
        counts = [sum(kill.moment == moment for _, kill in mine) for moment in (*MOMENTS, BETWEEN)]
        lines.append(_row(name, len(mine), *counts, *_lost(mine)))
    return lines + _sums(runs, [kill for _, kill in kills])


def _lost(kills: Sequence[tuple[KillRun, Kill]]) -> tuple[str, str]:
    """The most and the median work that killed workers had to do again."""
    found = [run.loss_of(kill) for run, kill in kills if kill.kind == WORKER]
    seconds = [0.0 if loss is None else loss.seconds for loss in found]
    if not seconds:
        return "-", "-"
    return f"{max(seconds):.2f} s", f"{statistics.median(seconds):.2f} s"


def _sums(runs: Sequence[KillRun], kills: Sequence[Kill]) -> list[str]:
    states = [state for run in runs for state in run.states.values()]
    seconds = sum(run.seconds for run in runs)
    most = max((loss.seconds for run in runs for loss in run.losses), default=0.0)
    inside = sum(kill.moment != BETWEEN for kill in kills)
    share = 100.0 * inside / len(kills) if kills else 0.0
    return [
        f"{len(kills)} kills in {len(runs)} runs, {inside} of them ({share:.0f} %) inside an auction, a checkpoint or "
        f"a start; {seconds:.0f} s",
        f"apps finished: {states.count('finished')} of {len(states)}; restarts of the arbiter: "
        f"{sum(run.restarts for run in runs)}",
        f"findings of the journal checker: {sum(len(run.findings) for run in runs)}; slots held twice by the demo's "
        f"reckoning, or processes that ran on: {sum(len(run.others) for run in runs)}",
        f"work done again at one resume: at most {most:.2f} s, with {CHECKPOINT_SECONDS:g} s between checkpoints",
    ]


def _row(first: str, *cells: object) -> str:
    return f"{first:<11}" + "".join(f"{cell!s:>15}" for cell in cells)
