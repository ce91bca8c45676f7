"""The memo of ``gavel_rounds``: the present solution, the time that jobs received before it, and their deficits."""

import dataclasses
import json
from typing import ClassVar, Self

from eunomia_plugins.type_rows import Row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Present solution, received time and deficits by job id; times are in seconds at the gang's size."""

    version: ClassVar[int] = 1
    at: float
    """Time of the solution, in seconds since the start."""
    share: dict[str, Row]
    received: dict[str, Row]
    """Time received between the job's arrival and the solution."""
    deficit: dict[str, Row]
    """Time promised by earlier solutions that the job did not receive; negative if the job received more."""

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON, sorted by id."""
        return json.dumps([self.at, self.share, self.received, self.deficit], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        at, *tables = json.loads(data)
        share, received, deficit = ({job: tuple(row) for job, row in table.items()} for table in tables)
        return cls(at=at, share=share, received=received, deficit=deficit)
