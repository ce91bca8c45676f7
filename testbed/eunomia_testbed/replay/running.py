"""Runs the jobs of a plan for real: one policy in one repeat, on an arbiter of its own or on one that runs."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, Self

from eunomia.errors import EunomiaError, UnreachableError
from eunomia.model.shapes import builds, value
from eunomia_testbed.live_runs.given_run import GivenNames, GivenPlace, GivenRun
from eunomia_testbed.live_runs.live_run import ArbiterRun, LiveRun, Look
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.this_machine import run_in_this_installation
from eunomia_testbed.replay.app_files import app_file
from eunomia_testbed.replay.cells import RealRun, RunRecord
from eunomia_testbed.replay.faults.carrying import FaultCarrier
from eunomia_testbed.replay.given_files import write_part
from eunomia_testbed.replay.pace_meter import PaceMeter
from eunomia_testbed.replay.plan import PlannedApp, ReplayPlan
from eunomia_testbed.replay.slots import LocalSlots

PRELOAD: Final = (
    "eunomia_testbed.workloads.loop",
    "eunomia_testbed.workloads.image.digits",
    "eunomia_testbed.workloads.language.text",
    "eunomia_testbed.workloads.speech.sounds",
    "eunomia_testbed.workloads.recommendation.ratings",
)
"""Modules of the programs that the launcher's zygote imports once for all workers."""
LOOK_SECONDS: Final = 0.2
"""Seconds between two polls of the run."""
LIMIT_BUDGETS: Final = 5.0
"""Number of budgets after which a real run is aborted, since with too short leases it makes no progress."""
APPS: Final = "apps-submitted"
"""Subfolder of a run's state folder with the app files."""
PROFILE: Final = "scaled"
"""Subfolder of a run's state folder with the scaled profile."""


class PlannedRun(ArbiterRun):
    """A run of planned apps, whose app files are in its folder."""

    carrier: FaultCarrier | None = None
    """Carries out the faults of the run; None: the run has no faults."""
    unanswered: frozenset[str] = frozenset()
    """Apps whose last submission was not answered."""

    def faults_of(self, plan: ReplayPlan) -> AbstractContextManager[object]:
        """Return a context manager that carries out the plan's faults."""
        if plan.faults is not None:
            raise EunomiaError("faults must hit processes of a run's own", value="a run on an arbiter of others")
        return nullcontext()

    def submit_planned(self, app: PlannedApp) -> bool:
        """Submit an app at most once; return whether the arbiter has accepted the app.

        An arbiter that a fault has killed may have accepted the app without answering, so the arbiter's apps are listed
        before a second submission.

        Raises:
            EunomiaError: the arbiter rejects the app, or does not answer in a run without faults.
        """
        source = app_file(app, self.folder / APPS)
        try:
            if app.name in self.unanswered and any(one.app == app.name for one in self.client.list(ended=True).apps):
                self.count_in(source, app.name)
                return True
            self.submit_also(source)
        except UnreachableError:
            if self.carrier is None:
                raise
            self.unanswered |= {app.name}
            return False
        return True


def write_app_files(plan: ReplayPlan, folder: Path) -> None:
    """Write the app files of a plan to the folder of a run."""
    (folder / APPS).mkdir()
    for app in plan.apps:
        source = app_file(app, folder / APPS)
        source.path.write_text(source.text, encoding="utf-8")


class ReplayRun(PlannedRun, LiveRun):
    """A planned run with an arbiter of its own, whose launcher preloads the modules of the programs."""

    preload = PRELOAD

    @classmethod
    def of_plan(cls, plan: ReplayPlan, run: RealRun, slots: LocalSlots, folder: Path) -> Self:
        """Return the run of a policy and repeat; its app files and scaled profile are written to ``folder``."""
        path = folder / PROFILE / f"{run.policy.replace('/', '_')}.toml"
        path.parent.mkdir(parents=True)
        path.write_text(plan.profiles[run.policy].resolved(), encoding="utf-8")
        write_app_files(plan, folder)
        return cls(
            folder,
            (),
            policy=str(path),
            slots=slots.count,
            slot_types=slots.slot_types,
            seed=run.seed,
            cpu_only=slots.count is not None,
        )

    def faults_of(self, plan: ReplayPlan) -> AbstractContextManager[object]:
        """Return a context manager that carries out the plan's faults."""
        if plan.faults is None:
            return nullcontext()
        self.carrier = FaultCarrier(self, plan.faults)
        return self.carrier


