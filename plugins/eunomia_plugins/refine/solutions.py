"""The memo of ``time_sharing``: the solution in use, when it was adopted, and what each job had received by then."""

import dataclasses
import json
from typing import ClassVar, Self

from eunomia_plugins.type_rows import Row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Time shares and GPU-seconds received, by id of job."""

    version: ClassVar[int] = 1
    at: float
    """When the solution was adopted, in seconds since the start."""
    shares: dict[str, Row]
    received: dict[str, Row]

    def to_bytes(self) -> bytes:
        """Return the memo as JSON, sorted by id."""
        return json.dumps([self.at, self.shares, self.received], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode; only version 1 exists."""
        at, shares, received = json.loads(data)
        return cls(at=at, shares=_rows(shares), received=_rows(received))


def _rows(table: dict[str, list[float]]) -> dict[str, Row]:
    return {job: tuple(row) for job, row in table.items()}
