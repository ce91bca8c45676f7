"""Finds app masters that hang: they have not called for a while although their machine's launcher responds."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from eunomia.units import format_duration
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.protocol import launcher_pb2 as launcher
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.sessions import Session

MOST_HEARTBEATS: Final = 10.0
"""Least limit on silence in heartbeats, so that an app master that missed fewer does not count as silent."""
START_LIMITS: Final = 6.0
"""Multiple of the limit within which an attempt must register, since it imports modules on a possibly busy machine."""


class StalledMasters:
    """Watches the app masters of all machines for silence, while the arbiter's loop runs.

    Args:
        limit: seconds of silence after which an app master counts as hung.
        clock: of the loop.
    """

    def __init__(self, limit: float, clock: LoopClock) -> None:
        self._limit = limit
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        """The running attempt and part of an app's master, and when they were first seen, by app."""

    def on(
        self, node: Node, apps: Iterable[App], sessions: Mapping[str, Session]
    ) -> Iterator[launcher.StalledAppMaster]:
        """Yield orders to end the hanging app masters of a machine; none while its launcher is silent itself."""
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
        """Forget all other apps, which have ended."""
        for app in self._seen.keys() - set(apps):
            del self._seen[app]

    def _silence(self, app: App, start: tuple[int, int], session: Session | None) -> tuple[float, float]:
        """Return the seconds for which a start has been silent, and its limit in seconds."""
        began = self._seen[app.name][1]
        if session is None or (session.attempt, session.part) != start:
            return self._clock.silence(began), START_LIMITS * self._limit
        return self._clock.silence(max(session.heard_at, began)), self._limit
