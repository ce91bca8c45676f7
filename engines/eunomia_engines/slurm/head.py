"""``python -m eunomia_engines.slurm.head STATE``: the arbiter of a cluster on Slurm, and the keeper of its nodes."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.serve import checked
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.processes import identify
from eunomia_appmaster.node.engine_note import AskedNode, EngineNote
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.node.process_name import name_process
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_engines.engine import Engine, NodeState
from eunomia_engines.keeper.demand import AppNeed, Demand
from eunomia_engines.keeper.keeper import LOOK_SECONDS, Keeper
from eunomia_engines.keeper.plan import Life, Member, Times
from eunomia_engines.slurm.engine import SlurmEngine
from eunomia_engines.slurm.pilot import HEAD, TOKEN
from eunomia_engines.slurm.pilots import CLEAN, drop_pilot, end_of, pilots
from eunomia_engines.slurm.request import FOLDER, Request

log = structlog.get_logger()

SERVING: Final = "serving.json"
"""File below the engine's folder with the flags of the arbiter."""
TOKEN_DAYS: Final = 365.0
DOWN: Final = "down"
"""File below the engine's folder: the head, when it is ended, first gives back all nodes."""
UP: Final = "eunomia slurm up"
DOWN_COMMAND: Final = "eunomia slurm down"
MOST_WORDS: Final = 2000
"""Signs of a reason that are kept."""
CHECK_SECONDS: Final = 0.5
LAST_SECONDS: Final = 180.0
"""Seconds in which nodes that are given back must end, before the head ends without them."""
LAST_LOOK_SECONDS: Final = 3.0


class Arbiter:
    """The arbiter, through a client with the operator's token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def members(self) -> Mapping[str, Member]:
        """Return the arbiter's nodes by name."""
        return {
            node.node: Member(state=node.state, held=node.held, leaves=node.leaves, slots=sum(node.slots.values()))
            for node in self._client.nodes()
        }

    def needs(self) -> Sequence[AppNeed]:
        """Return what live apps could use and hold, in slots."""
        apps = [app for app in self._client.list().apps if app.state not in OVER]
        return [AppNeed(usable=app.max_slots, held=app.slots) for app in apps]

    def drain(self, name: str, why: str, within: float) -> None:
        """Drain a node: its leases end within so many seconds."""
        self._client.drain_node(name, why, within_seconds=within)

    def remove(self, name: str, why: str, *, is_off: bool) -> None:
        """Remove a node once it is empty; ``is_off``: at once, since its processes are known to have ended."""
        self._client.remove_node(name, why, is_off=is_off)


