"""Watches Jobs and pods to wake the keeper; the content of events is not read."""

import threading
import time
from typing import Final, Literal

import structlog

from eunomia.errors import EunomiaError
from eunomia_engines.kubernetes.api import EXPIRED, KubeApi, KubeError

log = structlog.get_logger()

KINDS: Final[tuple[Literal["jobs", "pods"], ...]] = ("jobs", "pods")
WATCH_SECONDS: Final = 240.0
"""Length of one watch in seconds, after which a silently dead connection is noticed."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""First and longest pause in seconds after an error; each pause is twice as long as the previous one."""
CHECK_SECONDS: Final = 0.5
LEAST_SECONDS: Final = 2.0
"""Least seconds between two looks that events cause, since one change of a pod causes several events."""


class Alarm:
    """Ends the keeper's pause before the next look as soon as an event arrives.

    An event is only a reason to look, since each look lists everything again. So an event that is late, lost, sent
    twice or out of order does no harm.

    Args:
        api: the API whose Jobs and pods are watched.
        stopped: set once the keeper ends.
    """

    def __init__(self, api: KubeApi, stopped: threading.Event) -> None:
        self._api, self._stopped, self._woken = api, stopped, threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(kind,), name=f"watch {kind}", daemon=True) for kind in KINDS
        ]

    def start(self) -> None:
        """Start watching, in a thread for Jobs and one for pods."""
        for thread in self._threads:
            thread.start()

    def pause(self, seconds: float) -> None:
        """Return after ``seconds``, or earlier if an event has arrived or the keeper ends."""
        deadline = time.monotonic() + seconds
        self._stopped.wait(min(LEAST_SECONDS, seconds))
        while not self._stopped.is_set() and (left := deadline - time.monotonic()) > 0.0:
            if self._woken.wait(min(CHECK_SECONDS, left)):
                break
        self._woken.clear()

    def wake(self) -> None:
        """End the present pause, or the next one."""
        self._woken.set()

    def _watch(self, kind: Literal["jobs", "pods"]) -> None:
        """Watch until the keeper ends."""
        version, pause = "", FIRST_PAUSE_SECONDS
        while not self._stopped.is_set():
            try:
                if not version:
                    version = self._version(kind)
                    self.wake()  # the watch yields no changes before this version
                for event in self._api.watch(kind, version, WATCH_SECONDS):
                    version, pause = event.version or version, FIRST_PAUSE_SECONDS
                    if event.kind != "BOOKMARK":
                        self.wake()
                    if self._stopped.is_set():
                        return
                self._stopped.wait(FIRST_PAUSE_SECONDS)  # a proxy may end each watch at once
            except (KubeError, EunomiaError) as error:
                expired = isinstance(error, KubeError) and error.status == EXPIRED
                if expired or isinstance(error, KubeError):
                    version = ""
                log.info("watch.begins_again", kind=kind, why=str(error), in_seconds=0.0 if expired else pause)
                if not expired or pause > FIRST_PAUSE_SECONDS:
                    self._stopped.wait(pause)
                pause = min(LONGEST_PAUSE_SECONDS, 2.0 * pause)

    def _version(self, kind: Literal["jobs", "pods"]) -> str:
        return self._api.jobs()[1] if kind == "jobs" else self._api.pods()[1]
