"""The arbiter's state as messages about apps, jobs and slots for users."""

import math
from collections import Counter

import numpy as np

from eunomia.arbiter import ClusterView
from eunomia.contract.verdicts import Reason
from eunomia.explain.explaining import Explainer
from eunomia.model.leases import GpuState
from eunomia.model.workload import JobState
from eunomia.platform.profiles import Profile
from eunomia.units import NONE, AppId, JobId, Seconds
from eunomia_appmaster.app.outputs import OUTPUT_FOLDER
from eunomia_appmaster.explaining.explanations import describe, iterations_done
from eunomia_appmaster.explaining.failures import suspension_text
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as launcher
from eunomia_appmaster.service.app_record import LIVE, SUSPENDED, App
from eunomia_appmaster.service.messages import finite
from eunomia_appmaster.service.node_words import NodeWords
from eunomia_appmaster.service.service import Service

MOST_FAILURES = 5
"""Maximum number of failed trials per app in an answer, with their errors (the newest)."""

REPORT_INTERVALS = 3
"""Number of heartbeat intervals after its app master's last call for which a job is shown as making progress."""


class Views:
    """Builds the messages that answer the commands' requests; call its methods under the driver's lock."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._folder = service.settings.apps.resolve()
        self._nodes = NodeWords(service)

    @property
    def _view(self) -> ClusterView:
        return self._service.view

    # --- apps ------------------------------------------------------------------------------------------------------

    def app(self, app: App) -> pb.App:
        """Return one app as a message."""
        view, now = self._view, float(self._service.driver.clock.now())
        row = view.app_row(AppId(app.name))
        counts = self._counts(row)
        held = np.flatnonzero(view.gpus.app == row) if row != NONE and not app.over else np.empty(0)
        forecast = view.reports.forecasts.get(row)
        wish = app.most * max(1, app.trials) if forecast is None else forecast.most
        lived = app.lived_seconds(now)
        master = self._master_status(app)
        message = pb.App(
            app=app.name,
            user=app.user,
            state=_state_of(counts, held.size, bool(app.ended_jobs)) if app.state == LIVE else app.state,
            tuner=app.tuner,
            rho=self._service.standings.rho(app),
            slots=held.size,
            slots_by_type=self._by_type(held.astype(int).tolist()),
            max_slots=max(app.most, min(wish, self._service.upkeep.most_slots)),
            running=counts["running"],
            waiting=counts["waiting"],
            paused=counts["paused"],
            ended=len(app.ended_jobs),
            done=app.progress,
            best=app.standing.get("best"),
            age_seconds=now - app.arrived_at - app.away_seconds,
            arrived_at=app.arrived_at,
            ended_at_unix=app.ended_at_unix,
            ends_in_seconds=self._ends_in(row, int(held.size)) if app.state == LIVE else None,
            why=app.why,
            standing=app.standing_message(),
            weight=app.weight,
            attempt=self._start(app)[0],
            part=self._start(app)[1],
            app_master=self._master(app),
            folder=str(self._folder / app.name),
            trials=app.trials,
            app_master_stalls=0 if master is None else master.stalls,
            last_app_master_stall="" if master is None else master.last_stall,
            failed=app.failed,
            failures=[
                pb.FailedJob(job=job, why=why, log=self._log_of(job))
                for job, why in list(app.failures.items())[-MOST_FAILURES:]
            ],
        )
        if app.over:
            message.jct_seconds = lived
        else:
            message.waits_for = self.lacks(app, int(held.size))
        again = self._tried_again_in(app)
        if again is not None:
            message.tried_again_in_seconds = again
        message.held_back = app.state == SUSPENDED and self._is_held_back(app)
        return message

    def lacks(self, app: App, held: int) -> str:
        """Return text on the machines that an app's smallest job lacks; empty if it holds slots, or lacks none."""
        return "" if held else self._nodes.shortage(app.least)

    def _by_type(self, held: list[int]) -> Counter[str]:
        """Return the number of held slots by type; empty: the slots of the cluster have only one type."""
        cluster = self._view.cluster
        if np.unique(cluster.gpu_type[cluster.present()]).size < 2:  # ``gpu_types`` keeps types of left machines
            return Counter()
        return Counter(cluster.gpu_types[cluster.gpu_type[gpu]] for gpu in held)

    def _tried_again_in(self, app: App) -> float | None:
        """Return the seconds until the next attempt of a suspended app's master; None if not suspended or not known."""
        status, node = self._master_status(app), self._service.nodes.get(app.node)
        if app.state != SUSPENDED or node is None or status is None or not status.HasField("again_at"):
            return None
        return max(0.0, status.again_at - node.clock_offset.given - self._service.system.unix_time())

    def _is_held_back(self, app: App) -> bool:
        """Return whether a suspension does not end with time, such as one for an exceeded quota."""
        status = self._master_status(app)
        return status is not None and status.held_back

    def _counts(self, row: int) -> dict[str, int]:
        states = self._view.jobs.state[self._view.jobs_of(row)]
        active = (states == JobState.RUNNING) | (states == JobState.STARTING) | (states == JobState.STOPPING)
        return {
            "running": int(active.sum()),
            "waiting": int((states == JobState.WAITING).sum()),
            "paused": int((states == JobState.PAUSED).sum()),
        }

    def _ends_in(self, row: int, slots: int) -> float | None:
        """Return the seconds of remaining work, by the forecast, on the slots that the app holds; None if unknown."""
        forecast = self._view.reports.forecasts.get(row)
        if forecast is None or slots == 0:
            return None
        seconds = sum(
            job.iterations_left * job.seconds_per_iteration for phase in forecast.phases for job in phase.jobs
        )
        return seconds / slots

    def _start(self, app: App) -> tuple[int, int]:
        session = self._service.sessions.get(app.name)
        return (0, 0) if session is None else (session.attempt, session.part)

    def _master_status(self, app: App) -> launcher.AppMasterStatus | None:
        node = self._service.nodes.get(app.node)
        return None if node is None else node.app_masters.get(app.name)

    def _master(self, app: App) -> str:
        status = self._master_status(app)
        if status is None:
            return "unknown"
        names = {1: "running", 2: "backing_off", 3: "stopping", 4: "completed", 5: "suspended"}
        return names.get(int(status.state), "starting")

    # --- jobs and slots --------------------------------------------------------------------------------------------

    def jobs(self, app: App) -> list[pb.Job]:
        """Return an app's jobs: live ones by arrival, then ended ones."""
        view = self._view
        living = [self._job(app, job) for job in view.jobs_of(view.app_row(AppId(app.name))).tolist()]
        return living + [pb.Job(job=job, app=app.name, state=end) for job, end in app.ended_jobs.items()]

    def _job(self, app: App, row: int) -> pb.Job:
        view = self._view
        reason = self._reason(row)
        waits = view.jobs.state[row] in (JobState.WAITING, JobState.PAUSED)
        return pb.Job(
            job=view.job_id(row),
            app=app.name,
            state=JobState(int(view.jobs.state[row])).name.lower(),
            slots=int((view.gpus.job == row).sum()),
            iterations_done=self._done(row),
            iterations=finite(view.jobs.iterations[row]),
            reason=reason.word if reason is not None and waits else "",
            starts=int(view.jobs.starts[row]),
        )

    def _reason(self, row: int) -> Reason | None:
        """Return why a job waits: its last verdict's reason, or a more precise one if no round can start the job."""
        jobs, reason = self._view.jobs, self._view.verdict(row).reason
        waits = reason is Reason.AWAITING_ROUND and jobs.state[row] == JobState.WAITING
        lacks = waits and self._nodes.shortage(int(jobs.least[row]), int(jobs.gpu_type[row]))
        return Reason.NO_SIZE_FITS if lacks else reason

    def _done(self, row: int) -> float:
        return iterations_done(self._view, row, self._until(row))

    def _until(self, row: int) -> float:
        """Return the time up to which a job's progress is extrapolated, while its app master keeps calling."""
        view, now = self._view, float(self._service.driver.clock.now())
        session = self._service.sessions.get(view.app_id(int(view.jobs.app[row])))
        if session is None:
            return float(view.jobs.since[row])
        return now - max(0.0, session.silent_seconds - self._bound)

    @property
    def _bound(self) -> float:
        return REPORT_INTERVALS * float(self._service.settings.heartbeat)

    def _reported_ago(self, row: int) -> float | None:
        """Return the seconds since a running job's last report if it is overdue; else None."""
        jobs, now = self._view.jobs, float(self._service.driver.clock.now())
        ago = now - float(jobs.since[row])
        stands = jobs.state[row] == JobState.RUNNING and (jobs.rate[row] == 0.0 or self._until(row) < now)
        return ago if stands and ago > self._bound else None

    def slots(self, user: str = "") -> list[pb.SlotView]:
        """Return all slots of the cluster; for a user, without the names of other users' apps."""
        shown = [self._slot(gpu) for gpu in self._view.cluster.present().tolist()]
        for slot in shown if user else ():
            app = self._service.apps.get(slot.app) if slot.app else None
            if slot.app and (app is None or app.user != user):
                slot.app, slot.job = "", ""
        return shown

    def missing_slots(self) -> list[pb.MissingSlot]:
        """Return the slots that launchers did not find at their start."""
        nodes, cluster = self._service.nodes, self._view.cluster
        layout, types = nodes.layout, cluster.gpu_types
        found = [(node, slot) for node in nodes for slot in nodes.missing(node)] if layout is not None else []
        numbers = [(node, slot, layout.gpu(node.name, slot)) for node, slot in found] if layout is not None else []
        return [
            pb.MissingSlot(
                node=node.name,
                slot=slot,
                gpu_type="" if gpu is None else types[cluster.gpu_type[gpu]],
                cpus=not node.uuids,
            )
            for node, slot, gpu in numbers
        ]

    def _slot(self, gpu: int) -> pb.SlotView:
        view, layout = self._view, self._service.nodes.layout
        held, cluster = view.gpus, view.cluster
        app, job = int(held.app[gpu]), int(held.job[gpu])
        now = float(self._service.driver.clock.now())
        ends = float(held.ends_at[gpu])
        shown = pb.SlotView(
            gpu=gpu,
            machine=cluster.machines[cluster.machine[gpu]].name,
            slot=gpu if layout is None else layout.places[gpu].slot,
            gpu_type=cluster.gpu_types[cluster.gpu_type[gpu]],
            state=GpuState(int(held.state[gpu])).name.lower(),
            app="" if app == NONE else view.app_id(app),
            job="" if job == NONE else view.job_id(job),
            lease=int(held.lease[gpu]),
            ends_in_seconds=max(0.0, ends - now) if app != NONE and math.isfinite(ends) else None,
        )
        if job != NONE:
            shown.iterations_done = self._done(job)
            ago = self._reported_ago(job)
            if ago is not None:
                shown.reported_seconds_ago = ago
            most = finite(view.jobs.iterations[job])
            if most is not None:
                shown.iterations = most
        return shown

    # --- why a job waits -------------------------------------------------------------------------------------------

    def explanations(self, app: App, job: str | None) -> list[pb.Explanation]:
        """Return explanations of one job, or of an app's waiting jobs (of all its jobs if none waits) and failed ones.

        An ended app, or one without jobs yet (even if a job was requested), has an explanation of the app itself.

        The reasons come from ``explainer``. Empty: the app has no such job.
        """
        if job is not None and job in app.ended_jobs:
            return [self._ended(app, job)]
        if app.over and job is not None:
            return []
        failed = [] if job is not None else [self._ended(app, one) for one in app.failures]
        if app.over:
            whole = pb.Explanation(job=app.name, app=app.name, user=app.user, state=app.state, text=app.why)
            return [whole, *failed]
        view = self._view
        names = [one.job for one in self.jobs(app)] if job is None else [job]
        rows = [row for name in names if (row := view.job_row(JobId(name))) != NONE]
        waiting = [row for row in rows if view.jobs.state[row] in (JobState.WAITING, JobState.PAUSED)]
        shown = waiting or rows if job is None else rows
        suspended = [] if app.state != SUSPENDED else [self._suspended(app)]
        if not shown and not suspended and (job is None or not self.jobs(app)):
            text = "its app master has not added any job yet"
            whole = pb.Explanation(job=app.name, app=app.name, user=app.user, state="submitted", text=text)
            return failed or [whole]
        return [*suspended, *(self._described(row) for row in shown), *failed]

    def _suspended(self, app: App) -> pb.Explanation:
        """Return the explanation of an app's suspension, with the time of the next attempt."""
        text = suspension_text(self.app(app))
        return pb.Explanation(job=app.name, app=app.name, user=app.user, state=app.state, text=text)

    def _ended(self, app: App, job: str) -> pb.Explanation:
        """Return the explanation of an ended job; of a failed one, with its last error."""
        state = app.ended_jobs[job]
        said = pb.Explanation(job=job, app=app.name, user=app.user, state=state, text=app.failures.get(job, ""))
        if state == "failed":
            said.log = self._log_of(job)
        return said

    def _log_of(self, job: str) -> str:
        app, _, number = job.rpartition("/")
        return str(self._folder / app / number / OUTPUT_FOLDER)

    def _not_tuned(self, row: int) -> list[str]:
        """Return lines on machines that refuse the CPUs or memory that a policy gave to a job's slots."""
        nodes, gpus, found = self._service.nodes, np.flatnonzero(self._view.gpus.job == row).tolist(), list[str]()
        places = [] if nodes.layout is None else [nodes.layout.places[gpu] for gpu in gpus]
        for place in places:
            node = nodes.get(place.node)
            state = None if node is None else node.slot_states.get(place.slot)
            if state is not None and state.not_tuned:
                found.append(f"slot {place.slot} of {place.node} keeps its CPUs and memory: {state.not_tuned}")
        return found

    def _described(self, row: int) -> pb.Explanation:
        said = describe(self._view, row, float(self._service.driver.clock.now()), until=self._until(row))
        said.text = "; ".join(filter(None, [said.text, *self._not_tuned(row)]))
        said.slots_by_node.update(self._nodes.slots_of(row))
        said.nodes.extend([*self._nodes.about(row), *self.left_out(said.app)])
        ago = self._reported_ago(row)
        if ago is not None:
            said.reported_seconds_ago = ago
        return said

    def left_out(self, app: str) -> list[str]:
        """Return lines on the nodes on which an app gets no slots, with the reasons."""
        now = self._service.system.unix_time()
        return [one.words(now) for one in self._service.left_out.of(app)]

    def explainer(self) -> Explainer:
        """Return the explainer of the present waits, which may be used without the lock."""
        service, driver = self._service, self._service.driver
        cluster = self._view.cluster
        return Explainer(
            driver.arbiter.save(),
            cluster,
            service.profile.stages(cluster),
            Profile.fallback().stages(cluster),
            driver.rounds,
            Seconds(max(driver.clock.now(), self._view.now)),
        )


def _state_of(counts: dict[str, int], slots: int, began: bool) -> str:
    if counts["running"] or slots:
        return "running"
    if counts["waiting"]:
        return "waiting"
    if counts["paused"]:
        return "paused"
    return "waiting" if began else "starting"
