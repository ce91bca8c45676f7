"""The submitted apps, in memory and in the journal."""

import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from eunomia.errors import InputError
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.ended_apps import EndedApps
from eunomia_appmaster.service.settings import KEPT_APPS

MOST_APPS = 1000
"""Maximum number of live apps at the same time."""
MOST_REQUESTS = 10_000
"""Maximum number of submissions remembered in order to recognise repeated ones (the newest)."""
REPEATED_SECONDS = 600.0
"""Seconds for which a repeated submission is recognised; a client that lost the answer retries for some seconds."""


class SubmittedApps:
    """Apps by name, in order of submission: all live ones, and those that ended most recently.

    Args:
        folder: parent of all apps' folders.
        apps: an earlier arbiter's apps, by name.
        keep: maximum number of ended apps in memory.
        archive: looks up ended apps that are no longer in memory; None if these cannot be found.

    Raises:
        InputError: ``keep`` is negative.
    """

    def __init__(
        self,
        folder: Path,
        apps: Mapping[str, App],
        *,
        keep: int = KEPT_APPS,
        archive: EndedApps | None = None,
    ) -> None:
        if keep < 0:
            raise InputError("apps that are kept must be 0 or more", value=str(keep), place="--keep-apps")
        self.folder = folder
        self._keep = keep
        self._archive = archive
        self._apps = dict(apps)
        self._requests: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """The app's name and the submission's Unix time in seconds, by request id."""
        for app in self:
            self._note_request(app)
        self._complete()
        for app in self.surplus():
            self.forget(app)

    def __iter__(self) -> Iterator[App]:
        return iter(self._apps.values())

    def get(self, name: str) -> App | None:
        """Return an app by name, from memory or the archive; changes to an archived app are lost."""
        found = self._apps.get(name)
        return found if found is not None or self._archive is None else self._archive.app(name)

    def in_memory(self, name: str) -> App | None:
        """Return an app by name from memory, without searching the archive."""
        return self._apps.get(name)

    def archived(self) -> list[App]:
        """Return the ended apps that are only in the journal; may be called from any thread."""
        return [] if self._archive is None else self._archive.all_except(frozenset(self._apps.copy()))

    def archived_page(self, before: int) -> tuple[list[App], int]:
        """Return a page of ``archived``, and the journal position for the next one; see ``EndedApps.page``."""
        return ([], 0) if self._archive is None else self._archive.page(frozenset(self._apps.copy()), before)

    def surplus(self) -> list[App]:
        """Return the ended apps beyond the number kept in memory, earliest end first."""
        over = [app for app in self if app.over]
        if len(over) <= self._keep:
            return []
        over.sort(key=_ended_at)
        return over[: len(over) - self._keep]

    def forget(self, app: App) -> None:
        """Drop an ended app from memory; the journal keeps it."""
        del self._apps[app.name]

    def issue_of(self, name: str) -> int | None:
        """Return the number of an app's present token; None if there is no such app."""
        app = self.get(name)
        return None if app is None else app.issue

    @property
    def live(self) -> list[App]:
        """Return the apps that have not ended."""
        return [app for app in self if not app.over]

    def asked_before(self, request_id: str) -> App | None:
        """Return the app that an earlier request with this id created; None if there is none."""
        found = self._requests.get(request_id)
        return None if found is None else self.get(found[0])

    def unique(self, name: str) -> str:
        """Return the name, or the first of ``name-2``, ``name-3`` ... that no app has ever had."""
        if self._is_new(name):
            return name
        stem, number = name, 2
        while not self._is_new(f"{stem}-{number}"):
            number += 1
        return f"{stem}-{number}"

    def _is_new(self, name: str) -> bool:
        return not (self.folder / name).exists() and self.get(name) is None

    def check_room(self) -> None:
        """Check that one more app is allowed.

        Raises:
            InputError: there are too many apps.
        """
        if len(self.live) >= MOST_APPS:
            raise InputError(f"at most {MOST_APPS} apps may be here at once", value=str(len(self.live)))

    def login_of(self, name: str) -> str:
        """Return the account under which an app's processes run; empty for the launcher's own."""
        app = self.get(name)
        return "" if app is None else app.login

    def prepare(self, app: App, submission: Submission, account: Account | None = None) -> None:
        """Write an app's folder under a temporary name, before the app is journaled.

        Args:
            app: its record.
            submission: the data for its app master.
            account: owner of the folder; None: this process's account.
        """
        folder = self._prepared(app.name)
        shutil.rmtree(folder, ignore_errors=True)  # left by a submission that a full disk interrupted
        folder.mkdir(parents=True, mode=0o700)
        submission.write(folder)
        if account is not None:
            for path in (*folder.iterdir(), folder):  # the folder last: until then it is closed to the account
                os.chown(path, account.uid, account.gid, follow_symlinks=False)

    def keep(self, app: App) -> None:
        """Add a journaled app: rename its folder to the final name, and make the app visible."""
        self._prepared(app.name).rename(self.folder / app.name)
        self._apps[app.name] = app
        self._note_request(app)

    def take_up(self, app: App) -> None:
        """Replace an ended app's record with its journaled record as a resumed app."""
        self._apps[app.name] = app

    def drop(self, app: App) -> None:
        """Delete the prepared folder of an app whose submission failed."""
        shutil.rmtree(self._prepared(app.name))

    def _note_request(self, app: App) -> None:
        if app.request_id:
            self._requests[app.request_id] = app.name, app.submitted_at
        while self._requests and self._is_old(app.submitted_at):
            self._requests.popitem(last=False)

    def _is_old(self, now: float) -> bool:
        """Return whether the oldest remembered request must be dropped: it is too old, or there are too many."""
        _, submitted_at = next(iter(self._requests.values()))
        return len(self._requests) > MOST_REQUESTS or now - submitted_at > REPEATED_SECONDS

    def _prepared(self, name: str) -> Path:
        return self.folder / f".{name}.new"

    def _complete(self) -> None:
        """Rename the temporary folders of journaled apps that an earlier arbiter left."""
        for folder in self.folder.glob(".*.new") if self.folder.is_dir() else ():
            name = folder.name[1 : -len(".new")]
            if name in self._apps and not (self.folder / name).exists():
                folder.rename(self.folder / name)
            else:
                shutil.rmtree(folder)


def _ended_at(app: App) -> float:
    return app.ended_at or 0.0


def in_order(apps: Iterable[App]) -> list[App]:
    """Return apps by arrival; for an app that occurs twice, the last record."""
    return sorted({app.name: app for app in apps}.values(), key=_arrived_at)


def _arrived_at(app: App) -> float:
    return app.arrived_at