class ReplayRunAt(PlannedRun, GivenRun):
    """A planned run on an arbiter that runs already; its part of the arbiter's record is written to its folder."""

    @classmethod
    def of_plan(cls, plan: ReplayPlan, folder: Path, place: GivenPlace, names: GivenNames) -> Self:
        """Return a run; its app files are written to ``folder``, and their names at the arbiter are given."""
        write_app_files(plan, folder)
        for app in plan.apps:
            names.of(app.name)
        made = cls(folder, place, names)
        write_part(folder, place.state_dir, made.record.part)
        return made

    def stop(self) -> None:
        """Cancel what is left, read the record, and write where the run's part of the record ends."""
        super().stop()
        until = max(self.record.steps, self.record.part.after_step)
        write_part(self.folder, self.record.folder, dataclasses.replace(self.record.part, until_step=until))


@builds
class Watched:
    """The state of a real run for its display."""

    run: RealRun
    look: Look
    record: LiveRecord
    submitted: int
    apps: int
    since_seconds: float


Watch = Callable[[Watched], None]


def run_for_real(
    plan: ReplayPlan,
    run: RealRun,
    live: PlannedRun,
    watch: Watch | None = None,
    *,
    loop_seconds: float | None = None,
    limit_seconds: float = math.inf,
) -> RunRecord:
    """Run all apps of a plan under one policy, each submitted at its time, until all have ended.

    The first app is submitted once arbiter and launcher are idle, because a start while they are still starting would
    be slower than all other starts and those of the simulation.

    Args:
        plan: the plan.
        run: policy and repeat.
        live: the live run, which the caller stops.
        watch: called after each poll.
        loop_seconds: CPU time of the pace meter's loop when the rates were measured; None: unknown.
        limit_seconds: time after the first submission within which all apps must end.

    Raises:
        EunomiaError: arbiter or launcher failed too often, an app was rejected, or the limit has passed.
    """
    run_in_this_installation(os.environ)
    live.start()
    live.settle()
    with PaceMeter(live.record.folder, reference_loop_seconds=loop_seconds) as meter, live.faults_of(plan):
        times = _until_all_ended(plan, run, live, watch, limit_seconds)
    return RunRecord(
        began_at=times.began_at,
        ended_at=times.ended_at,
        late_seconds=times.late_seconds,
        pace=meter.result(),
        faults=live.faults,
    )


@value
class _SubmissionTimes:
    """Unix times of the first submission and the end, and the largest delay of a submission in seconds."""

    began_at: float
    ended_at: float
    late_seconds: float


def _until_all_ended(
    plan: ReplayPlan, run: RealRun, live: PlannedRun, watch: Watch | None, limit_seconds: float
) -> _SubmissionTimes:
    began_at, began = time.time(), time.monotonic()
    left = sorted(plan.apps, key=lambda app: app.arrives_at_seconds)
    late = 0.0
    while True:
        since = time.monotonic() - began
        while left and left[0].arrives_at_seconds <= since:
            app = left[0]
            if not live.submit_planned(app):
                break  # the arbiter is being restarted
            left.pop(0)
            late = max(late, time.monotonic() - began - app.arrives_at_seconds)
        look = live.look()
        now = time.time()
        if watch is not None:
            watch(_watched(plan, run, live, look, len(plan.apps) - len(left)))
        if since > limit_seconds:
            rule = f"a real run must end within {limit_seconds:.0f} s, {LIMIT_BUDGETS:g} times its budget"
            raise EunomiaError(rule, value=f"{run.name} still runs", place=str(live.folder))
        if not left and live.is_over:
            return _SubmissionTimes(began_at=began_at, ended_at=now, late_seconds=late)
        pause = LOOK_SECONDS if not left else left[0].arrives_at_seconds - (time.monotonic() - began)
        time.sleep(min(LOOK_SECONDS, max(0.0, pause)))


def _watched(plan: ReplayPlan, run: RealRun, live: PlannedRun, look: Look, submitted: int) -> Watched:
    first = live.record.arrived_at
    since = 0.0 if first is None else look.at - first
    return Watched(
        run=run, look=look, record=live.record, submitted=submitted, apps=len(plan.apps), since_seconds=since
    )


def not_finished(record: LiveRecord, apps: Sequence[str]) -> list[str]:
    """Return the apps that did not finish, each with its state."""
    lives = {app: record.apps.get(app) for app in apps}
    return [
        f"{app} ({'never arrived' if life is None else life.state})"
        for app, life in lives.items()
        if life is None or life.state != "finished"
    ]


def check_finished(record: LiveRecord, apps: Sequence[str], place: Path) -> None:
    """Check that every app has finished.

    Raises:
        EunomiaError: some apps have not; the error names up to five of them.
    """
    missing = not_finished(record, apps)
    if missing:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise EunomiaError("all jobs of a replay must finish", value=named, place=str(place))
