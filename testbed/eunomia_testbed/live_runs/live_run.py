"""A live run, in which supervisor, arbiter, launcher, app masters and workers are real processes."""

import abc
import contextlib
import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from eunomia.errors import EunomiaError
from eunomia_appmaster.client import Client
from eunomia_appmaster.node.supervisor import Serving, Supervisor
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.processes import process_of
from eunomia_testbed.live_runs.record import LiveRecord, News
from eunomia_testbed.live_runs.settling import wait_until_idle
from eunomia_testbed.live_runs.tables import RhoSample

PRELOAD = ("sklearn.datasets", "eunomia_testbed.workloads.image.digits")
"""Modules of the demo's scripts, which the launcher's zygote imports once for all workers."""
SAMPLE_SECONDS = 1.0
"""Seconds between two samples of ρ."""
SETTLE_SECONDS = 3.0
"""Seconds after the last app's end within which its slots may still be released."""
OVER = ("finished", "failed", "cancelled")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The state of a run at one time, with the news since the last look.

    Attributes:
        at: Unix time.
        apps: apps as the arbiter lists them.
        slots: slots as the arbiter lists them.
        news: new entries of the journal and the activity logs since the last look.
    """

    at: float
    apps: tuple[pb.App, ...]
    slots: tuple[pb.SlotView, ...]
    news: News


def _slots(slot_types: str) -> tuple[str, str]:
    """Return the launcher's option for control groups: none for unpaced slots, whose jobs may use idle cores."""
    return "--control-groups", "auto" if slot_types else "none"


class ArbiterRun(abc.ABC):
    """A context manager for one run of apps on an arbiter: submits apps, and reads what happens to them.

    Args:
        folder: folder of the run, for its files.
        record: record of the run.
        apps: the apps, submitted in this order.
    """

    faults: tuple[str, ...] = ()
    """Why the run does not count; empty: it counts, as far as is known."""

    def __init__(self, folder: Path, record: LiveRecord, apps: Sequence[AppSource] = ()) -> None:
        self.folder = folder
        self.record = record
        self.samples: list[RhoSample] = []
        self.names: list[str] = []
        self._sources = list(apps)
        self._sampled_at = 0.0
        self._last: tuple[tuple[pb.App, ...], tuple[pb.SlotView, ...]] = ((), ())
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abc.abstractmethod
    def start(self) -> None:
        """Make the arbiter available, and connect to it.

        Raises:
            EunomiaError: the arbiter is not available.
        """

    @abc.abstractmethod
    def settle(self) -> None:
        """Wait until the arbiter's processes have made their imports, which would slow down the first jobs."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End what is left of the run, and read the rest of its record."""

    @abc.abstractmethod
    def _listed(self) -> pb.ListResponse:
        """Return the apps of the run, and the slots, as the arbiter lists them.

        Raises:
            EunomiaError: the query failed.
        """

    @abc.abstractmethod
    def _check_arbiter(self) -> None:
        """Check that the run can go on.

        Raises:
            EunomiaError: it cannot.
        """

    def submit(self) -> None:
        """Submit all apps at once."""
        for source in self._sources:
            self.names.append(self._submitted(source))

    def submit_also(self, source: AppSource) -> None:
        """Submit one more app.

        Raises:
            EunomiaError: the arbiter rejects the app, or does not answer.
        """
        self.names.append(self._submitted(source))
        self._sources.append(source)

    def count_in(self, source: AppSource, name: str) -> None:
        """Record an app as submitted that the arbiter lists, although the submission was not answered."""
        self.names.append(name)
        self._sources.append(source)

    def cancel(self, app: str) -> None:
        """Cancel an app of the run.

        Raises:
            EunomiaError: no app has this name, or the arbiter does not answer.
        """
        self.client.cancel(self.record.part.at_arbiter(app))

    def _submitted(self, source: AppSource) -> str:
        """Submit an app, and return its name in the run."""
        return self.client.submit(source.path, text=source.text).name

    @property
    def client(self) -> Client:
        """Return the client of the run's arbiter.

        Raises:
            EunomiaError: the run has not begun.
        """
        if self._client is None:
            raise EunomiaError("a run must have begun")
        return self._client

    @property
    def is_over(self) -> bool:
        """Return whether every app has ended and every slot is free."""
        apps = self.record.apps
        ended = [life.ended_at for life in apps.values()]
        if len(ended) < len(self._sources) or None in ended:
            return False
        held = self.record.holds.busy > 0
        return not held or time.time() - max(at for at in ended if at is not None) > SETTLE_SECONDS

    def look(self) -> Look:
        """Return the state of the run, from new events and a query of the arbiter; while it restarts, the last answer.

        Raises:
            EunomiaError: arbiter or launcher failed too often and was not restarted.
        """
        self._check_arbiter()
        with contextlib.suppress(EunomiaError):  # a failed query must not end the run
            listed = self._listed()
            self._last = tuple(listed.apps), tuple(listed.slots)
        now = time.time()
        apps, slots = self._last
        if now - self._sampled_at >= SAMPLE_SECONDS:
            self._sampled_at = now
            self.samples += [sample for app in apps if (sample := self._sample(app, now)) is not None]
        return Look(at=now, apps=apps, slots=slots, news=self.record.poll())

    def _sample(self, app: pb.App, now: float) -> RhoSample | None:
        """Return a sample of the ρ that the arbiter reports (None until the app's work is known); None: no live app."""
        name = self.record.part.app(app.app)
        if name is None or app.state in OVER:
            return None
        life = self.record.apps.get(name)
        known = life is not None and life.forecast is not None and app.HasField("rho")
        return RhoSample(at=now, app=name, rho=app.rho if known else None, slots=app.slots)


