"""Functions with which commands and scripts start, await, show and end a head."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from eunomia.errors import EunomiaError, InputError, UnreachableError
from eunomia_appmaster.client import Client
from eunomia_appmaster.launcher.processes import identify
from eunomia_appmaster.node.engine_note import read_note
from eunomia_appmaster.node.writable import check_writable
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.head.files import DOWN, LOG, head_process
from eunomia_engines.head.head import LAST_SECONDS
from eunomia_engines.head.names import HeadNames
from eunomia_engines.pilots.records import CLEAN, Pilot

START_SECONDS: Final = 120.0
"""Seconds within which a started head must serve."""
END_SECONDS: Final = 120.0
"""Seconds within which a head must end after the order, in addition to the time for its nodes."""
POLL_SECONDS: Final = 0.5


def check_may_begin(names: HeadNames, state: Path) -> None:
    """Check that a head may start in a state folder, and create the engine's folder there.

    Raises:
        InputError: a head runs, another engine provides the folder's nodes, or the folder is not writable.
    """
    if (pid := head_process(state / names.folder)) is not None:
        rule = f"a state folder must have one head: {names.down} ends it, and up begins with other options"
        raise InputError(rule, value=f"pid {pid}", place=str(state))
    note = read_note(state)
    if note is not None and note.engine != names.engine:
        rule = f"a state folder whose nodes {note.engine} gives must be served by others after `{note.down}`"
        raise InputError(rule, value=names.up, place=str(state))
    check_writable(state)
    (state / names.folder).mkdir(parents=True, exist_ok=True, mode=0o700)


def start_head(names: HeadNames, state: Path) -> None:
    """Start the head as a separate process, which outlives this one, and wait until it serves.

    Raises:
        InputError: the head has ended; the error's value is the last line of its log.
        EunomiaError: the head does not serve within two minutes.
    """
    folder = state / names.folder
    log = folder / LOG
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", f"eunomia_engines.{names.engine}.head", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )

    def serves() -> bool:
        if process.poll() is not None:
            raise InputError("the head must serve", value=last_line(log), place=str(log))
        return head_process(folder) == process.pid

    await_head(names, state, serves, "the head serves")


def await_head(names: HeadNames, state: Path, done: Callable[[], bool], what: str) -> None:
    """Wait until ``done`` returns True, which a head brings about; ``what`` names the condition in errors.

    Raises:
        EunomiaError: the condition does not hold within two minutes.
    """
    _wait(done, START_SECONDS, f"{what} ({state / names.folder / LOG} says more)", POLL_SECONDS)


def end_head(names: HeadNames, state: Path, *, now: bool) -> None:
    """End the head, if one runs here; unless ``now`` is set, all its nodes end first.

    Raises:
        EunomiaError: the head does not end in time.
    """
    folder = state / names.folder
    order, pid = folder / DOWN, head_process(folder)
    if not now:
        order.touch(mode=0o600)
    try:
        if pid is not None and (process := identify(pid)) is not None:
            process.signal(signal.SIGTERM)
            seconds = END_SECONDS + (0.0 if now else LAST_SECONDS)
            _wait(lambda: not process.alive, seconds, f"the head (pid {pid}) ends", POLL_SECONDS)
    finally:
        order.unlink(missing_ok=True)


def head_line(names: HeadNames, state: Path) -> str:
    """Return a line of text on whether the head runs here."""
    pid = head_process(state / names.folder)
    if pid is not None:
        return f"head      running here   (pid {pid})"
    return (
        f"no head runs on this machine: what runs on the nodes ends within a lease (90 s), unless {names.up} with the "
        "same options takes them up"
    )


def members_of(state: Path) -> dict[str, pb.NodeView]:
    """Return the arbiter's nodes by name; empty: the arbiter does not answer, or has no nodes yet."""
    try:
        with Client(state_dir=state, timeout_seconds=10.0) as client:
            return {node.node: node for node in client.nodes()}
    except (UnreachableError, InputError):
        return {}


def has_failed(node: EngineNode, pilot: Pilot | None) -> bool:
    """Return whether a node that had started ended with a failure, or its launcher did while its group goes on."""
    if node.state is NodeState.ENDS:
        return pilot is not None and pilot.ended not in (None, CLEAN)
    return node.state is NodeState.ENDED and node.began_at is not None and (pilot is None or pilot.ended != CLEAN)


def node_facts(node: EngineNode, pilot: Pilot | None, members: Mapping[str, pb.NodeView]) -> dict[str, Any]:
    """Return a node's facts from engine, records and arbiter, as a JSON object without the engine's id."""
    name = None if pilot is None else pilot.node
    member = members.get(name or "")
    return {
        "engine_state": node.state.value,
        "why": node.why,
        "host": node.host or None,
        "node": name,
        "node_state": None if member is None else member.state,
        "slots": {} if member is None else dict(member.slots),
        "ends_at": node.ends_at,
        "launcher_exit_code": None if pilot is None else pilot.ended,
    }


def last_line(log: Path) -> str:
    """Return the last line of a log, at most 500 characters, or a text about an empty log."""
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1][:500] if lines else "nothing in its log"


def _wait(done: Callable[[], bool], seconds: float, what: str, pause_seconds: float) -> None:
    """Wait until ``done`` returns True.

    Raises:
        EunomiaError: ``done`` does not return True within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise EunomiaError(f"within {seconds:g} s, this must be true: {what}")
        time.sleep(pause_seconds)
