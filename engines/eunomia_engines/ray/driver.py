"""Calls to a Ray cluster through a process of its own, ``bridge``, since a driver of Ray ends when the cluster does."""

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from eunomia.errors import InputError
from eunomia.extras import require
from eunomia_engines.engine import EngineRefusedError, EngineSilentError
from eunomia_engines.ray.cluster import NewActor, RayActor, RayNode

T = TypeVar("T")
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 15.0
"""Seconds in which Ray must answer a call."""
START_SECONDS: Final = 45.0
"""Seconds within which the bridge process must have imported Ray and connected."""
MOST_BYTES: Final = 64 * 2**20
AUTO: Final = "auto"
NAMED: Final = "RAY_ADDRESS"
"""Environment variable of Ray with the address of the cluster that ``auto`` means."""

_NODES: Final = TypeAdapter(list[RayNode])
_ACTORS: Final = TypeAdapter(list[RayActor])


class RayDriver:
    """A Ray cluster, called through a bridge process, which is started at the first call and restarted after its end.

    Args:
        address: address of the cluster's head, or ``auto``.
        namespace: namespace of this arbiter's actors.
        log: file for the process's stderr; None: it is discarded.
    """

    def __init__(self, address: str, namespace: str, log: Path | None) -> None:
        self._given, self._namespace, self._log = address, namespace, log
        self._process: subprocess.Popen[bytes] | None = None
        self._hello: dict[str, Any] = {}

    def version(self) -> str:
        """Return the versions of Ray and Python of the cluster, which are those of this process."""
        self._connect()
        return str(self._hello["version"])

    def address(self) -> str:
        """Return the address of the cluster's head."""
        self._connect()
        return str(self._hello["address"])

    def nodes(self) -> Sequence[RayNode]:
        """Return the nodes, including dead ones."""
        return _checked(_NODES, self._call("nodes"))

    def actors(self) -> Sequence[RayActor]:
        """Return the actors of all namespaces, including dead ones."""
        return _checked(_ACTORS, self._call("actors"))

    def create(self, new: NewActor) -> str:
        """Create a detached actor pinned to a node; returns the actor's id; empty: the actor's name is taken."""
        return str(self._call("create", new=new.model_dump(mode="json")))

    def end(self, actor: str) -> None:
        """Order an actor to end its launcher gracefully and then itself, without waiting for the end."""
        self._call("end", actor=actor)

    def kill(self, actor: str) -> None:
        """Kill the actor of this name; no effect if there is no such actor."""
        self._call("kill", actor=actor)

    def want(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Request bundles of resources from the cluster's autoscaler, which replaces earlier requests."""
        self._call("want", bundles=[dict(bundle) for bundle in bundles])

    def close(self) -> None:
        """End the bridge process."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            (process.stdin or contextlib.nullcontext()).close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3.0)
        process.kill()
        process.wait()
        (process.stdout or contextlib.nullcontext()).close()  # type: ignore[union-attr]

    def _connect(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        require(["ray"], of="the engine Ray")
        named = os.environ.get(NAMED, "") if self._given == AUTO else self._given
        if named and "://" not in named:
            _check_port(named)
        log: IO[bytes] | int = subprocess.DEVNULL
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            log = self._log.open("ab")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eunomia_engines.ray.bridge"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        finally:
            if not isinstance(log, int):
                log.close()
        hello = self._ask("connect", START_SECONDS, address=self._given, namespace=self._namespace)
        self._hello = dict(hello)

    def _call(self, name: str, **given: Any) -> Any:
        self._connect()
        return self._ask(name, ANSWER_SECONDS, **given)

    def _ask(self, name: str, seconds: float, **given: Any) -> Any:
        """Send a call and return the answer.

        Raises:
            EngineSilentError: no answer came in time, or the process has ended.
            EngineRefusedError: Ray refuses; the error contains Ray's message.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise EngineSilentError("a process that calls Ray must run")
        try:
            process.stdin.write(json.dumps({"call": name, "given": given}).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(self._line(process, seconds))
        except (OSError, ValueError) as error:
            self.close()
            raise EngineSilentError("a Ray cluster must answer", value=f"{name}: {error}", place=self._given) from None
        if "answer" in answer:
            return answer["answer"]
        words = str(answer.get("error", "no words"))
        if answer.get("kind") == "refused":
            if name == "connect":
                self.close()
            raise EngineRefusedError("a Ray cluster must accept what it is asked for", value=words, place=self._given)
        self.close()
        raise EngineSilentError("a Ray cluster must answer", value=words, place=self._given)

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """Return the next line that the process writes."""
        if process.stdout is None:
            raise ValueError("no output")
        deadline, found = time.monotonic() + seconds, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ValueError(f"no answer within {seconds:g} s")
                part = os.read(process.stdout.fileno(), 65536)
                if not part:
                    raise ValueError("the process that calls Ray has ended")
                found += part
                if len(found) > MOST_BYTES:
                    raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
        return found


def _check_port(address: str) -> None:
    """Check that a server listens at an address, since Ray itself would search for a cluster for over a minute.

    Raises:
        EngineSilentError: no server listens there.
        InputError: the text is not an address.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise InputError("--address must be auto or HOST:PORT", value=f'"{address}"')
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise EngineSilentError("a Ray cluster must answer at its address", value=f"{error}", place=address) from None


def _checked(adapter: TypeAdapter[list[T]], found: object) -> Sequence[T]:
    try:
        return adapter.validate_python(found)
    except ValidationError as error:
        raise EngineSilentError("an answer of Ray must be readable", value=str(error)[:300]) from None
