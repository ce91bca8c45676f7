"""With how many jobs a job has shared the cluster since it arrived, counted in two ways."""

import dataclasses
import json
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np

from eunomia import Memo, Offer, Snapshot
from eunomia.units import Reals, Rows

Sharing = Literal["average", "arrived"]
"""How N_avg is counted: ``average``: the apps per GPU, averaged over the time that the job's app has been queued or
running (Shockwave, equation 9); ``arrived``: the jobs that were here when the job arrived and those that arrived since,
over the GPUs. The average falls while a queue drains; the count of arrivals does not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The memo of ``arrived``: arrivals and departures so far, and by job the departures before it arrived."""

    version: ClassVar[int] = 1
    arrived: int = 0
    left: int = 0
    left_before: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """By id of a job that is here: how many jobs had left when it arrived."""

    def to_bytes(self) -> bytes:
        """Encode as JSON, jobs in order of their ids."""
        return json.dumps([self.arrived, self.left, dict(self.left_before)], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode what ``to_bytes`` wrote."""
        arrived, left, left_before = json.loads(data)
        return cls(arrived=arrived, left=left, left_before=left_before)

    def after(self, snapshot: Snapshot) -> Self:
        """Count the jobs that arrived and left since the last round; the same memo if none did."""
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
        """Return by job the jobs that were here when it arrived, itself included, and those that arrived since."""
        names = snapshot.jobs.id[jobs].tolist()
        return np.array([self.arrived - self.left_before.get(job, self.left) for job in names], dtype=float)


def present_after(old: Memo | None, snapshot: Snapshot) -> Present:
    """Return the memo after this round; a policy that had none begins to count now."""
    return (old if isinstance(old, Present) else Present()).after(snapshot)


def stretch(snapshot: Snapshot, offer: Offer, jobs: Rows, memo: Present | None, given: float = 0.0) -> Reals:
    """Return for each job N_avg: its run time under a fair share over its run time alone, at least 1.

    Args:
        snapshot: the current state.
        offer: the offer of the round.
        jobs: job rows.
        memo: counts of arrivals and departures; None: N_avg is the average of equation (9).
        given: a fixed N_avg for all jobs; 0: it is computed.
    """
    if given > 0.0:
        return np.full(jobs.size, given)
    if memo is not None:
        shared = memo.shared_with(snapshot, jobs)
    else:
        shared = np.nan_to_num(offer.contention[snapshot.jobs.app[jobs]], nan=1.0)
    return np.maximum(shared / max(1, int(offer.capacity.sum())), 1.0)
