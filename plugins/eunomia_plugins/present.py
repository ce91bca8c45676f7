"""How many jobs have shared the cluster with a job since it arrived: two counters and a number for each job."""

import dataclasses
import json
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from eunomia import Snapshot
from eunomia.units import Reals, Rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The memo: arrivals and departures so far, and by job the departures before it arrived."""

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

    def stretch(self, snapshot: Snapshot, jobs: Rows, gpus: int, given: float = 0.0) -> Reals:
        """Return by job its run time under a fair share over its own, at least 1.

        Args:
            snapshot: the current state.
            jobs: job rows.
            gpus: of the cluster.
            given: that value for all jobs; 0: the jobs that a job has shared the cluster with, over the GPUs.
        """
        if given > 0.0:
            return np.full(jobs.size, given)
        return np.maximum(self.shared_with(snapshot, jobs) / max(1, gpus), 1.0)