class SlurmPilots:
    """Batch jobs with the nodes that they became, from the records in the state folder."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def lives(self, engine: Engine) -> Sequence[Life]:
        """Return all jobs that Slurm lists or whose records are there, in the order of their begins."""
        listed = {node.id: node for node in engine.nodes()}
        begun = pilots(self._state)
        found = [
            Life(
                id=job,
                node=listed.get(job),
                name=begun[job].node if job in begun else "",
                is_clean=end_of(self._state, job) == CLEAN,
            )
            for job in {**listed, **begun}
        ]
        return sorted(found, key=lambda life: begun[life.id].began_at if life.id in begun else float("inf"))

    def forget(self, life: str) -> None:
        """Drop the records of a job that is over."""
        drop_pilot(self._state, life)


def times_of(request: Request) -> Times:
    """Return the keeper's periods."""
    return Times(drain=request.drain_seconds, margin=float(request.signal_seconds), idle=request.idle_seconds)


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit code 2 for bad input."""
    state = Path(sys.argv[1])
    name_process("slurm head")
    configure_logs(level="info")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        serve(state, stopped)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def serve(state: Path, stopped: threading.Event, *, look_seconds: float = LOOK_SECONDS) -> None:
    """Run the arbiter and the keeper until stopped.

    Raises:
        InputError: the request or a setting is invalid, or another arbiter serves the state folder.
    """
    request = Request.load(state)
    serving = checked(serve_flags(state))
    with Supervisor(state, serving, stop_asked=stopped.is_set) as supervisor:
        host = "" if serving.certificates is None else serving.certificates.called_from_elsewhere("0.0.0.0")
        address = f"{host}:{supervisor.address.rpartition(':')[2]}"
        with Client(supervisor.address, token_file=supervisor.token_file) as client:
            write_head(state, client, address)
            engine = SlurmEngine(request, state)
            keeper = Keeper(
                engine,
                Arbiter(client),
                SlurmPilots(state),
                Demand(request.least, request.most, request.wait_seconds),
                times_of(request),
                heard=lambda lives: note_asked(state, lives),
            )
            thread = threading.Thread(target=keeper.run, args=(stopped, look_seconds), daemon=True)
            thread.start()
            while not stopped.wait(CHECK_SECONDS):
                supervisor.check()
                if not thread.is_alive():
                    raise EunomiaError("the keeper of the nodes must run; its error stands above")
            thread.join(60.0)
            if (state / FOLDER / DOWN).exists():
                give_all_back(engine)


def note_asked(state: Path, lives: Sequence[Life]) -> None:
    """Note for commands on this machine that Slurm gives the nodes of a state folder, and which of them it owes."""
    waiting = [life.node for life in lives if life.node is not None and life.node.state is NodeState.ASKED]
    asked = tuple(AskedNode(id=node.id, why=node.why[:MOST_WORDS]) for node in waiting)
    EngineNote(engine="slurm", up=UP, down=DOWN_COMMAND, at=time.time(), asked=asked).save(state)


def give_all_back(engine: Engine) -> None:
    """End all nodes, and wait until the engine calls them ended: meanwhile the arbiter hears of what they saved."""
    deadline, ordered = time.monotonic() + LAST_SECONDS, set[str]()
    while time.monotonic() < deadline:
        try:
            left = [node.id for node in engine.nodes() if node.state is not NodeState.ENDED]
            for node in left:
                engine.give_back(node)
                ordered.add(node)
        except EunomiaError as error:
            log.warning("keeper.waits", why=str(error))
        else:
            if not left:
                return
        time.sleep(LAST_LOOK_SECONDS)
    log.warning("nodes.left", nodes=sorted(ordered))


def write_head(state: Path, client: Client, address: str) -> None:
    """Write the join token and then the address for the nodes; the token of the head before ends."""
    folder = state / FOLDER
    if (before := _head(state).get("token")) is not None:
        client.revoke_join_token(int(before))
    made = client.make_join_token(ends_in_seconds=TOKEN_DAYS * 86400.0, reusable=True)
    write_private(folder / TOKEN, made.text.encode(), sync=True)
    own = identify(os.getpid())
    start_time = None if own is None else own.start_time
    record = {"address": address, "pid": os.getpid(), "start_time": start_time, "token": made.token.number}
    write_private(folder / HEAD, json.dumps(record).encode(), sync=True)


def serve_flags(state: Path) -> ServeFlags:
    """Return the flags of the arbiter: those that ``up`` was given, and where it named no port that of its last start.

    Raises:
        InputError: the file with the flags is missing or damaged.
    """
    path = state / FOLDER / SERVING
    try:
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError("the arbiter's flags must be readable", value=str(error)[:200], place=str(path)) from None
    port = given.pop("port", None) or str(_head(state).get("address", ":0")).rpartition(":")[2]
    return ServeFlags(**given, no_launcher=True, address=f"0.0.0.0:{port}", make_certificates=True, state_dir=state)


def head_process(state: Path) -> int | None:
    """Return the pid of the head that serves a state folder from this machine; None: none does."""
    record = _head(state)
    found = identify(int(record.get("pid", 0)))
    return found.pid if found is not None and found.start_time == record.get("start_time") else None


def _head(state: Path) -> dict[str, Any]:
    """Return the record of the last head; empty: there was none, or it is damaged."""
    try:
        found = json.loads((state / FOLDER / HEAD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    main()
