"""Orders to, and messages from, workers of a job that changes its size live, on their container's socket."""

from collections.abc import Mapping
from typing import Any, Final

from eunomia_appmaster.launcher.errors import InputError
from eunomia_appmaster.protocol import launcher_pb2 as pb

MOST_GENERATION: Final = 1_000_000_000
"""Highest number of a generation that is accepted."""
MOST_WHY: Final = 400
"""Maximum characters of a reason in a worker's message; longer reasons are truncated."""
MOST_SECONDS: Final = 1e9
SAID: Final = ("ready", "resized", "leaving", "broken", "unfit", "store_lost")
"""Kinds of messages of such a worker."""


def order_of(request: pb.OrderContainersRequest) -> dict[str, Any]:
    """Return a request's order in the form in which workers read it.

    Raises:
        InputError: the order is malformed.
    """
    kind, stop_at, change = request.WhichOneof("order"), request.stop_at, request.change
    if kind == "checkpoint":
        return {"order": "checkpoint"}
    if kind == "stop_at":
        return {"order": "stop_at", **({"step": stop_at.step} if stop_at.HasField("step") else {})}
    if not 1 <= change.generation <= MOST_GENERATION or not change.members:
        rule = f"a change must have a generation from 1 to {MOST_GENERATION}, and members"
        raise InputError(rule, value=f"generation {change.generation}, {len(change.members)} members")
    return {
        "change": {
            "generation": change.generation,
            "members": list(change.members),
            "timeout_seconds": change.timeout_seconds,
            "lost": list(change.lost),
        }
    }


def hear(live: pb.LiveStatus, kind: str, content: Mapping[str, Any]) -> None:
    """Store a worker's message in its container's status.

    Args:
        live: part of the container's status.
        kind: one of ``SAID``.
        content: content of the message.

    Raises:
        KeyError, TypeError, ValueError: the message is malformed; nothing is stored.
    """
    generation = _whole(content["generation"])
    if kind == "ready":
        live.ready = generation
    elif kind == "leaving":
        live.leaving = generation
    elif kind == "broken":
        live.broken = generation
    elif kind == "store_lost":
        live.store_lost = True
    elif kind == "unfit":
        live.unfit = str(content.get("why") or "it does not say why")[:MOST_WHY]
    else:
        made = pb.Resized(
            generation=generation,
            size=_whole(content["size"]),
            step=_whole(content["step"], 10**15),
            join_seconds=_seconds(content["join_seconds"]),
            pause_seconds=_seconds(content["pause_seconds"]),
            at=_seconds(content["at"], 1e12),
            at_least=bool(content.get("at_least")),
        )
        live.resized.CopyFrom(made)


def _whole(given: Any, most: int = MOST_GENERATION) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise ValueError(f"a number must be whole, from 0 to {most}")
    return given


def _seconds(given: Any, most: float = MOST_SECONDS) -> float:
    seconds = float(given)
    if not 0.0 <= seconds <= most:  # NaN is not, either
        raise ValueError(f"seconds must be from 0 to {most:g}")
    return seconds
