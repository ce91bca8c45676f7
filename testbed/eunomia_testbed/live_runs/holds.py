"""The holder of each slot over time, taken from the replayed arbiter after each step.

``eunomia journal check``, which shares no code with the arbiter, checks that no slot has two holders.
"""

import dataclasses

import numpy as np

from eunomia.arbiter import ClusterView
from eunomia.contract.decisions import Decision
from eunomia.contract.events import MachineLost
from eunomia.journal.journal import Step
from eunomia.model.leases import GpuState
from eunomia.units import NONE, Ints
from eunomia_testbed.live_runs.run_part import WHOLE, RunPart

_LEAVING, _DOWN = int(GpuState.LEAVING), int(GpuState.DOWN)
_RELEASED = "released"


@dataclasses.dataclass(slots=True, kw_only=True)
class Hold:
    """A period in which a lease held a slot.

    Attributes:
        gpu: number of the slot in the cluster.
        job: the job of the lease; None: the app divides the lease among its jobs.
        epoch: epoch of the last order for the slot.
        start: Unix time of the step that granted the slot.
        end: Unix time at which the slot was free again; None: the slot is still held.
        ended_by: expired, preempted, released or lost; the first two are set when the job is ordered to leave.
    """

    gpu: int
    lease: int
    app: str
    job: str | None
    epoch: int
    start: float
    end: float | None = None
    ended_by: str = ""


class Holds:
    """The periods in which slots were held over a run, updated step by step.

    Args:
        gpus: number of slots.
        part: the run whose apps' leases are kept.
    """

    def __init__(self, gpus: int = 0, part: RunPart = WHOLE) -> None:
        self.holds: list[Hold] = []
        self._part = part
        self._now: dict[int, Hold] = {}
        self._seen: Ints = np.full((3, gpus), NONE)

    @property
    def busy(self) -> int:
        """Return the number of slots that leases hold now."""
        return len(self._now)

    def take(self, step: Step, view: ClusterView) -> None:
        """Update the holds with the state after a step."""
        lost = any(isinstance(event, MachineLost) for event in step.events)
        held, gpus = view.gpus, view.cluster.gpus
        if gpus > self._seen.shape[1]:  # machines have joined
            new = np.full((3, gpus - self._seen.shape[1]), NONE)
            self._seen = np.concatenate([self._seen, new], axis=1)
        now: Ints = np.stack([held.lease[:gpus], held.epoch[:gpus], held.state[:gpus].astype(np.int64)])
        for gpu in np.flatnonzero((now != self._seen).any(axis=0)).tolist():
            lease, epoch, kind = now[:, gpu].tolist()
            hold, before = self._now.get(gpu), int(self._seen[2, gpu])
            # A slot that is no longer in the state LEAVING has been released, even if the same lease gets it again.
            if hold is not None and (hold.lease != lease or (before == _LEAVING and kind != _LEAVING)):
                hold.end, hold.ended_by = step.at, "lost" if lost and kind == _DOWN else hold.ended_by or _RELEASED
                del self._now[gpu]
                hold = None
            if hold is not None:
                hold.epoch = epoch
            elif lease != NONE and (begun := self._begun(view, gpu, lease, epoch, step.at)) is not None:
                self._now[gpu] = begun
                self.holds.append(begun)
        self._seen = now
        self._note_leaving(step.decision)

    def _note_leaving(self, decision: Decision) -> None:
        for order in decision.transitions:
            for gpu in order.listed["leaving"]:
                hold = self._now.get(gpu)
                if hold is not None and hold.lease == order.lease:
                    hold.ended_by = "expired" if order.ends_at <= decision.now else "preempted"

    def _begun(self, view: ClusterView, gpu: int, lease: int, epoch: int, at: float) -> Hold | None:
        """Return the hold of a lease that begins; None: the lease is not of the run."""
        known, app = view.lease(lease), self._part.app(str(view.app_id(int(view.gpus.app[gpu]))))
        if app is None:
            return None
        job = None if known is None or known.job == NONE else self._part.job(str(view.job_id(known.job)))
        return Hold(gpu=gpu, lease=lease, app=app, job=job, epoch=epoch, start=at)
