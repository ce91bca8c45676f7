"""The outcome of a gang, derived from its containers' exits, their orders, and their progress."""

from collections.abc import Sequence
from enum import Enum

from eunomia.model.shapes import value
from eunomia_appmaster.node.machine_faults import FROM_OUTSIDE
from eunomia_appmaster.runtimes.runtime import SUSPENDED, ContainerStatus, Exit, StallKind


class GangOutcome(Enum):
    """The outcome of a gang, that is of one incarnation of a job."""

    FINISHED = "finished"
    AT_RUNG = "at_rung"
    """The job paused at the step of its ``stop_at``."""
    SUSPENDED = "suspended"
    """The job suspended on an order."""
    ODD = "odd"
    """The job exited with code 75 without an order."""
    INTERRUPTED = "interrupted"
    """A signal from outside ended the job, without an order and not for lack of memory."""
    LOST = "lost"
    """The job's end is the machine's fault: its shepherd was lost, or its start failed."""
    HUNG = "hung"
    """The job was ended because its script hung."""
    STOPPED = "stopped"
    """The job was ended because it showed no progress, for a stopped process or storage that does not respond."""
    FAILED = "failed"
    MISUSED = "misused"
    """The script uses the training helper wrongly, which no restart cures."""


@value
class Ending:
    """The outcome of a gang, and why it failed or suspended."""

    outcome: GangOutcome
    why: str = ""


LATE_SECONDS = 5.0
"""An end that is reported more seconds late counts from its own time, since the app master or its node was away."""
LEFT = (Exit(code=SUSPENDED), Exit(code=0))


def has_failed(status: ContainerStatus) -> bool:
    """Return whether a completed worker failed without an order."""
    return status.completed and status.exit not in LEFT and not status.stop_reason and not status.killed


def misuse_of(statuses: Sequence[ContainerStatus]) -> str:
    """Return the error in the use of the training helper that has ended a worker; empty: there is none.

    The script fails in the same way after each restart.
    """
    return next((status.misuse for status in statuses if status.misuse and has_failed(status)), "")


def judge(statuses: Sequence[ContainerStatus], *, order: str, stop_at: int | None, step: int) -> Ending:
    """Determine the outcome of a gang whose containers are all completed.

    A worker that was ordered to suspend has not failed, whatever its exit. Exit 0 means finished, except for a script
    without the helper that was ordered to suspend: any exit within its grace period then counts as suspended, since it
    may exit with 0 on SIGTERM.

    Args:
        statuses: statuses of the gang's containers by rank, all COMPLETED.
        order: why the app master ordered it to suspend; empty: it did not. The launcher's own order is in the statuses.
        stop_at: the iteration of the job's rung; None: it has none.
        step: last known number of iterations done.
    """
    if misuse := misuse_of(statuses):
        return Ending(outcome=GangOutcome.MISUSED, why=misuse)
    helped = any(status.hello for status in statuses)
    stalled = [status for status in statuses if status.stall is not None]
    if stalled and not (helped and all(status.finished for status in statuses)):
        return _stalled(stalled, order)
    ordered = bool(order) or any(status.stop_reason for status in statuses)
    failed = [status for status in statuses if has_failed(status)]
    if failed:
        first = min(failed, key=lambda status: status.ended_at or float("inf"))
        return Ending(outcome=_kind_of(first), why=why_failed(first, alone=len(statuses) == 1))
    if all(status.finished for status in statuses) and (helped or not ordered):
        return Ending(outcome=GangOutcome.FINISHED)
    if stop_at is not None and step >= stop_at and not any(status.killed for status in statuses):
        return Ending(outcome=GangOutcome.AT_RUNG)
    if ordered or any(status.killed or status.never_began for status in statuses):
        why = order or next((status.stop_reason for status in statuses if status.stop_reason), "")
        return Ending(outcome=GangOutcome.SUSPENDED, why=why)
    left = any(status.suspended_step is not None for status in statuses)  # on a signal from outside
    outcome = GangOutcome.INTERRUPTED if left else GangOutcome.ODD
    return Ending(outcome=outcome, why="it exited with 75 without an order to leave")


def time_of_end(statuses: Sequence[ContainerStatus], now: float) -> float:
    """Return when the last worker of a gang ended, by the arbiter's clock, if that is reported late; else ``now``."""
    last = max((status.ended_at for status in statuses if status.ended_at is not None), default=now)
    return last if now - last > LATE_SECONDS else now


def _stalled(stalled: Sequence[ContainerStatus], order: str) -> Ending:
    """Return the outcome of a gang that was ended as stalled; workers that waited for a stopped one did not hang."""
    alone = len(stalled) == 1
    why = order or next((status.stop_reason for status in stalled if status.stop_reason), "stalled")
    for kind, words in _NOT_THE_SCRIPT.items():
        found = [status for status in stalled if status.stall is kind]
        if found:
            which = "its process" if alone else f"worker {found[0].rank}"
            return Ending(outcome=GangOutcome.STOPPED, why=f"{why}; {which} {words}")
    return Ending(outcome=GangOutcome.HUNG, why=why)


_NOT_THE_SCRIPT = {StallKind.STOPPED: "was stopped", StallKind.STORAGE: "waited for storage or a device"}


def _kind_of(first: ContainerStatus) -> GangOutcome:
    """Return the outcome of a gang by the worker that failed first; its failure may have caused the others'."""
    if first.exit in (None, Exit()):
        return GangOutcome.LOST
    outside = first.exit is not None and first.exit.signal in FROM_OUTSIDE and not first.out_of_memory
    return GangOutcome.INTERRUPTED if outside else GangOutcome.FAILED


def why_failed(status: ContainerStatus, *, alone: bool) -> str:
    """Return a text on how a worker failed, with its rank unless it is its gang's only worker (``alone``)."""
    worker = "" if alone else f"worker {status.rank} "
    if status.exit is not None and status.exit.code is not None:
        how = f"{worker}exited with code {status.exit.code}"
    elif status.exit is not None and status.exit.signal is not None:
        how = f"{worker}was ended by signal {status.exit.signal}"
    else:
        how = f"{worker}was lost, and its exit is unknown"
    return f"{how} ({status.diagnostics})" if status.diagnostics else how


def last_line(text: str) -> str:
    """Return the last non-empty line of a text, shortened for a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
