"""Stages asked, and their verdicts gathered: the first stage that turns a job down is its reason."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from eunomia.allocations import Allocation
from eunomia.decisions import Fault, TransitionKind, Waiting
from eunomia.errors import EunomiaError
from eunomia.menus import Menus
from eunomia.offering import anything
from eunomia.offers import Offer
from eunomia.placements import Placement
from eunomia.plan import Plan
from eunomia.state import STAGES, State
from eunomia.units import NONE, Rows, Stage, Unit
from eunomia.valuations import Valuations
from eunomia.verdicts import NO_VERDICTS, Reason, Verdicts

A = TypeVar("A")
Answer = Menus | Valuations | Allocation | Placement


class StageFaultError(EunomiaError):
    """A stage raised, or answered with another type than its hook asks for."""

    def __init__(self, plugin: str, stage: Stage, what: str) -> None:
        super().__init__(f'plugin "{plugin}" must answer {stage.value}', value=what)
        self.plugin = plugin
        self.stage = stage
        self.what = what


def ask(plugin: str, stage: Stage, kind: type[A], call: Callable[..., A], *given: Any) -> A:
    """Ask a stage.

    Raises:
        StageFaultError: it raised, or answered with something that is no ``kind``.
    """
    try:
        answer = call(*given)
    except StageFaultError:
        raise
    except (Exception, SystemExit) as error:
        raise fault_of(plugin, stage, error) from error
    if not isinstance(answer, kind):
        raise mistyped(plugin, stage, kind, answer)
    return answer


def fault_of(plugin: str, stage: Stage, error: BaseException) -> StageFaultError:
    """What a plugin raised, as a fault of its stage."""
    return StageFaultError(plugin, stage, f"{type(error).__name__}: {error}")


def mistyped(plugin: str, stage: Stage, kind: type, answer: object) -> StageFaultError:
    """An answer that is no ``kind``, as a fault of its stage."""
    return StageFaultError(plugin, stage, f"{kind.__name__} expected, {type(answer).__name__} returned")


@dataclasses.dataclass(slots=True)
class _Columns:
    """Verdicts by job row: reason, stage and plugin as numbers; reason 0: none."""

    reason: Rows
    stage: Rows
    plugin: Rows
    names: dict[str, int]
    """Numbers of plugins: those that the state has given out, and fresh ones for this round only."""

    @classmethod
    def empty(cls, state: State) -> "_Columns":
        reason, stage, plugin = np.zeros((3, state.jobs.used), dtype=np.int32)
        return cls(reason, stage, plugin, names=dict(state.plugins))

    def give(self, rows: Rows, reasons: Rows | int, stage: Stage, plugin: str) -> None:
        """The first verdict on a job is the one that stands."""
        fresh = self.reason[rows] == 0
        rows = rows[fresh]
        self.reason[rows] = reasons[fresh] if isinstance(reasons, np.ndarray) else reasons
        self.stage[rows] = STAGES.index(stage)
        self.plugin[rows] = self.names.setdefault(plugin, len(self.names))


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
    if offer is None and fault is None and not answers and not plan.transitions:
        return ()
    if offer is not None and fault is None and not opened and _all_start(state, offer, answers, plan):
        return ()
    if offer is not None and fault is None and not (plan.transitions or anything(state, offer)):
        # Nothing was to be had, so nobody was turned down: what was said last stands, but for jobs that fit nowhere.
        offer, answers = None, [answer for answer in answers if answer[0] is Stage.ELASTICITY]
    plain = fault is None and not opened and (offer is None or offer.apps is None)
    if plain and all(_few_of_jobs(answer) for _, _, answer in answers):
        return _few_verdicts(state, offer, answers, plan)
    return _all_verdicts(state, offer, answers, plan, opened=opened, fault=fault)


def _all_start(state: State, offer: Offer, answers: Sequence[tuple[Stage, str, Answer]], plan: Plan) -> bool:
    """Say whether there is nobody to be told anything: no stage turned a job down, and who is new starts."""
    standing, told_by = state.standing, ""
    if offer.apps is not None or not plan.transitions or standing.standard is None:
        return False
    for stage, name, answer in answers:
        if answer.verdicts is not NO_VERDICTS:
            return False
        if stage is _ALLOCATING:
            told_by = name
            if answer.claims.unit is not _JOB:  # type: ignore[union-attr]
                return False
    rows, started = state.job_rows, set()
    for order in plan.transitions:
        if order.kind is not _START or order.job is None:
            return False
        started.add(rows[order.job])
    plugins = state.plugins
    standard = _OUTRANKED, _NUMBER[_ALLOCATING], plugins.get(told_by, len(plugins))
    return standard == standing.standard and standing.unjudged <= started


_NUMBER = {stage: number for number, stage in enumerate(STAGES)}
_ALLOCATING, _OUTRANKED = Stage.ALLOCATION, int(Reason.OUTRANKED)

FEW = 64
"""Verdicts that are gone through one by one; more of them are gone through as columns."""


def _few_of_jobs(answer: Answer) -> bool:
    if answer.verdicts is not NO_VERDICTS and answer.verdicts.rows.size > FEW:
        return False
    return not isinstance(answer, _WITH_CLAIMS) or answer.claims.unit is _JOB


_WITH_CLAIMS = (Valuations, Allocation)
_JOB = Unit.JOB


def _few_verdicts(
    state: State, offer: Offer | None, answers: Sequence[tuple[Stage, str, Answer]], plan: Plan
) -> tuple[Waiting, ...]:
    """As ``_all_verdicts``, where one word holds for all that wait but a few: only those are looked at who are new."""
    standing = state.standing
    given: dict[int, tuple[int, int, int]] = {}
    names = dict(state.plugins)
    for stage, name, answer in answers:
        verdicts = answer.verdicts
        if verdicts is not NO_VERDICTS and verdicts.rows.size:
            code = _NUMBER[stage], names.setdefault(name, len(names))
            for row, reason in zip(verdicts.rows.tolist(), verdicts.reasons.tolist(), strict=True):
                given.setdefault(row, (reason, *code))
    stopped = _stopped(state, plan)
    look_at = stopped.union(given)
    standard = None
    if offer is not None:
        name = next((name for stage, name, _ in answers if stage is Stage.ALLOCATION), "")
        standard = (_OUTRANKED, _NUMBER[Stage.ALLOCATION], names.setdefault(name, len(names)))
        look_at |= standing.judge_by(standard)
    if not look_at:
        return ()
    started = _started(state, plan)
    kept, listed, told = state.job_accounts.cells, list(names), []
    for row in sorted(look_at):
        code_of = given.get(row, standard)
        waits = (row in standing.waiting or row in stopped) and row not in started
        if waits and code_of is not None:
            if code_of == (kept.reason[row], kept.stage[row], kept.plugin[row]):
                if code_of == standard:
                    standing.unjudged.discard(row)
                continue
            reason, at, plugin = code_of
            told.append(Waiting(job=state.job_id(row), reason=Reason(reason), stage=STAGES[at], plugin=listed[plugin]))
    return tuple(told)


def _all_verdicts(
    state: State,
    offer: Offer | None,
    answers: Sequence[tuple[Stage, str, Answer]],
    plan: Plan,
    *,
    opened: bool,
    fault: Fault | None,
) -> tuple[Waiting, ...]:
    given = _gathered(state, answers)
    waits = state.standing.waiting.union(_stopped(state, plan)) - _started(state, plan)
    waiting = np.array(sorted(waits), dtype=np.int32)
    _defaults(state, given, waiting, offer, answers, opened=opened, fault=fault)
    kept = state.job_accounts.live
    same = kept.reason[waiting] == given.reason[waiting]
    same &= (kept.stage[waiting] == given.stage[waiting]) & (kept.plugin[waiting] == given.plugin[waiting])
    names = list(given.names)
    return tuple(
        Waiting(
            job=state.job_id(job),
            reason=Reason(int(given.reason[job])),
            stage=STAGES[int(given.stage[job])],
            plugin=names[int(given.plugin[job])],
        )
        for job in waiting[~same & (given.reason[waiting] != 0)].tolist()
    )


_LEAVERS = (TransitionKind.SUSPEND, TransitionKind.SHRINK)
_SUSPEND, _START = TransitionKind.SUSPEND, TransitionKind.START


def _started(state: State, plan: Plan) -> set[int]:
    """Jobs that start, and all of an app that wins GPUs: which of them run is its tuner's to say."""
    orders = [order for order in plan.transitions if order.kind is not _SUSPEND and order.gpus.size]
    jobs = {state.job_row(order.job) for order in orders if order.job is not None}
    winners = [state.app_row(order.app) for order in orders if order.job is None and order.kind is _START]
    return jobs.union(*[state.standing.jobs_of.get(app, ()) for app in winners])


