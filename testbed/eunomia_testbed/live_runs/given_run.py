"""A run of apps on an arbiter that runs already: it serves other runs before and after, and may serve others meanwhile.

The apps get names at the arbiter that no app has had; the record of the run has them under their own names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia.journal.journal import read_journal
from eunomia.model.shapes import value
from eunomia_appmaster.client import Client
from eunomia_appmaster.explaining.replay import JOURNAL
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.live_run import ArbiterRun
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.run_part import RunPart

log = structlog.get_logger()

LONGEST_NAME: Final = 64
"""Longest name of an app in characters."""
CHECK_SECONDS: Final = 1.0
"""Seconds between two queries of the arbiter's health."""
LEAVE_SECONDS: Final = 60.0
"""Seconds within which the slots of cancelled apps must be free before a run ends."""
LOOK_SECONDS: Final = 0.2


class GivenNames:
    """Names at the arbiter for the apps of a run.

    Args:
        prefix: the beginning of each name, which no app of another run has.

    Attributes:
        runs_name: the run's name of each app, by its name at the arbiter.
    """

    def __init__(self, prefix: str) -> None:
        self.runs_name: dict[str, str] = {}
        self._prefix = prefix
        self._given: dict[str, str] = {}

    def of(self, app: str) -> str:
        """Return the name at the arbiter of an app of the run, which is given at the first call."""
        if app not in self._given:
            name = f"{self._prefix}{len(self._given)}-{app}"[:LONGEST_NAME]
            self._given[app], self.runs_name[name] = name, app
        return self._given[app]


@value
class GivenPlace:
    """An arbiter that runs, and where its record is.

    Attributes:
        connect: returns a new client of the arbiter.
        state_dir: the arbiter's state folder, readable on this machine.
        shared: whether apps of others may run beside those of a run.
    """

    connect: Callable[[], Client]
    state_dir: Path
    shared: bool = False


def part_from_now(state_dir: Path, names: GivenNames) -> RunPart:
    """Return the part of an arbiter's record that begins now.

    Args:
        state_dir: the arbiter's state folder.
        names: names of the run's apps.

    Raises:
        InputError: the journal cannot be read.
    """
    with read_journal(state_dir / JOURNAL) as journal:
        after = journal.last_step
        begun = next((saved for saved in journal.checkpoints() if saved.after_step <= after), None)
    return RunPart(names=names.runs_name, begun=begun, after_step=after)


class GivenRun(ArbiterRun):
    """A run of apps on an arbiter that runs already, which goes on after the run.

    At its exit, apps of the run that have not ended are cancelled. ``faults`` has what makes the run invalid: apps of
    others, other machines than at its beginning, and decisions of the fallback profile.

    Args:
        folder: folder of the run, for its app files.
        place: the arbiter.
        names: names of the run's apps at the arbiter.
    """

    def __init__(self, folder: Path, place: GivenPlace, names: GivenNames) -> None:
        super().__init__(folder, LiveRecord(place.state_dir, part_from_now(place.state_dir, names)))
        self._place, self._given = place, names
        self._checked_at = 0.0
        self._machines = ""

    def start(self) -> None:
        """Connect to the arbiter."""
        self._client = self._place.connect()
        self._machines = self._client.health().cluster

    def settle(self) -> None:
        """Wait for nothing: the arbiter has served before."""

    def stop(self) -> None:
        """Cancel the apps of the run that have not ended, wait until their slots are free, and read the record."""
        client, self._client = self._client, None
        if client is None:
            return
        with client:
            try:
                left = cancel_live(client, self._given.runs_name)
                self._until_free(bool(left))
            except EunomiaError as error:  # the results of the run must be kept even if the arbiter is away
                log.warning("run.not_cancelled", why=str(error), apps=f"those that begin with {self._any_name()}")
        self.record.poll()

    def _submitted(self, source: AppSource) -> str:
        name = self._given.of(source.name)
        made = self.client.submit(source.path, text=source.with_name(name).text)
        if made.name != name:
            raise EunomiaError("the apps of a run must have names that no app has had", value=name)
        return source.name

    def _listed(self) -> pb.ListResponse:
        return self.client.list(ended=False)

    def _check_arbiter(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        ended = sum(life.ended_at is not None for life in self.record.apps.values())
        try:
            health = self.client.health()
        except EunomiaError:  # it is being restarted
            return
        others = health.apps - (len(self._sources) - ended)
        if health.ready and others > 0 and not self._place.shared:
            self._note("apps of others ran on the arbiter")
        if health.ready and health.cluster != self._machines:
            self._note(f"the machines of the arbiter changed from {self._machines} to {health.cluster}")
        if health.fallback:
            self._note("the arbiter decided by its fallback profile")

    def _note(self, fault: str) -> None:
        if fault not in self.faults:
            self.faults = (*self.faults, fault)

    def _until_free(self, cancelled: bool) -> None:
        """Poll the record until all apps have ended and, if some were cancelled, their slots are free."""
        deadline = time.monotonic() + (LEAVE_SECONDS if cancelled else 0.0)
        while True:
            self.record.poll()
            live = any(life.ended_at is None for life in self.record.apps.values())
            if not (live or self.record.holds.busy) or time.monotonic() > deadline:
                return
            time.sleep(LOOK_SECONDS)

    def _any_name(self) -> str:
        return next(iter(self._given.runs_name), "none")


def cancel_live(client: Client, names: Iterable[str]) -> list[str]:
    """Cancel those apps that have not ended, and return their names.

    Args:
        client: a client of the arbiter.
        names: names of apps at the arbiter; unknown ones are ignored.

    Raises:
        EunomiaError: the arbiter does not answer.
    """
    wanted = {*names}
    live = [app.app for app in client.list(ended=False).apps if app.app in wanted]
    for app in live:
        client.cancel(app)
    return live
