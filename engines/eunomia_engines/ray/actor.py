"""The actor of a Ray node: finds or starts the node's launcher, and holds the node's GPUs until the launcher ends.

Ray restarts an actor that has died; the new actor must find the launcher, which keeps running: a node has only one.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from eunomia_engines.pilots.names import private_folder
from eunomia_engines.pilots.records import Pilot, end_of, pilots, write_pilot
from eunomia_engines.ray.launchers import is_held, living, read_record, write_record
from eunomia_engines.ray.request import FOLDER, RayRequest
from eunomia_engines.requests import mark_of

LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 5.0
"""Seconds between two starts of a pilot, and between two orders to end."""
OF_RAY: Final = "RAY_"
THREADS: Final = "OMP_NUM_THREADS"
"""Environment variable that Ray sets to an actor's number of CPUs, which would slow the launcher's workers."""


class LauncherWatch:
    """Watches the launcher of one node.

    Args:
        state: the arbiter's state folder.
        node: name of the arbiter's node.
        actor: Ray's id of the actor.
        env: environment of the actor.
    """

    def __init__(self, state: Path, node: str, actor: str, env: Mapping[str, str]) -> None:
        self._state, self._node, self._actor = state, node, actor
        self._request = RayRequest.load(state)
        self._base = private_folder(self._request.node_dir, mark_of(state))
        self._env = launcher_env(env, self._request)
        self._started_at, self._ordered_at, self._is_known = -AGAIN_SECONDS, -AGAIN_SECONDS, False
        self.ends = False
        """Whether the launcher is ordered to end."""

    def look(self) -> bool:
        """Start a pilot if none runs, or order it to end; returns whether the launcher has ended for good."""
        if end_of(self._state / FOLDER, self._actor) is not None:
            return True
        now = time.monotonic()
        alive = living(read_record(self._base, self._node))
        if alive:
            self._adopt()
            if self.ends and now - self._ordered_at >= AGAIN_SECONDS:
                self._ordered_at = now
                alive[0].signal(signal.SIGTERM)
        elif now - self._started_at >= AGAIN_SECONDS and not is_held(self._base, self._node):
            self._started_at = now
            self._start()
        return False

    def _adopt(self) -> None:
        """Record this actor as the node's watcher, in the state folder and on the node's disk."""
        record = read_record(self._base, self._node)
        if record is None or (self._is_known and record.actors[-1:] == (self._actor,)):
            return
        if self._actor not in record.actors:
            self._say(f"found the launcher of {self._node}: pilot {record.pilot.pid}")
            write_record(self._base, self._node, replace(record, actors=(*record.actors, self._actor)))
        self._note()

    def _note(self) -> None:
        if self._actor not in pilots(self._state / FOLDER):
            host = os.uname().nodename
            write_pilot(self._state / FOLDER, Pilot(job=self._actor, node=self._node, host=host, began_at=time.time()))
        self._is_known = True

    def _start(self) -> None:
        self._note()
        log = self._state / FOLDER / "logs" / f"{self._actor}.log"
        with log.open("ab") as out:
            subprocess.run(
                [sys.executable, "-m", "eunomia_engines.ray.pilot", str(self._state), self._node, self._actor],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
                check=False,
            )
        self._say(f"started the launcher of {self._node}; its log: {log}")

    def _say(self, text: str) -> None:
        """Write a line to Ray's own log of this actor."""
        sys.stdout.write(f"eunomia: {text}\n")
        sys.stdout.flush()


class EunomiaLauncher:
    """The actor's class; Ray instantiates it in a worker process on the node.

    Args:
        state: the arbiter's state folder.
        node: name of the arbiter's node.
    """

    def __init__(self, state: str, node: str) -> None:
        import ray

        context = ray.get_runtime_context()
        self._self: Any = context.current_actor
        self._watch = LauncherWatch(Path(state), node, context.get_actor_id(), os.environ)
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        """Order a graceful end of the launcher, after which the actor ends."""
        self._watch.ends = True

    def pid(self) -> int:
        """Return the pid of the actor's process."""
        return os.getpid()

    def _run(self) -> None:
        import ray

        while not self._look():
            time.sleep(LOOK_SECONDS)
        ray.kill(self._self, no_restart=True)  # gives the node's GPUs back to Ray

    def _look(self) -> bool:
        try:
            return self._watch.look()
        except OSError as error:  # the disk is full or away: the next look tries again
            sys.stderr.write(f"eunomia: {error}\n")
            return False


def launcher_env(env: Mapping[str, str], request: RayRequest) -> Mapping[str, str]:
    """Return the environment of a node's launcher: the actor's, without the variables that Ray sets for the actor."""
    kept: MutableMapping[str, str] = {name: text for name, text in env.items() if not name.startswith(OF_RAY)}
    given = request.runtime_env.get("env_vars", {})
    if THREADS not in given:
        kept.pop(THREADS, None)
    return kept
