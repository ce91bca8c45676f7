"""A head's process: the arbiter under its supervisor, and the keeper of the nodes as a thread beside it."""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import structlog

from eunomia.errors import EunomiaError
from eunomia.model.shapes import value
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.serve import checked
from eunomia_appmaster.node.engine_note import AskedNode, EngineNote
from eunomia_appmaster.node.process_logs import configure_logs
from eunomia_appmaster.node.process_name import name_process
from eunomia_appmaster.node.supervisor import Supervisor
from eunomia_engines.engine import Engine, EngineSilentError, NodeState, one_of_each
from eunomia_engines.head.arbiter import Arbiter, RecordedPilots
from eunomia_engines.head.files import DOWN, write_head
from eunomia_engines.head.names import HeadNames
from eunomia_engines.head.seats import Seat
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.keeper import LOOK_SECONDS, Keeper
from eunomia_engines.keeper.plan import Life, Times

log = structlog.get_logger()

MOST_WORDS: Final = 2000
"""Maximum number of characters of a reason that are kept."""
CHECK_SECONDS: Final = 0.5
LAST_SECONDS: Final = 180.0
"""Seconds for which a stopped head waits for the end of the nodes that it gives back."""
LAST_LOOK_SECONDS: Final = 3.0
SILENT_SECONDS: Final = 20.0
"""Seconds for which a head that gives back all nodes waits for an engine that does not answer."""


@value
class HeadParts:
    """The parts of a head.

    Attributes:
        engine: provides the nodes.
        demand: computes the number of nodes to have.
        times: periods of the keeper.
        look_seconds: seconds between two queries of the engine.
        close: closes the engine's resources.
        end_alone: ends nodes without an engine that does not answer; returns whether all have ended; None: impossible.
        gives_back: whether a stopped head always gives back all nodes; else only after ``down``.
        serves: called with the arbiter's address and policy once the arbiter serves.
    """

    engine: Engine
    demand: Demand
    times: Times
    look_seconds: float = LOOK_SECONDS
    close: Callable[[], None] = lambda: None
    end_alone: Callable[[], bool] | None = None
    gives_back: bool = False
    serves: Callable[[str, str], None] = lambda *_: None


class MakeParts(Protocol):
    """Function that creates the parts of a state folder's head."""

    def __call__(self, state: Path) -> HeadParts:
        """Return the parts; raises ``InputError`` if the request is invalid."""


def run_head(names: HeadNames, make: MakeParts, state: Path, seat: Callable[[], Seat] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; exit code 2 for bad input.

    Args:
        names: names of the engine.
        make: creates the parts.
        state: the arbiter's state folder.
        seat: creates the head's seat (where it runs); None: this machine, on which ``up`` was called.
    """
    name_process(f"{names.engine} head")
    configure_logs(level="info")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        own = Seat(state / names.folder, state) if seat is None else seat()
        serve(names, make(state), own, stopped)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def serve(names: HeadNames, parts: HeadParts, seat: Seat, stopped: threading.Event) -> None:
    """Run the arbiter and the keeper until stopped, or until another head replaces this one.

    Raises:
        InputError: a setting is invalid, or another arbiter serves the state folder.
    """
    folder, state = seat.folder, seat.state
    if not seat.wait(stopped):
        return
    serving = checked(seat.flags())
    with (
        Supervisor(state, serving, stop_asked=stopped.is_set) as supervisor,
        Client(supervisor.address, token_file=supervisor.token_file) as client,
    ):
        write_head(folder, client, seat.address(serving, supervisor.address), **seat.record)
        keeper = Keeper(
            parts.engine,
            Arbiter(client),
            RecordedPilots(folder),
            parts.demand,
            parts.times,
            heard=lambda lives: note_asked(names, state, lives),
        )
        thread = threading.Thread(target=keeper.run, args=(stopped, parts.look_seconds), daemon=True)
        thread.start()
        parts.serves(supervisor.address, serving.policy)
        try:
            while not stopped.wait(CHECK_SECONDS):
                if seat.is_taken():
                    stopped.set()
                    supervisor.end_now()
                    return
                supervisor.check()
                if not thread.is_alive():
                    raise EunomiaError("the keeper of the nodes must run; its error stands above")
            thread.join(60.0)
            if parts.gives_back or (folder / DOWN).exists():
                give_all_back(parts.engine, parts.end_alone)
        finally:
            parts.close()


def note_asked(names: HeadNames, state: Path, lives: Sequence[Life]) -> None:
    """Write, for commands on this machine, a state folder's engine and the requested nodes that still wait."""
    waiting = [life.node for life in lives if life.node is not None and life.node.state is NodeState.ASKED]
    counts = Counter(node.unit for node in waiting)
    asked = tuple(
        AskedNode(id=node.unit, why=node.why[:MOST_WORDS], nodes=counts[node.unit]) for node in one_of_each(waiting)
    )
    note = EngineNote(engine=names.engine, up=names.up, down=names.down, at=time.time(), unit=names.unit, asked=asked)
    note.save(state)


def give_all_back(engine: Engine, end_alone: Callable[[], bool] | None = None) -> None:
    """End all nodes, and wait up to ``LAST_SECONDS`` until the engine lists them as ended, while the arbiter serves.

    Args:
        engine: provides the nodes.
        end_alone: as in ``HeadParts``.
    """
    began, ordered, silent_since = time.monotonic(), set[str](), None
    while time.monotonic() < began + LAST_SECONDS:
        try:
            left = one_of_each(node for node in engine.nodes() if node.state is not NodeState.ENDED)
            for node in left:
                engine.give_back(node.id)
                ordered.add(node.unit)
            silent_since = None
            if not left:
                return
        except EngineSilentError as error:
            log.warning("keeper.waits", why=str(error))
            silent_since = silent_since or time.monotonic()
            if end_alone is not None and time.monotonic() > silent_since + SILENT_SECONDS and end_alone():
                return
        except EunomiaError as error:
            log.warning("keeper.waits", why=str(error))
        time.sleep(LAST_LOOK_SECONDS)
    log.warning("nodes.left", nodes=sorted(ordered))
