"""The settings of a worker from environment variables, read once at its start."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from eunomia.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables of a worker; missing ones have the defaults of an ordinary script."""

    run_dir: Path | None = None
    container_dir: Path | None = None
    attempt: int | None = None
    """Number of the app master's attempt that started this incarnation."""
    incarnation: int | None = None
    checkpoint: str | None = None
    """Name of the checkpoint from which the job resumes, as read by its app master."""
    seed: int | None = None
    max_iterations: int | None = None
    stop_at: int | None = None
    checkpoint_every_seconds: float | None = None
    micro_batch_size: int | None = None
    metric: str | None = None
    """TensorBoard tag of the tuner's metric, whose best checkpoint is kept."""
    metric_mode: str = "max"
    trust_checkpoints: bool = False
    """Whether checkpoints may contain objects of any class, whose unpickling can run code."""
    params: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    threads: int | None = None
    peers_seconds: float | None = None
    """Longest time in seconds for which an operation of the gang waits for a peer, such as a rank 0 that saves; None:
    torch's own timeout."""
    live: bool = False
    """Whether the job's gang grows and shrinks without a restart (``elastic = "live"``)."""
    container_id: str = ""
    store: str = ""
    """Address of the job's store, as ``host:port``; empty unless the job is live."""
    generation: int = 0
    """Number of the generation with which this worker starts."""
    members: tuple[str, ...] = ()
    """Ids of that generation's containers, in order of rank."""

    @property
    def attached(self) -> bool:
        """Whether an app master started this process."""
        return self.run_dir is not None

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> "Environment":
        """Read the variables of a worker.

        Raises:
            InputError: a variable has an invalid value; the error names it.
        """
        reader = _Reader(variables)
        return cls(
            run_dir=reader.get("EUNOMIA_RUN_DIR", Path, "a folder"),
            container_dir=reader.get("EUNOMIA_CONTAINER_DIR", Path, "a folder"),
            attempt=reader.get("EUNOMIA_ATTEMPT", int, "a whole number"),
            incarnation=reader.get("EUNOMIA_INCARNATION", int, "a whole number"),
            checkpoint=reader.get("EUNOMIA_CHECKPOINT", str, "the name of a checkpoint"),
            seed=reader.get("EUNOMIA_SEED", int, "a whole number"),
            max_iterations=reader.get("EUNOMIA_MAX_ITERATIONS", int, "a whole number"),
            stop_at=reader.get("EUNOMIA_STOP_AT", int, "a whole number"),
            checkpoint_every_seconds=reader.get("EUNOMIA_CHECKPOINT_EVERY_SECONDS", float, "a number of seconds"),
            micro_batch_size=reader.get("EUNOMIA_MICRO_BATCH_SIZE", _positive, "a positive whole number"),
            metric=reader.get("EUNOMIA_METRIC", str, "a tag"),
            metric_mode=reader.get("EUNOMIA_METRIC_MODE", _mode, '"max" or "min"') or "max",
            trust_checkpoints=bool(reader.get("EUNOMIA_TRUST_CHECKPOINTS", _truth, "1 or 0")),
            params=reader.get("EUNOMIA_PARAMS", _json_object, "a JSON object") or {},
            rank=reader.get("RANK", int, "a whole number") or 0,
            local_rank=reader.get("LOCAL_RANK", int, "a whole number") or 0,
            world_size=reader.get("WORLD_SIZE", int, "a whole number") or 1,
            threads=reader.get("OMP_NUM_THREADS", _positive, "a positive whole number"),
            peers_seconds=reader.get("EUNOMIA_PEERS_SECONDS", _seconds, "seconds above 0"),
            live=reader.get("EUNOMIA_ELASTIC", _mode_of_change, '"live" or "restart"') == "live",
            container_id=(reader.get("EUNOMIA_CONTAINER_ID", str, "an id") or "").partition("@")[0],
            store=reader.get("EUNOMIA_STORE", str, "host:port") or "",
            generation=reader.get("EUNOMIA_GENERATION", int, "a whole number") or 0,
            members=reader.get("EUNOMIA_MEMBERS", _members, "a JSON list of ids") or (),
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    variables: Mapping[str, str]

    def get(self, name: str, parse: Callable[[str], T], rule: str) -> T | None:
        text = self.variables.get(name, "")
        if not text:
            return None
        try:
            return parse(text)
        except ValueError:
            raise InputError(f"{name} must be {rule}", value=repr(text), place="environment") from None


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


def _truth(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _mode(text: str) -> str:
    if text not in ("max", "min"):
        raise ValueError(text)
    return text


def _mode_of_change(text: str) -> str:
    if text not in ("live", "restart"):
        raise ValueError(text)
    return text


def _members(text: str) -> tuple[str, ...]:
    members = json.loads(text)
    if not isinstance(members, list) or not members or not all(isinstance(each, str) for each in members):
        raise ValueError(text)
    return tuple(members)


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value
