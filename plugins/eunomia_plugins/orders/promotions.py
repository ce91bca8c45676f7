"""The memo of ``las``: promoted jobs, with the time of promotion and the service attained by then."""

import dataclasses
import json
from typing import ClassVar, NamedTuple, Self

import numpy as np

from eunomia import Snapshot
from eunomia.units import Reals, Rows


class Before(NamedTuple):
    """The service of each job at its last promotion; 0 if it was never promoted."""

    received: Reals
    """GPU-seconds received at the last promotion."""
    seconds: Reals
    """Seconds run at the last promotion."""
    at: Reals
    """Time of the last promotion, in seconds since the start."""


@dataclasses.dataclass(frozen=True, slots=True)
class Promotions:
    """GPU-seconds, seconds run and time at the last promotion, by job id; demotions follow from the ledger."""

    version: ClassVar[int] = 1
    jobs: dict[str, tuple[float, float, float]]

    @classmethod
    def none(cls) -> Self:
        """Return a memo without promoted jobs."""
        return cls({})

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps(self.jobs, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        return cls({str(job): tuple(values) for job, values in json.loads(data).items()})

    def columns(self, snapshot: Snapshot, jobs: Rows) -> Before:
        """Return the promotions of these jobs as columns."""
        found = np.zeros((3, jobs.size))
        if self.jobs:
            for index, name in enumerate(snapshot.jobs.id[jobs].tolist()):
                if name in self.jobs:
                    found[:, index] = self.jobs[name]
        return Before(*found)

    def with_promoted(self, snapshot: Snapshot, jobs: Rows) -> Self:
        """Return the memo with these jobs promoted now, and without jobs that have left."""
        present = set(snapshot.jobs.id.tolist()) if self.jobs else set()
        ledger = snapshot.ledger.jobs
        added = {
            str(snapshot.jobs.id[job]): (
                float(ledger.received[job].sum()),
                float(ledger.attained[job]),
                float(snapshot.now),
            )
            for job in jobs.tolist()
        }
        return type(self)({name: before for name, before in self.jobs.items() if name in present} | added)
