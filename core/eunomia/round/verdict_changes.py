"""The verdicts that a round changes: one default for all waiting jobs, and the exceptions that stages gave.

A job's verdict comes from the first stage that turns it down. A job that no stage turned down gets the round's default,
such as ``outranked``. The state index keeps the waiting jobs whose last verdict may differ from the default
(``stale_verdicts``), so that a round looks only at these and at the jobs that stages name.
"""

from collections.abc import Sequence

import numpy as np

from eunomia.contract.decisions import Fault, Transition, Waiting
from eunomia.contract.offers import Offer
from eunomia.contract.verdicts import NO_VERDICTS, Reason, Verdicts
from eunomia.round.answers import Answer
from eunomia.state.offering import anything
from eunomia.state.state import STAGES, State
from eunomia.units import NONE, Rows, Stage, Unit

Code = tuple[int, int, str]
"""A verdict: numbers of its reason and stage, and its plugin."""

_STAGE_NUMBER = {stage: number for number, stage in enumerate(STAGES)}
_ELASTICITY, _ALLOCATION, _PLACEMENT = Stage.ELASTICITY, Stage.ALLOCATION, Stage.PLACEMENT
_OUTRANKED = int(Reason.OUTRANKED), _STAGE_NUMBER[_ALLOCATION]
_UNTIL_CLOSED = int(Reason.AWAITING_ROUND), _STAGE_NUMBER[Stage.VALUATION]


def verdicts_of(
    state: State,
    offer: Offer | None,
    answers: Sequence[tuple[Stage, str, Answer]],
    transitions: Sequence[Transition],
    *,
    opened: bool = False,
    fault: Fault | None = None,
) -> tuple[Waiting, ...]:
    """List the verdicts that change with this round.

    Args:
        state: the state before the plan is adopted.
        offer: the round's offer; None in a quiet or faulty round.
        answers: answers of the stages, in calling order.
        transitions: transitions of the plan; a job that starts waits no longer.
        opened: whether the offer is open to app masters, so that every waiting job awaits its end.
        fault: the fault that made the round fail.
    """
    if offer is not None and fault is None and not opened and not (transitions or anything(state, offer)):
        # No GPU was on offer, so earlier verdicts are kept; only jobs that fit nowhere get a new one.
        offer, answers = None, [answer for answer in answers if answer[0] is Stage.ELASTICITY]
    given, unit, allocator = _Given(state), Unit.JOB, ""
    for stage, name, answer in answers:
        if stage is _ALLOCATION:
            allocator = name
        if stage is not _ELASTICITY and stage is not _PLACEMENT:
            unit = answer.claims.unit  # type: ignore[union-attr]  # a valuation or an allocation
        if answer.verdicts is not NO_VERDICTS and answer.verdicts.rows.size:
            rows, reasons = _by_job(state, answer.verdicts, Unit.JOB if stage is _ELASTICITY else unit)
            given.add(rows, reasons, stage, name)
    stopped, started = _moved(state, transitions)
    if offer is not None and offer.apps is not None and fault is None:
        outside = _outside(state, stopped | state.standing.waiting, offer.apps)
        given.add(*outside, _ALLOCATION, allocator)
    default = _default(offer, allocator, opened=opened, fault=fault)
    return _changed(state, given, default, stopped, started)


class _Given:
    """Verdicts by job row; the first one on a job counts. A verdict equal to the job's last one is left out."""

    def __init__(self, state: State) -> None:
        self._kept, self._plugins = state.jobs.live, state.plugins
        self.named = set[int]()
        """Rows of the jobs that stages turned down."""
        self.changed = dict[int, Code]()

    def add(self, rows: Rows, reasons: Rows, stage: Stage, plugin: str) -> None:
        """Add the verdicts of one stage."""
        number, kept = _STAGE_NUMBER[stage], self._kept
        differs = (kept.reason[rows] != reasons) | (kept.stage[rows] != number)
        differs |= kept.plugin[rows] != self._plugins.get(plugin, NONE)
        for row, reason in zip(rows[differs].tolist(), reasons[differs].tolist(), strict=True):
            if row not in self.named:
                self.changed.setdefault(row, (reason, number, plugin))
        self.named.update(rows.tolist())


