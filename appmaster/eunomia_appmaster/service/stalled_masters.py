"""Finds app masters that hang: no call of theirs for a while, though their machine's launcher answers."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from eunomia.units import format_duration
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.protocol import launcher_pb2 as launcher
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.sessions import Session

MOST_HEARTBEATS: Final = 10.0
"""An app master that has missed fewer heartbeats is not silent, whatever the limit."""
START_LIMITS: Final = 6.0
"""Limits that an attempt has to register: it imports what it needs, on a machine that may be busy."""


class StalledMasters:
    """The app masters of all machines, watched while the arbiter's loop runs.

    Args:
        limit: seconds of silence after which an app master hangs.
        clock: of the loop that counts.
    """

    def __init__(self, limit: float, clock: LoopClock) -> None:
        self._limit = limit
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        """By app: attempt and part that run, and when it was first seen."""

    def on(
        self, node: Node, apps: Iterable[App], sessions: Mapping[str, Session]
    ) -> Iterator[launcher.StalledAppMaster]:
        """Yield the app masters of a machine that hang; none while its launcher is silent itself."""
        answers = node.registered and self._clock.silence(node.heard_at) < self._limit / 2.0
        for app in apps:
            status = node.app_masters.get(app.name)
            if status is None or status.state != launcher.APP_MASTER_RUNNING:
                self._seen.pop(app.name, None)
                continue
            start = status.attempt, status.part
            if self._seen.get(app.name, ((0, 0), 0.0))[0] != start:
                self._seen[app.name] = start, self._clock.now()
            if not answers:
                continue
            silent, limit = self._silence(app, start, sessions.get(app.name))
            if silent >= limit:
                why = f"no heartbeat for {format_duration(round(silent))} (limit {format_duration(limit)})"
                yield launcher.StalledAppMaster(
                    app=app.name, attempt=status.attempt, part=status.part, why=why, limit_seconds=limit
                )

    def keep_only(self, apps: Collection[str]) -> None:
        """Forget all other apps: those that are over are asked for no more."""
        for app in self._seen.keys() - set(apps):
            del self._seen[app]

    def _silence(self, app: App, start: tuple[int, int], session: Session | None) -> tuple[float, float]:
        """Return for how long a start has been silent, and for how long it may be."""
        began = self._seen[app.name][1]
        if session is None or (session.attempt, session.part) != start:
            return self._clock.silence(began), START_LIMITS * self._limit
        return self._clock.silence(max(session.heard_at, began)), self._limit