class LiveRun(ArbiterRun):
    """A live run of apps with an arbiter of its own, which ends all processes at its exit.

    Args:
        folder: folder for state and results.
        apps: the apps, submitted in this order.
        policy: preset, profile file or plugin.
        settings: ``KEY=VALUE`` settings of the profile.
        slots: number of CPU slots if no GPU is found.
        slot_types: paced CPU slots, such as ``2x fast:0.5, 2x slow:0.25``; empty: none.
        seed: seed of the arbiter.
        cpu_only: use CPU slots even on a machine with GPUs.
    """

    preload: Sequence[str] = PRELOAD
    """Modules that the launcher's zygote imports once for all workers."""

    def __init__(
        self,
        folder: Path,
        apps: Sequence[AppSource],
        *,
        policy: str = "demo",
        settings: Sequence[str] = (),
        slots: int | None = None,
        slot_types: str = "",
        seed: int = 0,
        cpu_only: bool = False,
    ) -> None:
        super().__init__(folder, LiveRecord(folder), apps)
        self.supervisor = Supervisor(
            folder,
            Serving(
                policy=policy,
                settings=settings,
                slots=slots,
                slot_types=slot_types,
                cpu_only=cpu_only,
                seed=seed,
                address="127.0.0.1:0",
                log_dir=folder / "logs",
                launcher_options=[
                    *_slots(slot_types),
                    *(word for module in self.preload for word in ("--preload", module)),
                ],
            ),
        )

    def start(self) -> None:
        """Start arbiter and launcher, and wait until they are ready."""
        self.supervisor.start()
        self._client = Client(self.supervisor.address, token_file=self.supervisor.token_file)

    def settle(self) -> None:
        """Wait until arbiter and launcher are idle, that is, their zygotes have imported all modules."""
        children = (self.supervisor.arbiter, self.supervisor.launcher)
        wait_until_idle([process.pid for child in children if (process := process_of(child)) is not None])

    def _listed(self) -> pb.ListResponse:
        return self.client.list(ended=True, slots=True)

    def _check_arbiter(self) -> None:
        for child in (self.supervisor.arbiter, self.supervisor.launcher):
            if child is not None and child.failure is not None:
                raise EunomiaError(
                    "arbiter and launcher must run", value=child.failure, place=str(self.folder / "logs")
                )

    def stop(self) -> None:
        """End all processes, read the rest of the run's files, and remove the tokens, which are no longer valid."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self.supervisor.stop()
        self.record.poll()
        shutil.rmtree(self.folder / "run", ignore_errors=True)
