"""The memo and the record of OEF's allocations: the last solution, a version of its inputs, and its certificate."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

import numpy as np

from eunomia.contract.records import PlainColumn
from eunomia.units import Reals
from eunomia_plugins.oef.answers import Answer
from eunomia_plugins.oef.groups import Groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LastSolution:
    """The memo: GPUs by claim and type, with the version of the inputs of this solution."""

    version: ClassVar[int] = 1
    inputs: str
    gpus: tuple[tuple[float, ...], ...]
    since: float
    """Time of the solution, in seconds since the start."""

    def to_bytes(self) -> bytes:
        """Serialize the memo as JSON."""
        return json.dumps([self.inputs, self.gpus, self.since]).encode()

    @classmethod
    def from_bytes(cls, version: int, data: bytes) -> Self:
        """Deserialize the memo; only version 1 exists."""
        inputs, gpus, since = json.loads(data)
        return cls(inputs=inputs, gpus=tuple(map(tuple, gpus)), since=since)

    def shares(self, types: int) -> Reals:
        """Return the GPUs of each claim, [claim, type]."""
        return np.array(self.gpus, dtype=float).reshape(-1, types)


def version_of(groups: Groups, names: list[str]) -> str:
    """Return a string that changes if the claims, their speedups or weights, or the GPUs change."""
    parts = [json.dumps([names, groups.speedup.shape]).encode()]
    parts += [column.tobytes() for column in (groups.speedup, groups.weight, groups.gpus)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SolutionRecord:
    """The record of a solution: a row per claim, with the certificate of the whole solution."""

    names: tuple[str, ...]
    throughput: tuple[float, ...]
    gpus: tuple[float, ...]
    answer: Answer

    @property
    def table(self) -> str:
        """Return the name of the table."""
        return "oef"

    def columns(self) -> Mapping[str, PlainColumn]:
        """Return throughput and GPUs of each claim, and the solution's objective, bound, loss, envy and so on."""
        paths: list[str | None] = [self.answer.path for _ in self.names]
        programmes: list[int | None] = [self.answer.rounds for _ in self.names]
        bundles: list[int | None] = [self.answer.bundles or None for _ in self.names]
        envy, shortfall = _known(self.answer.envy), _known(self.answer.shortfall)
        return {
            "claim": _texts(self.names),
            "throughput": _numbers(self.throughput),
            "gpus": _numbers(self.gpus),
            "objective": _numbers([self.answer.objective] * len(self.names)),
            "bound": _numbers([self.answer.bound] * len(self.names)),
            "greatest_loss": _numbers([self.answer.gap] * len(self.names)),
            "envy": [envy] * len(self.names),
            "shortfall": [shortfall] * len(self.names),
            "bundles": bundles,
            "path": paths,
            "programmes": programmes,
        }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _texts(column: Iterable[str]) -> list[str | None]:
    return list(column)


def _numbers(column: Iterable[float]) -> list[float | None]:
    return list(column)
