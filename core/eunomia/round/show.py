"""Build the snapshot and the offer that stages see; expensive fields are computed when a stage reads them."""

import math
from collections.abc import Iterable, Set
from typing import Any

import numpy as np

from eunomia.contract.contracts import Feature
from eunomia.contract.index import Index, Queue, Ranked
from eunomia.contract.keys import Key
from eunomia.contract.memos import Memos
from eunomia.contract.menus import Menus
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot, SnapshotSource
from eunomia.model.ledger import Ledger
from eunomia.model.shapes import Deferred, maker
from eunomia.model.space import Space
from eunomia.model.workload import JobState
from eunomia.round.invariants import StateError
from eunomia.round.narrowing import narrowed
from eunomia.round.offering import candidates, may_change, named
from eunomia.store.state import State
from eunomia.units import NONE, Cause, OfferId, Row, Rows, Scope, Seconds

_new_snapshot, _new_offer = maker(Snapshot), maker(Offer)
_NOTHING: frozenset[int] = frozenset()
_WAITING, _ON = int(JobState.WAITING), (int(JobState.STARTING), int(JobState.RUNNING))


def show(state: State, causes: Iterable[Cause] = (), needs: frozenset[Feature] = frozenset()) -> Snapshot:
    """Return a snapshot of the present state, which is valid until the state changes.

    Args:
        state: the state.
        causes: causes of the round.
        needs: features that the stages of the profile need.
    """
    later: Any = state.stages.index
    if later is None:
        later = state.stages.index = _StateIndex(state, state.free_gpus, state.waiting_jobs.rows, kept=True)
    changes, probing = state.changes, state.owners.probing
    if state.counters.version not in changes.marks:
        changes.marks[state.counters.version] = changes.dropped + len(changes.rows)
    made = _new_snapshot(
        now=state.now,
        round=state.counters.round,
        version=state.counters.version,
        causes=frozenset(causes),
        arrivals=state.jobs.view.order,
        needs=needs,
        measuring=frozenset([state.leases[lease].job for lease in probing]) if probing else _NOTHING,
        **later.always,
    )
    if state.stages.plain:
        later = _StateIndex(state, state.free_of(), state.waiting_jobs.rebuild().rows, kept=False)
    later.none_overdue, later.proportional = not state.lease_ends.overdue, not state.amounts.uneven
    later.settled = not state.owners.divided and not state.owners.leaving
    made.index = later
    return made


def make_offer(state: State, scope: Scope, lease: Seconds, *, retune: bool = False) -> Offer:
    """Return an offer to all apps of every GPU that the round may reassign; its fields are computed lazily."""
    only_free = scope is Scope.FREE and not state.lease_ends.overdue
    free, every = state.free_gpus.free, slice(None)
    return _new_offer(
        id=OfferId(state.counters.last_offer + 1),
        scope=scope,
        made_at=state.now,
        gpus=Deferred(lambda: may_change(state, scope, every).nonzero()[0]),  # type: ignore[arg-type]
        candidates=Deferred(candidates, state, scope, only_free),  # type: ignore[arg-type]
        free_gpus=Deferred(lambda: sum(free) if only_free else int(may_change(state, scope, every).sum())),  # type: ignore[arg-type]
        contended=state.waiting_jobs.asked > min(free),
        retune=retune,
        whole=not state.capacity.draining or len(state.capacity.draining) == len(state.capacity.drained),
        lease=lease,
        capacity=state.capacity.in_service,
        contention=Deferred(lambda: state.app_ledger.contention[: max(1, state.apps.used)].copy()),  # type: ignore[arg-type]
        named=Deferred(named, state, scope),  # type: ignore[arg-type]
    )


class _StateIndex(Index):
    """The index of the state, and the lazily computed values of a snapshot.

    Args:
        state: the state, which each query reads.
        free: the free GPUs.
        waiting: rows of waiting jobs.
        kept: whether ``free`` and ``waiting`` are updated across rounds; False: they are of one snapshot.
    """

    def __init__(self, state: State, free: Space, waiting: Set[int], *, kept: bool) -> None:
        self._state, self.kept = state, kept
        self._moment, self._tables, self._queues = state, (state.jobs.shown, state.apps.shown), {}
        self._changes = state.changes if kept else None
        self.free, self.waiting = free, waiting
        self._attained = state.service.gpu_seconds_line, state.service.seconds_line
        jobs, apps = Deferred(lambda: state.job_ledger), Deferred(lambda: state.app_ledger)
        self.always = {
            "cluster": state.cluster,
            "users": state.users.view,
            "apps": state.apps.shown,
            "jobs": state.jobs.shown,
            "active": Deferred(state.active),
            "active_apps": Deferred(lambda: _active_apps(state)),
            "holdings": state.holdings.shown,
            "reports": state.reports,
            "ledger": Deferred(lambda: Ledger(jobs=jobs, apps=apps, adaptations=state.reports.adaptations)),  # type: ignore[arg-type]
            "memos": Memos(state.stages.memos),
            "kinds": Deferred(lambda: tuple(state.names.kinds)),
            "source": SnapshotSource(
                seed=state.counters.seed,
                find_changes=state.changes.since,
                narrow=narrowed,
                find_service=state.service.lines,
                note_draw=state.counters.count_draw,
            ),
        }
        """Fields of a snapshot that do not differ between snapshots."""

    @property
    def overdue(self) -> list[int]:
        leases = [self._state.leases[lease] for lease in sorted(self._state.lease_ends.overdue)]
        return [lease.job for lease in leases if lease.job != NONE and lease.protected_until <= self._state.now]

    def gpus_of(self, job: Row) -> list[int]:
        lease = self._state.leases.get(self._state.jobs.cells.lease[job])
        return [] if lease is None else [*lease.gpus]

    def protected_until(self, job: Row) -> float:
        lease = self._state.leases.get(self._state.jobs.cells.lease[job])
        return -math.inf if lease is None else float(lease.protected_until)

    def _rows(self, jobs: bool) -> list[int]:
        return list((self._state.names.jobs if jobs else self._state.names.apps).values())

    def _job(self, row: int) -> Ranked | None:
        jobs, leases = self._state.jobs.cells, self._state.leases
        state, kind, number, place = jobs.state[row], jobs.gpu_type[row], jobs.lease[row], jobs.order[row]
        if state == _WAITING:
            return False, jobs.most[row], kind, False, place, -math.inf
        if state not in _ON:
            return None
        gpus, until = (leases[number].gpus, leases[number].protected_until) if number in leases else ([], -math.inf)
        home = self._state.capacity.type_of[gpus[0]] if gpus else 0
        return True, len(gpus), home, kind == NONE, place, until

    def _app(self, row: int) -> Ranked | None:
        return None if self._state.apps.cells.ended[row] else super()._app(row)


class _CheckedIndex(_StateIndex):
    def queue(self, key: Key, menus: Menus, **how: Any) -> Queue:
        found = super().queue(key, menus, **how)
        kept, self._queues = self._queues, {}
        whole = super().queue(key, menus, **how)
        self._queues = kept
        if not found.same(whole):
            raise StateError("a queue must equal one that is made from all rows", value=str(how))
        return found


def check_queues(state: State) -> None:
    """Make the index of a state compare each queue that a stage reads with one rebuilt from all rows."""
    state.stages.index = _CheckedIndex(state, state.free_gpus, state.waiting_jobs.rows, kept=True)


def _active_apps(state: State) -> Rows:
    rows = np.array(state.present(), dtype=np.int32)
    return rows[np.lexsort((rows, state.apps.live.arrived[rows]))]
