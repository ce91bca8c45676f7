"""The snapshot of the state for the stages: views of its tables; fields that cost work are computed on first use."""

import math
from collections.abc import Iterable, Set

import numpy as np

from eunomia.contract.contracts import Feature
from eunomia.contract.memos import Memos
from eunomia.contract.snapshot import Snapshot
from eunomia.model.ledger import Ledger
from eunomia.model.shapes import Later
from eunomia.model.space import Space
from eunomia.state.narrowing import narrowed
from eunomia.state.state import State
from eunomia.units import NONE, Cause, Ints, Rows

NO_GPUS = np.empty(0, np.int64)


_NOTHING: frozenset[int] = frozenset()


def show(state: State, causes: Iterable[Cause] = (), needs: frozenset[Feature] = frozenset()) -> Snapshot:
    """Make a snapshot of the present state; it is valid until the state changes.

    Args:
        state: the state.
        causes: of the round.
        needs: what the stages of the profile need.
    """
    later = state.shown
    if not isinstance(later, ArbiterLiveIndex):
        later = state.shown = ArbiterLiveIndex(state)
    return Snapshot(
        now=state.now,
        round=state.round,
        version=state.version,
        causes=frozenset(causes),
        cluster=state.cluster,
        users=state.users.view,
        apps=state.apps.shown,
        jobs=state.jobs.shown,
        active=later.active,  # type: ignore[arg-type]
        active_apps=later.active_apps,  # type: ignore[arg-type]
        holdings=state.holdings.view,
        forecasts=state.forecasts,
        measured=state.measured,
        ledger=later.ledger,  # type: ignore[arg-type]
        memos=later.memos,
        kinds=later.kinds,  # type: ignore[arg-type]
        seed=state.seed,
        find_changes=state.changed,
        narrow=lambda app: narrowed(state, app, causes, needs),
        arrivals=state.jobs.view.order,
        find_service=state.service.lines,
        note_draw=lambda: count_draw(state),
        live_index=None if state.plain else later,
        needs=needs,
        measured_at_others=state.measured_at_others,
        coming_regimes=state.coming_regimes,
        profiles=state.profiles,
        measuring=frozenset(state.leases[lease].job for lease in state.probing) if state.probing else _NOTHING,
    )


class ArbiterLiveIndex:
    """The live index: a read-only view of the state index, for stages that schedule incrementally.

    Attributes:
        active, active_apps, ledger, kinds: lazy values of these fields of a snapshot.
        memos: the present memos, as stages see them.
        space: free GPUs; a stage copies it before it takes any.
        waiting: rows of waiting jobs.
    """

    __slots__ = ("_state", "active", "active_apps", "kinds", "ledger", "memos", "space", "waiting")

    def __init__(self, state: State) -> None:
        self._state = state
        self.memos = Memos(state.memos)
        self.space: Space = state.standing.space
        self.waiting: Set[int] = state.standing.waiting
        self.active = Later(state.active)
        self.active_apps = Later(lambda: _active_apps(state))
        jobs, apps = Later(lambda: state.job_ledger), Later(lambda: state.app_ledger)
        self.ledger = Later(
            lambda: Ledger(jobs=jobs, apps=apps, adaptations=state.adaptations)  # type: ignore[arg-type]
        )
        self.kinds = Later(lambda: tuple(state.kinds))

    @property
    def plain(self) -> bool:
        """Whether no lease is giving a GPU back, and every lease names its job."""
        return not self._state.standing.shared and not any(self._state.leaving.values())

    @property
    def proportional(self) -> bool:
        """Whether no job asks for, and no lease holds, CPUs or memory other than its GPUs' share of the machine."""
        return not self._state.standing.uneven

    @property
    def none_overdue(self) -> bool:
        """Whether every lease that has ended was renewed."""
        return not self._state.lease_ends.overdue

    @property
    def overdue(self) -> list[int]:
        """Rows of jobs whose lease has ended, is not protected and was not renewed."""
        leases = [self._state.leases[lease] for lease in sorted(self._state.lease_ends.overdue)]
        return [lease.job for lease in leases if lease.job != NONE and lease.protected_until <= self._state.now]

    def gpus_of(self, job: int) -> Ints:
        """GPUs of a job's own lease, ascending; empty where the job has no lease."""
        lease = self._state.leases.get(self._state.jobs.cells.lease[job])
        return NO_GPUS if lease is None else lease.gpus

    def protected_until(self, job: int) -> float:
        """Time until which no round may take the job's lease; -inf: the lease is not protected."""
        lease = self._state.leases.get(self._state.jobs.cells.lease[job])
        return -math.inf if lease is None else float(lease.protected_until)


def _active_apps(state: State) -> Rows:
    arrived = state.apps.live.arrived
    return np.array(sorted(state.present(), key=lambda row: (arrived[row], row)), dtype=np.int32)


def count_draw(state: State) -> None:
    """Count a random generator that a stage asks for."""
    state.draws += 1
