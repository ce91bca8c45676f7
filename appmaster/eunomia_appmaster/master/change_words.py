"""Texts for a job's events about a live change of its gang: order and reason, newcomers, how long it stood still."""

from collections.abc import Collection

from eunomia_appmaster.master.changes import Decision, Membership, What
from eunomia_appmaster.master.endings import why_failed
from eunomia_appmaster.master.round_words import decided
from eunomia_appmaster.master.slots import HeldLease
from eunomia_appmaster.runtimes.runtime import ContainerStatus, Entered


def change_words(before: Membership, decision: Decision, why: str) -> str:
    """Return the event text for a decision about a gang; empty: the decision makes no event.

    Args:
        before: the gang's generations before the decision.
        decision: the decision that was carried out.
        why: the reason for the new size, as ``reason`` returns it.
    """
    after = decision.membership
    size = len(before.ordered.members)
    if decision.what is What.PLAN and after.planned is not None:
        return _order(size, len(after.planned.members), why)
    if decision.what is not What.ORDER:
        return ""
    newcomers = len(set(after.ordered.members) - set(before.ordered.members))
    if newcomers:
        return f"{newcomers} newcomer{'s' if newcomers > 1 else ''} ready"
    return _order(size, len(after.ordered.members), why)


def reason(*, lost: Collection[str], lease: HeldLease | None, own: int) -> str:
    """Return the reason for a gang's new size, as text.

    Args:
        lost: the gang's workers that died or were stopped.
        lease: the job's own lease; None: it has none, and the app divides its slots among its jobs.
        own: number of the lease's usable slots.
    """
    if lost:
        return "a worker is lost" if len(lost) == 1 else f"{len(lost)} workers are lost"
    if lease is not None and lease.probe_iterations is not None:
        return "its rate is measured"
    if lease is not None and own:
        after = "its rate has been measured, and " if lease.was_measured else ""
        return f"{after}its lease has {own} slot{'' if own == 1 else 's'}{decided(lease.causes)}"
    return "its app divides its slots in another way"


def pause_words(entered: Entered, step_seconds: float | None) -> str:
    """Return for how long a job stood still in a live change: ``stood still 62 ms, 0.3 steps``.

    Args:
        entered: the report of the generation that the job has entered.
        step_seconds: seconds of a step before the change; None: not known.
    """
    pause = entered.pause_seconds
    steps = f", {pause / step_seconds:.1f} steps" if step_seconds else ""
    return f"stood still {'at least ' if entered.at_least else ''}{1e3 * pause:.0f} ms{steps}"


def given_up_words(gpu: int, status: ContainerStatus | None) -> str:
    """Return why a newcomer on a GPU does not join its gang.

    Args:
        gpu: its GPU.
        status: of its container; None: no node has reported one.
    """
    if status is not None and status.live is not None and status.live.unfit:
        why = status.live.unfit
    elif status is not None and status.completed:
        why = f"it {why_failed(status, alone=True)}"
    else:
        why = "it was not ready in time"
    return f"the newcomer on slot {gpu} does not join: {why}"


def _order(size: int, to: int, why: str) -> str:
    """Return the text of an order to change a gang from ``size`` to ``to`` workers; at equal sizes, it moves."""
    verb = "grow" if to > size else "shrink" if to < size else "move"
    return f"{verb} {size} -> {to} ordered: {why}"
