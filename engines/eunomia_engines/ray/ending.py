"""Ends an arbiter on a Ray cluster: first the launchers, gracefully, then their actors, then the head."""

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
from eunomia_engines.ray.request import ENDS, FOLDER, NAMES

LAST_SECONDS: Final = 60.0
"""Seconds after the head's end within which launchers must end that were ordered to end without Ray."""


def end_all(state: Path, engine: RayEngine, *, now: bool) -> None:
    """End all nodes and the head.

    If Ray does not answer, a file in the state folder, which the pilots poll, orders the launchers to end.

    Raises:
        EunomiaError: the head or an actor does not end, or Ray does not answer and launchers may still run.
    """
    try:
        end_head(NAMES, state, now=now)
        _end_actors(state, engine)
        (state / FOLDER / ENDS).unlink(missing_ok=True)
    finally:
        engine.close()
    drop_note(state)


def _end_actors(state: Path, engine: RayEngine) -> None:
    try:
        engine.nodes()
        give_all_back(engine)
        left = [node.id for node in engine.nodes() if node.state is not NodeState.ENDED]
    except EngineSilentError as error:
        deadline = time.monotonic() + LAST_SECONDS
        while not end_alone(state):
            if time.monotonic() > deadline:
                rule = f"Ray must answer, so that the launchers of {', '.join(_alive(state))} can end"
                raise EunomiaError(rule, value=str(error)) from None
            time.sleep(1.0)
        return
    if left:
        raise EunomiaError("actors of Ray must end once their launchers have", value=", ".join(left))


def end_alone(state: Path) -> bool:
    """Order all launchers to end without Ray; returns whether the pilots have recorded the end of each one."""
    (state / FOLDER / ENDS).touch(mode=0o600)
    return not _alive(state)


def _alive(state: Path) -> list[str]:
    """Return the nodes whose last launcher has no recorded end."""
    last = {one.node: one for one in sorted(pilots(state / FOLDER).values(), key=lambda one: one.began_at)}
    return sorted(node for node, pilot in last.items() if pilot.ended is None)
