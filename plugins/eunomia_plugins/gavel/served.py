"""What ``gavel_rounds`` remembers: the shares that it serves, what was received by then, and what is owed."""

import dataclasses
import json
from typing import ClassVar, Self

Row = tuple[float, ...]
"""By GPU type."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """All by id of job, in seconds of time at the gang's size."""

    version: ClassVar[int] = 1
    at: float
    """When the solution was found, in seconds since the start."""
    share: dict[str, Row]
    received: dict[str, Row]
    """Since the job came, by the time of the solution."""
    deficit: dict[str, Row]
    """What former solutions promised and it did not receive; below 0: it received more."""

    def to_bytes(self) -> bytes:
        """As JSON, sorted by id."""
        return json.dumps([self.at, self.share, self.received, self.deficit], sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Read back; there has been one version."""
        at, *tables = json.loads(data)
        share, received, deficit = ({job: tuple(row) for job, row in table.items()} for table in tables)
        return cls(at=at, share=share, received=received, deficit=deficit)
