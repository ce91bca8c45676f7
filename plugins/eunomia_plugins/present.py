"""The number of jobs with which a job has shared the cluster since its arrival, counted in two ways."""

import dataclasses
import json
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np

from eunomia import Memo, Offer, Snapshot
from eunomia.units import Reals, Rows

Sharing = Literal["average", "arrived"]
"""How N_avg is counted. ``average``: apps per GPU, averaged over the time that the job's app has been queued or running
(Shockwave, equation 9). ``arrived``: jobs present when the job arrived plus jobs that arrived since, over the number of
GPUs. The average decreases while a queue drains; the count of arrivals does not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The memo of ``arrived``: arrivals and departures so far, and the departures before each job's arrival."""

    version: ClassVar[int] = 1
    arrived: int = 0
    left: int = 0
    left_before: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Number of jobs that had left when each present job arrived, by job id."""

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by job id."""
        return json.dumps([self.arrived, self.left, dict(self.left_before)], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize bytes written by ``to_bytes``."""
        arrived, left, left_before = json.loads(data)
        return cls(arrived=arrived, left=left, left_before=left_before)

    def after(self, snapshot: Snapshot) -> Self:
        """Return the memo updated by the jobs that arrived and left since the last round; the same memo if none did."""
        here = dict.fromkeys(snapshot.jobs.id[snapshot.active].tolist())
        gone = self.left_before.keys() - here.keys()
        if not gone and len(here) == len(self.left_before):
            return self
        left = self.left + len(gone)
        before = {job: self.left_before.get(job, left) for job in here}
        return type(self)(
            arrived=self.arrived + len(here.keys() - self.left_before.keys()), left=left, left_before=before
        )

    def shared_with(self, snapshot: Snapshot, jobs: Rows) -> Reals:
        """Return, for each job, the number of jobs present at its arrival, including itself, or arrived since."""
        names = snapshot.jobs.id[jobs].tolist()
        return np.array([self.arrived - self.left_before.get(job, self.left) for job in names], dtype=float)


def present_after(old: Memo | None, snapshot: Snapshot) -> Present:
    """Return the memo after this round; without an old memo, counting starts with this round."""
    return (old if isinstance(old, Present) else Present()).after(snapshot)


def stretch(snapshot: Snapshot, offer: Offer, jobs: Rows, memo: Present | None, given: float = 0.0) -> Reals:
    """Return N_avg of each job: the ratio of its run time under a fair share to its run time alone, at least 1.

    Args:
        snapshot: the current state.
        offer: the offer of the round.
        jobs: job rows.
        memo: counts of arrivals and departures; None: N_avg is the average of equation (9).
        given: fixed N_avg for all jobs; 0: it is computed.
    """
    if given > 0.0:
        return np.full(jobs.size, given)
    if memo is not None:
        shared = memo.shared_with(snapshot, jobs)
    else:
        shared = np.nan_to_num(offer.contention[snapshot.jobs.app[jobs]], nan=1.0)
    return np.maximum(shared / max(1, int(offer.capacity.sum())), 1.0)