def _stopped(state: State, plan: Plan) -> set[int]:
    """Jobs that lose what they run on: why is said at once, and stands until they are turned down again."""
    orders = [order for order in plan.transitions if order.kind in _LEAVERS]
    jobs = {state.job_row(order.job) for order in orders if order.job is not None and order.gpus.size == 0}
    theirs = [state.holdings.live.job[order.leaving].tolist() for order in orders if order.job is None]
    return jobs.union(*theirs) - {NONE}


def _gathered(state: State, answers: Sequence[tuple[Stage, str, Answer]]) -> _Columns:
    given = _Columns.empty(state)
    unit = Unit.JOB
    for stage, name, answer in answers:
        if isinstance(answer, Valuations | Allocation):
            unit = answer.claims.unit
        verdicts = answer.verdicts
        if verdicts.rows.size:
            rows, reasons = _by_job(state, verdicts, Unit.JOB if isinstance(answer, Menus) else unit)
            given.give(rows, reasons, stage, name)
    return given


def _by_job(state: State, verdicts: Verdicts, unit: Unit) -> tuple[Rows, Rows]:
    """Verdicts on apps or users are verdicts on all their jobs."""
    if unit is Unit.JOB:
        return verdicts.rows, verdicts.reasons
    owner: Rows = state.jobs.live.app[: state.jobs.used]
    if unit is not Unit.APP:
        owner = np.where(owner == NONE, NONE, state.apps.live.user[owner]).astype(np.int32)
    jobs = [np.flatnonzero(owner == row) for row in verdicts.rows.tolist()]
    reasons = np.repeat(verdicts.reasons, [rows.size for rows in jobs])
    return np.concatenate(jobs).astype(np.int32), reasons


def _defaults(
    state: State,
    given: _Columns,
    waiting: Rows,
    offer: Offer | None,
    answers: Sequence[tuple[Stage, str, Answer]],
    *,
    opened: bool,
    fault: Fault | None,
) -> None:
    """Say why those wait of whom no stage said anything."""
    if fault is not None:
        given.give(waiting, int(Reason.PLUGIN_FAULT), fault.stage or Stage.ALLOCATION, fault.plugin)
    if offer is None:
        return
    name = next((name for stage, name, _ in answers if stage is Stage.ALLOCATION), "")
    if offer.apps is not None:
        outside = waiting[~np.isin(state.jobs.live.app[waiting], offer.apps)]
        given.give(outside, int(Reason.NOT_OFFERED), Stage.ALLOCATION, name)
    if opened:
        given.give(waiting, int(Reason.AWAITING_ROUND), Stage.VALUATION, "")
    given.give(waiting, int(Reason.OUTRANKED), Stage.ALLOCATION, name)
