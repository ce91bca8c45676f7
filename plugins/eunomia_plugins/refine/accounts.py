"""The memo of ``rounding``: the GPU-seconds that were promised to each claim and not received yet."""

import dataclasses
import json
from typing import ClassVar, NamedTuple, Self

import numpy as np

from eunomia import Claims, Snapshot, Unit
from eunomia.units import Reals
from eunomia_plugins.refine.turns import owner_of
from eunomia_plugins.type_rows import Row, wide, widened


class Seen(NamedTuple):
    """The state of a job at the last round."""

    claim: str
    received: Row
    """GPU-seconds received until then, by GPU type."""
    granted: Row
    """GPUs held since then, by GPU type."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Deficits of claims by key, and jobs by id, as of one moment."""

    version: ClassVar[int] = 1
    at: float
    """Time of the account, in seconds since the start."""
    ideal: dict[str, Row]
    """GPUs promised from then on, by claim key."""
    owed: dict[str, Row]
    """GPU-seconds promised but not received until then, by claim key; negative if more was received than promised."""
    jobs: dict[str, Seen]

    @classmethod
    def opened(cls, now: float) -> Self:
        """Return an empty account."""
        return cls(at=now, ideal={}, owed={}, jobs={})

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by key."""
        return json.dumps([self.at, self.ideal, self.owed, self.jobs], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        at, ideal, owed, jobs = json.loads(data)
        seen = {job: Seen(claim, tuple(received), tuple(granted)) for job, (claim, received, granted) in jobs.items()}
        return cls(at=at, ideal=_rows(ideal), owed=_rows(owed), jobs=seen)

    def widened(self, types: int) -> Self:
        """Return the account padded to a number of GPU types, as new types may have joined the cluster."""
        jobs = {
            job: Seen(seen.claim, wide(seen.received, types), wide(seen.granted, types))
            for job, seen in self.jobs.items()
            if len(seen.received) < types
        }
        made = widened(self, types, "ideal", "owed")
        return dataclasses.replace(made, jobs=self.jobs | jobs) if jobs else made

    def owed_now(self, snapshot: Snapshot, claims: Claims) -> Reals:
        """Return the GPU-seconds promised but not received until now, [claim, type].

        Received GPU-seconds are read from the ledger. A job that ended since the last round is no longer in it, and
        counts as having kept its GPUs until now.
        """
        keys = claim_keys(snapshot, claims)
        index = {key: at for at, key in enumerate(keys)}
        types = len(snapshot.cluster.gpu_types)
        elapsed = max(float(snapshot.now) - self.at, 0.0)
        nothing = (0.0,) * types
        owed = np.array([self.owed.get(key, nothing) for key in keys]).reshape(len(keys), types)
        owed += elapsed * np.array([self.ideal.get(key, nothing) for key in keys]).reshape(len(keys), types)
        rows = np.flatnonzero(snapshot.jobs.app >= 0).astype(np.int32)
        names = [str(name) for name in snapshot.jobs.id[rows]]
        before = np.array([self.jobs[name].received if name in self.jobs else nothing for name in names])
        delta = snapshot.ledger.jobs.received[rows] - before.reshape(len(names), types)
        owner = owner_of(snapshot, claims, rows)
        mine = owner >= 0
        np.subtract.at(owed, owner[mine], delta[mine])
        for name in self.jobs.keys() - set(names):
            seen = self.jobs[name]
            if seen.claim in index:
                owed[index[seen.claim]] -= elapsed * np.array(seen.granted)
        return owed


def claim_keys(snapshot: Snapshot, claims: Claims) -> list[str]:
    """Return keys of the claims that remain valid when rows are reused."""
    if claims.unit is Unit.JOB:
        return [str(name) for name in snapshot.jobs.id[claims.rows]]
    if claims.unit is Unit.APP:
        return [str(name) for name in snapshot.apps.id[claims.rows]]
    users = [str(name) for name in snapshot.users.id[claims.rows]]
    if claims.unit is Unit.USER or claims.job_kind is None:
        return users
    kinds = [snapshot.kinds[kind] for kind in claims.job_kind]
    return [f"{user}\n{kind}" for user, kind in zip(users, kinds, strict=True)]


def _rows(table: dict[str, list[float]]) -> dict[str, Row]:
    return {key: tuple(row) for key, row in table.items()}