def _default(offer: Offer | None, allocator: str, *, opened: bool, fault: Fault | None) -> Code | None:
    """The verdict on jobs that no stage turned down; None: earlier verdicts are kept."""
    if fault is not None:
        return int(Reason.PLUGIN_FAULT), _STAGE_NUMBER[fault.stage or _ALLOCATION], fault.plugin
    if offer is None:
        return None
    return (*_UNTIL_CLOSED, "") if opened else (*_OUTRANKED, allocator)


def _outside(state: State, waiting: set[int], shown: Rows) -> tuple[Rows, Rows]:
    """Return the waiting jobs of apps that did not see the offer, and the verdict on each."""
    rows = np.array(sorted(waiting), dtype=np.int32)
    outside = rows[~np.isin(state.jobs.live.app[rows], shown)]
    return outside, _by_size(state, outside, np.full(outside.size, int(Reason.NOT_OFFERED), dtype=np.int32))


def _by_size(state: State, rows: Rows, reasons: Rows) -> Rows:
    """Return verdicts on jobs; a job that needs more GPUs than are in service gets ``NO_SIZE_FITS``.

    Such a job would not run either if its app were shown the offer.
    """
    jobs, capacity = state.jobs.live, state.capacity()
    kind = jobs.gpu_type[rows]
    limit = np.append(capacity, capacity.sum())[np.maximum(kind, NONE)]
    too_large = (reasons == int(Reason.NOT_OFFERED)) & (kind >= NONE) & (jobs.least[rows] > limit)
    return np.where(too_large, int(Reason.NO_SIZE_FITS), reasons).astype(np.int32)


def _changed(
    state: State, given: _Given, default: Code | None, stopped: set[int], started: set[int]
) -> tuple[Waiting, ...]:
    index = state.standing
    look_at = stopped if default is None else stopped | index.stale_verdicts_for(default)
    look_at = look_at - given.named | given.changed.keys()
    look_at -= started
    if not look_at:
        return ()
    kept, plugins, changed = state.jobs.cells, list(state.plugins), list[Waiting]()
    for row in sorted(look_at):
        code = given.changed.get(row, default)
        if code is None or not (row in index.waiting or row in stopped):
            continue
        if code == (kept.reason[row], kept.stage[row], plugins[kept.plugin[row]]):
            index.stale_verdicts.discard(row)
            continue
        reason, stage, plugin = code
        changed.append(Waiting(job=state.job_id(row), reason=Reason(reason), stage=STAGES[stage], plugin=plugin))
    return tuple(changed)


def _moved(state: State, transitions: Sequence[Transition]) -> tuple[set[int], set[int]]:
    """Jobs that lose all their GPUs, and jobs that hold GPUs from now on.

    All jobs of an app that wins GPUs count as starting: the app's tuner chooses which of them run.
    """
    stopped, started = set[int](), set[int]()
    for order in transitions:
        if order.job is not None:
            (started if order.gpus.size else stopped).add(state.job_rows[order.job])
        elif order.kind.effect.starts:
            started.update(state.standing.jobs_of.get(state.app_row(order.app), ()))
        else:
            stopped.update(state.holdings.live.job[order.leaving].tolist())
    stopped.discard(NONE)
    return stopped, started


def _by_job(state: State, verdicts: Verdicts, unit: Unit) -> tuple[Rows, Rows]:
    """Expand verdicts on apps or users to all their jobs."""
    if unit is Unit.JOB:
        return verdicts.rows, verdicts.reasons
    owner: Rows = state.jobs.live.app[: state.jobs.used]
    if unit is not Unit.APP:
        owner = np.where(owner == NONE, NONE, state.apps.live.user[owner]).astype(np.int32)
    jobs = [np.flatnonzero(owner == row) for row in verdicts.rows.tolist()]
    reasons = np.repeat(verdicts.reasons, [rows.size for rows in jobs])
    rows = np.concatenate(jobs).astype(np.int32)
    return rows, _by_size(state, rows, reasons)
