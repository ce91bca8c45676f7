"""AlloX (EuroSys'20): minimum mean JCT on several GPU types, by a matching; running jobs are not preempted."""

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from eunomia import (
    Allocation,
    Claims,
    Contract,
    Feature,
    Grants,
    Menus,
    Offer,
    PluginOptions,
    Promise,
    Share,
    Snapshot,
    Stage,
    Triggers,
    Unit,
    Verdicts,
    hookimpl,
)
from eunomia.contract.contracts import Contracts
from eunomia.contract.pools import owners
from eunomia.units import Ints, Reals, Rows
from eunomia_plugins.gavel.instance import Instance, among, instance_of, left_out
from eunomia_plugins.gavel.matching import match
from eunomia_plugins.gavel.min_total_duration import seconds_left
from eunomia_plugins.gavel.sharing import EVENTS
from eunomia_solvers.choice import SolverChoice


class AlloxOptions(PluginOptions):
    """Options of ``allox``."""

    alpha: Share = 1.0
    """The fraction of waiting jobs that is matched (at least as many as GPUs), those that received the least first: a
    smaller fraction is fairer but increases the mean JCT."""
    window: Annotated[int, Field(ge=1)] = 100
    """Maximum number of jobs that are matched at once; the other jobs come after them."""
    solver: SolverChoice = "fast"
    """``fast``: a fast exact algorithm; ``reference``: the specification in cvxpy, which is slow."""


class Allox:
    """Matches waiting jobs to (GPU type, queue position), and starts the jobs at the heads of their types' queues.

    Each GPU is one queue, in which a gang of g GPUs takes g times as long. A job waits for GPUs of its matched type,
    even if GPUs of another type are free. On a single type the matching is shortest work first.
    """

    name = "allox"
    api = 1
    options_type = AlloxOptions
    contracts: ClassVar[Contracts] = {
        Stage.ALLOCATION: Contract(
            gives=frozenset({Feature.GRANTS, Feature.JOB_CLAIMS}), promises=frozenset({Promise.READS_NO_VALUATION})
        )
    }

    def __init__(self, options: AlloxOptions) -> None:
        self.options = options

    @hookimpl
    def eunomia_triggers(self) -> Triggers:
        """Request a round when a job arrives, a GPU becomes free, a lease ends or the cluster changes."""
        return EVENTS

    @hookimpl
    def eunomia_allocation(self, snapshot: Snapshot, menus: Menus, offer: Offer) -> Allocation:
        """Grant each waiting job its gang on its matched type, jobs at the heads of queues first."""
        active = instance_of(snapshot, menus, offer, weighted=False, speeds=True)
        waits = among(offer.candidates, active.jobs) & ~among(_holding(snapshot), active.jobs)
        found = active.only(waits)
        matched = _matched_first(snapshot, found, self.options)
        kinds, order = self._match(snapshot, found, matched)
        rest, why = left_out(snapshot, menus, offer, active.jobs)
        return Allocation(
            claims=Claims(unit=Unit.JOB, rows=found.jobs),
            amount=Grants(
                gpus=found.gpus.astype(np.int64), gpu_type=kinds.astype(np.int32) if offer.capacity.size > 1 else None
            ),
            order=order.astype(np.int32),
            verdicts=Verdicts(rows=rest, reasons=why),
        )

    def _match(self, snapshot: Snapshot, found: Instance, matched: Ints) -> tuple[Ints, Ints]:
        """Return the type of each job, and jobs in order of service; unmatched ones come last, on their best types."""
        seconds = seconds_left(found, snapshot.iterations_left(found.jobs))
        best = found.rate.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            work = (seconds * found.gpus)[:, None] * np.where(found.able, best / found.rate, np.inf)
        kinds = work.argmin(axis=1)
        lines = found.capacity.astype(np.int64)
        matching = match(work[matched], lines, reference=self.options.solver == "reference")
        kinds[matched] = matching.gpu_type
        ahead = _ahead(matching.gpu_type, matching.place, work[matched, matching.gpu_type], lines)
        behind = np.setdiff1d(np.arange(found.jobs.size), matched)
        return kinds, np.concatenate([matched[np.argsort(ahead, kind="stable")], behind])


def _holding(snapshot: Snapshot) -> Rows:
    """Return the jobs that hold GPUs or are promised some."""
    held = owners(snapshot, np.arange(snapshot.cluster.gpus), Unit.JOB)
    return held[held >= 0]


def _matched_first(snapshot: Snapshot, found: Instance, options: AlloxOptions) -> Ints:
    """Return the jobs to match: those that received the least; ties are broken by arrival."""
    received = snapshot.ledger.jobs.received[found.jobs].sum(axis=1)
    count = min(options.window, max(int(options.alpha * found.jobs.size), int(found.capacity.sum())))
    return np.sort(np.argsort(received, kind="stable")[:count])


def _ahead(kind: Ints, place: Ints, work: Reals, lines: Ints) -> Reals:
    """Return the number of jobs ahead of each job, divided by its type's number of queues; ties go to less work."""
    ahead = np.zeros(kind.size)
    for each in sorted(set(kind.tolist())):
        mine = np.flatnonzero(kind == each)
        order = mine[np.lexsort((work[mine], -place[mine]))]
        ahead[order] = np.arange(order.size) / lines[each]
    return ahead
