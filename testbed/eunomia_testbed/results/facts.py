"""The facts of a run beyond its tables, such as command, inputs and machine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from eunomia.model.shapes import value
from eunomia_testbed.evidence.draws import NO_DRAWS, Draws, draws_of_seeds
from eunomia_testbed.results.assumptions import SpeedAssumption

SCHEMA = "eunomia/run@1"


@value
class InputFile:
    """An input file of a run, with the SHA-256 of its content."""

    path: str
    sha256: str


@value
class FailedRun:
    """A failed run of a policy and seed, which has no rows in the tables."""

    policy: str
    seed: int
    """The seed; for a resample, its number."""
    error: str
    resampled: bool = False

    @property
    def run(self) -> str:
        """Return the run's policy and seed as text, such as ``las, seed 0``."""
        return f"{self.policy}, {'resample' if self.resampled else 'seed'} {self.seed}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The content of ``run.json``.

    ``profiles`` maps a policy's name to its resolved profile in TOML, with every default written out; ``cluster`` is
    also TOML. ``clock`` is ``wall`` or ``virtual``. ``ended`` is ``finished``, ``interrupted`` or ``failed``; None
    while the run continues. ``failures`` lists the policies and seeds that failed. Times are UTC, ISO 8601 with a Z. A
    field that does not apply is empty.
    """

    kind: str  # demo, simulate, replay, ...
    command: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    draws: Draws = NO_DRAWS  # the kind and number of a policy's independent draws, which determine its intervals
    profiles: dict[str, str] = dataclasses.field(default_factory=dict)
    cluster: str = ""
    machine: str = ""  # as text, in the form of `local:`
    slots: int | None = None
    slot_changes: tuple[tuple[float, int], ...] = ()
    """Changes of the cluster: time in seconds, and number of slots added (or removed, if negative)."""
    clock: str = "wall"
    rho: str = "themis"  # the kind of rho that measures fairness: one of metrics.fairness.KINDS
    unfair_above: float = 1.05  # rho above which an app counts as treated unfairly
    loads: dict[str, float] = dataclasses.field(default_factory=dict)  # by policy label: factor on the arrival rate
    costs_given: bool | None = None  # of a simulation: whether starts, saves, restores or moves were given a time
    resizes_free: bool = False  # of a simulation: whether such changes take time, but growing and shrinking do not
    assumptions: tuple[SpeedAssumption, ...] = ()  # of a simulation: assumptions on speeds that were not given
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a simulation: all fields that are not default
    notes: tuple[str, ...] = ()  # sentences on changes by the reader and on omissions
    inputs: tuple[InputFile, ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    started_at: str | None = None
    ended_at: str | None = None
    ended: str | None = None
    failures: tuple[FailedRun, ...] = ()

    def to_json(self) -> str:
        """Return one indented JSON object, with its keys in the order of the fields."""
        plain = dataclasses.asdict(self) | {"draws": self.draws.to_plain()}
        return json.dumps({"schema": SCHEMA} | plain, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the facts from the text of ``to_json``; unknown keys are ignored."""
        found = json.loads(text)
        known = {field.name: found[field.name] for field in dataclasses.fields(cls) if field.name in found}
        known["command"] = tuple(known["command"])
        known["seeds"] = tuple(known.get("seeds", (0,)))
        known["draws"] = _draws(found.get("draws"), known["seeds"])
        known["slot_changes"] = tuple(map(tuple, known.get("slot_changes", ())))
        known["notes"] = tuple(known.get("notes", ()))
        known["inputs"] = tuple(InputFile(**each) for each in known.get("inputs", ()))
        known["assumptions"] = tuple(SpeedAssumption.from_mapping(each) for each in known.get("assumptions", ()))
        known["failures"] = tuple(FailedRun(**each) for each in known.get("failures", ()))
        return cls(**known)


def _draws(given: dict[str, Any] | None, seeds: tuple[int, ...]) -> Draws:
    """Return the stored draws; for runs of earlier versions, which stored no draws, those of the seeds."""
    if given is not None:
        return Draws.from_plain(given)
    return draws_of_seeds(len(seeds))


def sha256_of(path: Path) -> InputFile:
    """Return a file's path with the SHA-256 of its content."""
    with path.open("rb") as stream:
        return InputFile(path=str(path), sha256=hashlib.file_digest(stream, "sha256").hexdigest())


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python, the system and the packages; packages that are not installed are skipped."""
    found = {"python": sys.version.split()[0], "system": f"{platform.system()} {platform.release()}"}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
