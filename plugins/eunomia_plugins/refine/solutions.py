"""The memo of ``time_sharing``: the solution in use, the time of its adoption, and what jobs had received by then."""

import dataclasses
import json
from typing import ClassVar, Self

from eunomia_plugins.type_rows import Row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Time shares, and GPU-seconds received until the adoption, by job id."""

    version: ClassVar[int] = 1
    at: float
    """Time of the solution's adoption, in seconds since the start."""
    shares: dict[str, Row]
    received: dict[str, Row]

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps([self.at, self.shares, self.received], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        at, shares, received = json.loads(data)
        return cls(at=at, shares=_rows(shares), received=_rows(received))


def _rows(table: dict[str, list[float]]) -> dict[str, Row]:
    return {job: tuple(row) for job, row in table.items()}
