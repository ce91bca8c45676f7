"""Stages asked, and their verdicts gathered: the first stage that turns a job down is its reason."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from eunomia.allocations import Allocation
from eunomia.decisions import Fault, TransitionKind, Waiting
from eunomia.errors import EunomiaError
from eunomia.menus import Menus
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.plan import Plan
from eunomia.state import STAGES, State
from eunomia.units import NONE, Rows, Stage, Unit
from eunomia.valuations import Valuations
from eunomia.verdicts import Reason, Verdicts

A = TypeVar("A")
Answer = Menus | Valuations | Allocation | Placement


class StageFaultError(EunomiaError):
    """A stage raised, or answered with another type than its hook asks for."""

    def __init__(self, plugin: str, stage: Stage, what: str) -> None:
        super().__init__(f'plugin "{plugin}" must answer {stage.value}', value=what)
        self.plugin = plugin
        self.stage = stage
        self.what = what


def ask(plugin: str, stage: Stage, kind: type[A], call: Callable[[], A]) -> A:
    """Ask a stage.

    Raises:
        StageFaultError: it raised, or answered with something that is no ``kind``.
    """
    try:
        answer = call()
    except StageFaultError:
        raise
    except Exception as error:
        raise StageFaultError(plugin, stage, f"{type(error).__name__}: {error}") from error
    if not isinstance(answer, kind):
        raise StageFaultError(plugin, stage, f"{kind.__name__} expected, {type(answer).__name__} returned")
    return answer


@dataclasses.dataclass(slots=True)
class _Verdict:
    reason: Reason
    stage: Stage
    plugin: str


def verdicts_of(
    state: State,
    offer: Offer | None,
    answers: Sequence[tuple[Stage, str, Answer]],
    plan: Plan,
    *,
    opened: bool = False,
    fault: Fault | None = None,
) -> tuple[Waiting, ...]:
    """List the verdicts that change with this round.

    Args:
        state: before the plan is adopted.
        offer: the round's offer; None in a quiet or faulty round.
        answers: of the stages, in calling order.
        plan: those who start wait no longer.
        opened: the offer is out with app masters: whoever waits awaits its end.
        fault: why the round came to nothing.
    """
    given = _gathered(state, answers)
    allocation = next((name for stage, name, _ in answers if stage is Stage.ALLOCATION), "")
    started = _started(state, plan)
    out = []
    for job in state.waiting().tolist():
        if job in started:
            continue
        verdict = given.get(job) or _default(state, offer, job, allocation, opened=opened, fault=fault)
        if verdict is not None and not _same(state, job, verdict):
            out.append(
                Waiting(job=state.job_id(job), reason=verdict.reason, stage=verdict.stage, plugin=verdict.plugin)
            )
    return tuple(out)


def _started(state: State, plan: Plan) -> set[int]:
    jobs = {order.job for order in plan.transitions if order.kind is not TransitionKind.SUSPEND}
    return {state.job_row(job) for job in jobs if job is not None}


def _gathered(state: State, answers: Sequence[tuple[Stage, str, Answer]]) -> dict[int, _Verdict]:
    given: dict[int, _Verdict] = {}
    unit = Unit.JOB
    for stage, plugin, answer in answers:
        if isinstance(answer, Valuations | Allocation):
            unit = answer.claims.unit
        for job, reason in _by_job(state, answer.verdicts, Unit.JOB if isinstance(answer, Menus) else unit):
            given.setdefault(job, _Verdict(reason, stage, plugin))
    return given


def _by_job(state: State, verdicts: Verdicts, unit: Unit) -> Iterator[tuple[int, Reason]]:
    for row, code in zip(verdicts.rows.tolist(), verdicts.reasons.tolist(), strict=True):
        for job in _jobs_of(state, row, unit):
            yield job, Reason(code)


def _jobs_of(state: State, row: int, unit: Unit) -> Sequence[int]:
    if unit is Unit.JOB:
        return (row,)
    owner: Rows = state.jobs.live.app[: state.jobs.used]
    if unit is not Unit.APP:
        owner = np.where(owner == NONE, NONE, state.apps.live.user[owner])
    return [int(job) for job in np.flatnonzero(owner == row)]


def _default(
    state: State, offer: Offer | None, job: int, allocation: str, *, opened: bool, fault: Fault | None
) -> _Verdict | None:
    if fault is not None:
        return _Verdict(Reason.PLUGIN_FAULT, fault.stage or Stage.ALLOCATION, fault.plugin)
    if offer is None:
        return None
    if offer.apps is not None and state.jobs.live.app[job] not in offer.apps:
        return _Verdict(Reason.NOT_OFFERED, Stage.ALLOCATION, allocation)
    if opened:
        return _Verdict(Reason.AWAITING_ROUND, Stage.VALUATION, "")
    return _Verdict(Reason.OUTRANKED, Stage.ALLOCATION, allocation)


def _same(state: State, job: int, verdict: _Verdict) -> bool:
    kept = state.job_accounts.live
    return bool(
        kept.reason[job] == verdict.reason
        and kept.plugin[job] == verdict.plugin
        and kept.stage[job] == STAGES.index(verdict.stage)
    )
