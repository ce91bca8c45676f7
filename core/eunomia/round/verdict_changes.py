"""The verdicts that a round changes: a default for all waiting jobs, and the exceptions given by stages.

The first stage that turns a job down gives its verdict. A job that no stage turned down gets the round's default, such
as ``outranked``. The index of waiting jobs contains those whose last verdict may differ from the default
(``off_default``), so that a round reads only these and the jobs named by stages.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from eunomia.contract.decisions import Fault, Transition, Waiting
from eunomia.contract.offers import Offer
from eunomia.contract.verdicts import Reason, Verdicts
from eunomia.round.answers import StageVerdicts
from eunomia.round.offering import anything
from eunomia.store.indexes import Verdict
from eunomia.store.state import STAGE_NUMBER, STAGES, State
from eunomia.units import NONE, Rows, Stage, Unit

_ALLOCATION = Stage.ALLOCATION
OUTRANKED = int(Reason.OUTRANKED), STAGE_NUMBER[_ALLOCATION]
_REASONS = {int(reason): reason for reason in Reason}
_UNTIL_CLOSED = int(Reason.AWAITING_ROUND), STAGE_NUMBER[Stage.VALUATION]


def verdicts_of(
    state: State,
    offer: Offer | None,
    verdicts: Sequence[StageVerdicts],
    transitions: Sequence[Transition],
    allocator: str,
    *,
    opened: bool = False,
    fault: Fault | None = None,
) -> tuple[Waiting, ...]:
    """Return the verdicts that change in this round, before its plan is adopted; a job that starts no longer waits.

    ``offer`` is None in a quiet or faulty round. ``verdicts`` are those of the stages in calling order. ``allocator``
    is the plugin that allocated; empty if none did. ``opened``: the offer was opened to app masters, so that every
    waiting job waits until it closes.
    """
    if offer is not None and fault is None and not opened and not (transitions or anything(state, offer)):
        # No GPU was on offer, so earlier verdicts are kept; only jobs that fit nowhere get a new one.
        offer, verdicts = None, [given for given in verdicts if given.stage is Stage.ELASTICITY]
    stopped: set[int] = set()
    started: set[int] = set()
    for order in transitions:
        if order.job is not None:
            (started if order.listed["gpus"] else stopped).add(state.names.jobs[order.job])
        else:
            _moved(state, order, stopped, started)
    named: set[int] = set()
    changed: dict[int, Verdict] = {}
    index, shown = state.waiting_jobs, None if offer is None or fault is not None else offer.apps
    if shown is not None or verdicts:
        given = [(*_by_job(state, one.verdicts, one.unit), one.stage, one.plugin) for one in verdicts]
        if shown is not None:
            given.append((*_outside(state, stopped | index.rows, shown), _ALLOCATION, allocator))
        named, changed = _first_of_each(state, given)
    default: Verdict | None = None  # earlier verdicts are kept
    if fault is not None:
        default = int(Reason.PLUGIN_FAULT), STAGE_NUMBER[fault.stage or _ALLOCATION], fault.plugin
    elif offer is not None:
        default = (*_UNTIL_CLOSED, "") if opened else (*OUTRANKED, allocator)
    if default is not None and (default != index.default or index.plugin == NONE):
        index.compare_with(default, state.names.plugins.get(default[2], NONE))
    look_at = stopped if default is None else stopped | index.off_default
    if named:
        look_at = look_at - named | changed.keys()
    if started:
        look_at = look_at - started
    return _changes(state, look_at, changed, default, stopped) if look_at else ()


def _first_of_each(state: State, given: Iterable[tuple[Rows, Rows, Stage, str]]) -> tuple[set[int], dict[int, Verdict]]:
    """Return the jobs that stages turned down, and their first verdicts by job, except unchanged ones.

    ``given`` contains job rows, their reasons, the stage and its plugin, for each stage.
    """
    named, changed, last = set[int](), dict[int, Verdict](), state.jobs.live
    for rows, reasons, stage, plugin in given:
        number, known = STAGE_NUMBER[stage], state.names.plugins.get(plugin, NONE)
        differs = (last.reason[rows] != reasons) | (last.stage[rows] != number) | (last.plugin[rows] != known)
        for row, reason in zip(rows[differs].tolist(), reasons[differs].tolist(), strict=True):
            if row not in named:
                changed.setdefault(row, (reason, number, plugin))
        named.update(rows.tolist())
    return named, changed


def _outside(state: State, waiting: set[int], shown: Rows) -> tuple[Rows, Rows]:
    """Return the waiting jobs of apps that were not shown the offer, and their verdicts."""
    sees, app = set(shown.tolist()), state.jobs.cells.app
    outside = np.array([row for row in sorted(waiting) if app[row] not in sees], dtype=np.int32)
    return outside, _by_size(state, outside, np.full(outside.size, int(Reason.NOT_OFFERED), dtype=np.int32))


def _by_size(state: State, rows: Rows, reasons: Rows) -> Rows:
    """Return the reasons, with NO_SIZE_FITS for jobs that were not offered GPUs but need more than are in service.

    Such a job would not run even if its app were shown the offer.
    """
    jobs, capacity = state.jobs.live, state.capacity.in_service
    kind = jobs.gpu_type[rows]
    limit = np.append(capacity, capacity.sum())[np.maximum(kind, NONE)]
    too_large = (reasons == int(Reason.NOT_OFFERED)) & (kind >= NONE) & (jobs.least[rows] > limit)
    return np.where(too_large, int(Reason.NO_SIZE_FITS), reasons).astype(np.int32)


def _changes(
    state: State, look_at: set[int], given: dict[int, Verdict], default: Verdict | None, stopped: set[int]
) -> tuple[Waiting, ...]:
    """Return the new verdicts; jobs whose verdict is unchanged are removed from ``off_default``."""
    index, kept, plugins = state.waiting_jobs, state.jobs.cells, list(state.names.plugins)
    changed: list[Waiting] = []
    for row in sorted(look_at):
        code = given.get(row, default)
        if code is None or not (row in index.rows or row in stopped):
            continue
        if code == (kept.reason[row], kept.stage[row], plugins[kept.plugin[row]]):
            index.off_default.discard(row)
            continue
        reason, stage, plugin = code
        changed.append(Waiting(job=kept.id[row], reason=_REASONS[reason], stage=STAGES[stage], plugin=plugin))
    return tuple(changed)


def _moved(state: State, order: Transition, stopped: set[int], started: set[int]) -> None:
    """Add to ``stopped`` the jobs that lose GPUs with an app's lease, and to ``started`` those that may start.

    All jobs of an app that wins GPUs count as starting, as the app's tuner chooses which of them run.
    """
    if order.kind.effect.starts:
        started.update(state.owners.jobs_of.get(state.names.apps[order.app], ()))
    else:
        stopped.update(state.holdings.live.job[order.leaving].tolist())
        stopped.discard(NONE)


def _by_job(state: State, verdicts: Verdicts, unit: Unit) -> tuple[Rows, Rows]:
    """Expand verdicts on apps or users to all their jobs."""
    if unit is Unit.JOB:
        return verdicts.rows, verdicts.reasons
    owner: Rows = state.jobs.live.app[: state.jobs.used]
    if unit is not Unit.APP:
        owner = np.where(owner == NONE, NONE, state.apps.live.user[owner]).astype(np.int32)
    order = owner.argsort(kind="stable")  # jobs by app or user, those of one ascending
    start, end = (owner[order].searchsorted(verdicts.rows, side) for side in ("left", "right"))
    counts = end - start
    into = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
    rows = order[start.repeat(counts) + into].astype(np.int32)
    return rows, _by_size(state, rows, verdicts.reasons.repeat(counts))
