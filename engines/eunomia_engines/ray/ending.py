"""The end of an arbiter on a Ray cluster: its launchers in order, then their actors, then the head."""

import time
from pathlib import Path
from typing import Final

from eunomia.errors import EunomiaError
from eunomia_appmaster.node.engine_note import drop_note
from eunomia_engines.engine import EngineSilentError, NodeState
from eunomia_engines.head.head import give_all_back
from eunomia_engines.head.starting import end_head
from eunomia_engines.pilots.records import pilots
from eunomia_engines.ray.engine import RayEngine
from eunomia_engines.ray.head import NAMES
from eunomia_engines.ray.request import FOLDER

LAST_SECONDS: Final = 60.0
"""Seconds in which launchers that the arbiter has removed must end."""


def end_all(state: Path, engine: RayEngine, *, now: bool) -> None:
    """End all nodes and the head.

    Where Ray does not answer, the arbiter removes its nodes before it ends, and their launchers end by that.

    Raises:
        EunomiaError: the head or an actor does not end, or Ray does not answer and launchers may live.
    """
    try:
        end_head(NAMES, state, now=now)
        _end_actors(state, engine)
    finally:
        engine.close()
    drop_note(state)


def _end_actors(state: Path, engine: RayEngine) -> None:
    try:
        engine.nodes()
        give_all_back(engine)
        left = [node.id for node in engine.nodes() if node.state is not NodeState.ENDED]
    except EngineSilentError as error:
        if alive := _alive(state):
            rule = f"Ray must answer, so that the launchers of {', '.join(alive)} can end (SIGTERM ends one by hand)"
            raise EunomiaError(rule, value=str(error)) from None
        return
    if left:
        raise EunomiaError("actors of Ray must end once their launchers have", value=", ".join(left))


def _alive(state: Path) -> list[str]:
    """Return the nodes whose last launcher has not ended by any word, after up to a minute in which it may."""
    deadline = time.monotonic() + LAST_SECONDS
    while True:
        last = {one.node: one for one in sorted(pilots(state / FOLDER).values(), key=lambda one: one.began_at)}
        alive = sorted(node for node, pilot in last.items() if pilot.ended is None)
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(1.0)
