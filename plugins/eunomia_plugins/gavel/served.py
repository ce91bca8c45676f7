"""The memo of ``gavel_rounds``: the present shares, the time received before them, and the deficits."""

import dataclasses
import json
from typing import ClassVar, Self

from eunomia_plugins.type_rows import Row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Values by id of job, in seconds at the gang's size."""

    version: ClassVar[int] = 1
    at: float
    """When the solution was found, in seconds since the start."""
    share: dict[str, Row]
    received: dict[str, Row]
    """Received between the job's arrival and the solution."""
    deficit: dict[str, Row]
    """Time that former solutions promised and the job did not receive; below 0: the job received more."""

    def to_bytes(self) -> bytes:
        """Return the memo as JSON, sorted by id."""
        return json.dumps([self.at, self.share, self.received, self.deficit], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Decode; only version 1 exists."""
        at, *tables = json.loads(data)
        share, received, deficit = ({job: tuple(row) for job, row in table.items()} for table in tables)
        return cls(at=at, share=share, received=received, deficit=deficit)
