"""Counts the slot-hours that each user has used today; users who reach their limit are held until midnight.

Days are in UTC. The count is kept in the user's note, together with the totals of apps that it includes, so that a
restart loses nothing: the usage since the last count follows from the apps' totals.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import structlog

from eunomia.arbiter import ClusterView
from eunomia.contract.events import UserHeld
from eunomia.journal.values import Note
from eunomia.units import NONE, AppId, Seconds, UserId
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.apps import SubmittedApps
from eunomia_appmaster.service.user_record import User
from eunomia_appmaster.service.users import Users

log = structlog.get_logger()

NOTE_SECONDS = 60.0
"""Seconds after which a changed count is written, with the next step."""
HOUR = 3600.0


class GpuHours:
    """Counts slot-hours, and holds or releases users.

    Args:
        users: the users, with their limits.
        apps: all apps.
        system: the machine's clocks.
    """

    def __init__(self, users: Users, apps: SubmittedApps, *, system: System = MACHINE) -> None:
        self._users, self._apps, self._system = users, apps, system
        self._noted_at: dict[str, float] = {}

    def look(self, view: ClusterView, now: Seconds) -> tuple[list[UserHeld], list[Note]]:
        """Update the counts, and hold or release users accordingly.

        Args:
            view: the arbiter's state, read under the driver's lock.
            now: seconds on the arbiter's clock.

        Returns:
            Events for users that are held or released from now on, and notes for the same step.
        """
        events: list[UserHeld] = []
        notes: list[Note] = []
        live: dict[str, list[App]] = {}
        for app in self._apps.live if self._users.any else ():
            live.setdefault(app.user, []).append(app)
        for user in self._users.all:
            before = user.used_seconds, user.day
            self._count(user, live.get(user.name, []), view, now)
            event = self._judge(user, now)
            events += [] if event is None else [event]
            if event is not None or (before != (user.used_seconds, user.day) and self._is_due(user)):
                self._noted_at[user.name] = self._system.unix_time()
                notes.append(user.note())
        return events, notes

    def waits_seconds(self, user: User) -> float | None:
        """Return the seconds until a held user's jobs may run; None if they may now or after the next ``look``."""
        held = user.held_day == self._today() and self._is_spent(user)
        return self._until_midnight() if held else None

    def used_hours(self, user: User) -> float:
        """Return the user's slot-hours of this day, up to the last ``look``."""
        return user.used_seconds / HOUR if user.day == self._today() else 0.0

    def _count(self, user: User, live: list[App], view: ClusterView, now: Seconds) -> None:
        ended = (self._apps.get(name) for name in user.seen.keys() - {app.name for app in live})
        totals = {app.name: _total(app, view, now) for app in (*live, *(one for one in ended if one is not None))}
        first, today = user.day == "", self._today()
        more = 0.0 if first else sum(_since(user.seen.get(name, 0.0), total) for name, total in totals.items())
        user.used_seconds = more + (user.used_seconds if user.day == today else 0.0)
        user.day = today
        user.seen = {app.name: totals[app.name] for app in live}

    def _judge(self, user: User, now: Seconds) -> UserHeld | None:
        """Return the event if the user is to be held or released now; else None."""
        spent = self._is_spent(user)
        if spent == (user.held_day == user.day):
            return None
        user.held_day = user.day if spent else ""
        until = Seconds(float(now) + self._until_midnight()) if spent else now
        log.warning("user.held" if spent else "user.goes_on", user=user.name, used_hours=user.used_seconds / HOUR)
        return UserHeld(user=UserId(user.name), until=until)

    @staticmethod
    def _is_spent(user: User) -> bool:
        return user.used_seconds >= HOUR * user.limits.gpu_hours

    def _is_due(self, user: User) -> bool:
        return self._system.unix_time() - self._noted_at.get(user.name, 0.0) >= NOTE_SECONDS

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._system.unix_time(), UTC)

    def _today(self) -> str:
        return self._now().date().isoformat()

    def _until_midnight(self) -> float:
        now = self._now()
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        return (midnight - now).total_seconds()


def _total(app: App, view: ClusterView, now: Seconds) -> float:
    """Return an app's slot-seconds since it arrived or was resumed, including those since the last step."""
    row = view.app_row(AppId(app.name))
    if app.over or row == NONE:
        return app.gpu_seconds
    return float(view.app_ledger.gpu_seconds[row]) + float(now - view.now) * np.count_nonzero(view.gpus.app == row)


def _since(before: float, total: float) -> float:
    return total - before if total >= before else total  # less: the app was resumed, and its total restarted at 0
