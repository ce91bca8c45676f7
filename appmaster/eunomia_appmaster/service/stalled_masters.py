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
"""Minimum limit on silence, in heartbeats: an app master that missed fewer does not count as hung."""
START_LIMITS: Final = 6.0
"""An attempt must register within this multiple of the limit: it first imports modules, maybe on a busy machine."""


class StalledMasters:
    """Watches the app masters of all machines for silence, while the arbiter's loop runs.

    Args:
        limit: seconds of silence after which an app master counts as hung.
        clock: the event loop's clock.
    """

    def __init__(self, limit: float, clock: LoopClock) -> None:
        self._limit = limit
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        """By app: attempt and part of the running app master, and the loop clock's time at which it was first seen."""

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
        """Forget all apps except these; the others have ended."""
        for app in self._seen.keys() - set(apps):
            del self._seen[app]

    def _silence(self, app: App, start: tuple[int, int], session: Session | None) -> tuple[float, float]:
        """Return the seconds for which a started app master has been silent, and the limit in seconds."""
        began = self._seen[app.name][1]
        if session is None or (session.attempt, session.part) != start:
            return self._clock.silence(began), START_LIMITS * self._limit
        return self._clock.silence(max(session.heard_at, began)), self._limit
