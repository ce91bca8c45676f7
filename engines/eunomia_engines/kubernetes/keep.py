"""The keeper of a cluster on Kubernetes, as a process beside its arbiter."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from eunomia.errors import InputError, UnreachableError
from eunomia_appmaster.client import Client
from eunomia_appmaster.node.engine_note import AskedNode, EngineNote
from eunomia_engines.engine import Engine, EngineSilentError, NodeState
from eunomia_engines.head.arbiter import Arbiter, RecordedPilots
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.keeper import LOOK_SECONDS, Keeper
from eunomia_engines.keeper.plan import Life, Member, Times
from eunomia_engines.kubernetes.api import KubeApi, KubeError, connect
from eunomia_engines.kubernetes.engine import KubernetesEngine, lacking_rights
from eunomia_engines.kubernetes.keep_request import FOLDER, KeepRequest
from eunomia_engines.kubernetes.watching import Alarm

log = structlog.get_logger()

LOCK: Final = "keep.lock"
UP: Final = "eunomia kubernetes keep"
DOWN: Final = "kubectl delete"
MARGIN_SECONDS: Final = 60.0
"""Seconds, in addition to a node's time from SIGTERM to SIGKILL, between its last lease and its known end."""
ARBITER_SECONDS: Final = 5.0
"""Seconds between two attempts to reach the arbiter, which starts at the same time as the keeper."""
MOST_WORDS: Final = 2000


def keep(
    request: KeepRequest,
    state: Path,
    records: Path,
    stopped: threading.Event,
    *,
    client: Callable[[], Any] = connect,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Keep the number of nodes within the request's bounds, until stopped; nodes stay when the keeper ends.

    Args:
        request: the request of the manifest.
        state: the arbiter's state folder.
        records: folder with the records of pilots, which all nodes see.
        stopped: set to end the keeper.
        client: returns a client of Kubernetes.
        look_seconds: seconds between two looks without events.

    Raises:
        InputError: another keeper runs, there is no client or configuration, or a right is missing.
    """
    api = KubeApi(client(), request.namespace, request.keeper)
    check_rights(api)
    with only_one(state):
        request.save(state)
        alarm = Alarm(api, stopped)
        with _arbiter(state, stopped) as arbiter:
            if arbiter is None:
                return
            engine = KubernetesEngine(request, state, api)
            keeper = Keeper(
                engine,
                arbiter,
                JobPilots(records, arbiter.members),
                Demand(request.least, request.most, request.wait_seconds),
                Times(
                    drain=request.end_seconds + 2.0 * MARGIN_SECONDS,
                    margin=request.end_seconds + MARGIN_SECONDS,
                    idle=request.idle_seconds,
                ),
                heard=lambda lives: note_asked(state, lives, engine.names),
            )
            alarm.start()
            keeper.run(stopped, look_seconds, alarm.pause)


class JobPilots(RecordedPilots):
    """The records of pilots in Jobs, whose names are never reused.

    So a record is deleted once neither Kubernetes nor the arbiter lists the node.

    Args:
        folder: folder with the records.
        members: returns the arbiter's nodes by name, as of this look.
    """

    def __init__(self, folder: Path, members: Callable[[], Mapping[str, Member]]) -> None:
        super().__init__(folder)
        self._members = members

    def lives(self, engine: Engine) -> Sequence[Life]:
        """Return all nodes that Kubernetes or the arbiter lists, in the order of their starts."""
        found, members = super().lives(engine), self._members()
        for life in found:
            if life.node is None and life.name not in members:
                self.forget(life.id)
        return [life for life in found if life.node is not None or life.name in members]


def check_rights(api: KubeApi) -> None:
    """Check that this account has a keeper's rights; passes if the server does not answer, which is logged.

    Raises:
        InputError: a right is missing, or the server refuses the query, with Kubernetes' message.
    """
    try:
        lacking = lacking_rights(api)
    except KubeError as error:
        rule = "Kubernetes must say what this account may do"
        raise InputError(rule, value=error.words, place=f"namespace {api.namespace}") from error
    except EngineSilentError as error:
        log.warning("keeper.waits", why=str(error))
        return
    if lacking:
        rule = f"a keeper must have the right to {', '.join(lacking)}: the Role of the manifest gives it"
        raise InputError(rule, value="no such right", place=f"namespace {api.namespace}")


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the lock of the keeper of a state folder.

    Raises:
        InputError: another process holds it.
    """
    (state / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(state / FOLDER / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "a state folder must have one keeper", value="another is at work", place=str(state)
            ) from None
        yield
    finally:
        os.close(lock)


def note_asked(state: Path, lives: Sequence[Life], names: Mapping[str, str]) -> None:
    """Write the nodes that wait at Kubernetes to the state folder, for `eunomia nodes`.

    Args:
        state: the arbiter's state folder.
        lives: all nodes.
        names: names of the nodes' Jobs, by uid.
    """
    waiting = [life.node for life in lives if life.node is not None and life.node.state is NodeState.ASKED]
    asked = tuple(AskedNode(id=names.get(node.id, node.id), why=node.why[:MOST_WORDS]) for node in waiting)
    EngineNote(engine="kubernetes", up=UP, down=DOWN, at=time.time(), asked=asked, is_beside=True).save(state)


@contextmanager
def _arbiter(state: Path, stopped: threading.Event) -> Iterator[Arbiter | None]:
    """Wait for the arbiter of a state folder, and connect with the operator's token; None: stopped before that."""
    while not stopped.is_set():
        try:
            client = Client(state_dir=state)
        except UnreachableError as error:
            log.info("keeper.waits", why=str(error))
            stopped.wait(ARBITER_SECONDS)
            continue
        with client:
            yield Arbiter(client)
        return
    yield None
