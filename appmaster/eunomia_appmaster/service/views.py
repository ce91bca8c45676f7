"""What people see of apps, jobs and slots: the arbiter's state as messages."""

import math

import numpy as np
import structlog

from eunomia.decisions import Decision
from eunomia.explanations import Explanation
from eunomia.leases import GpuState
from eunomia.state import STAGES, State
from eunomia.units import NONE, AppId, JobId
from eunomia.verdicts import Reason
from eunomia.workload import JobState
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.apps import App
from eunomia_appmaster.service.messages import finite
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

SOONEST_ENDS = 4
"""Ends of leases that an explanation lists."""


class Views:
    """Makes the answers to people's questions; to be asked under the driver's lock."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _state(self) -> State:
        return self._service.state

    # --- apps ------------------------------------------------------------------------------------------------------

    def app(self, app: App) -> pb.App:
        """One app."""
        state, now = self._state, float(self._service.driver.clock.now())
        row = state.app_row(AppId(app.name))
        counts = self._counts(row)
        held = np.flatnonzero(state.holdings.live.app == row) if row != NONE and not app.over else np.empty(0)
        forecast = state.forecasts.get(row)
        most = app.most * max(1, app.trials) if forecast is None else forecast.most
        lived = (now if app.ended_at is None else app.ended_at) - app.arrived_at
        message = pb.App(
            app=app.name,
            user=app.user,
            state=app.state if app.over else _state_of(counts, held.size, bool(app.ended_jobs)),
            tuner=app.tuner,
            rho=self._service.standings.rho(app),
            slots=held.size,
            max_slots=min(most, state.cluster.gpus),
            running=counts["running"],
            waiting=counts["waiting"],
            paused=counts["paused"],
            ended=len(app.ended_jobs),
            done=app.progress,
            best=app.standing.get("best"),
            age_seconds=now - app.arrived_at,
            ends_in_seconds=None if app.over else self._ends_in(row, int(held.size)),
            why=app.why,
            standing=app.standing_message(),
            weight=app.weight,
            attempt=self._attempt(app),
            app_master=self._master(app),
            folder=str((self._service.settings.apps / app.name).resolve()),
        )
        if app.over:
            message.jct_seconds = lived
        return message

    def _counts(self, row: int) -> dict[str, int]:
        state = self._state
        states = state.jobs.live.state[: state.jobs.used][state.jobs.live.app[: state.jobs.used] == row]
        if row == NONE:
            states = states[:0]
        active = (states == JobState.RUNNING) | (states == JobState.STARTING) | (states == JobState.STOPPING)
        return {
            "running": int(active.sum()),
            "waiting": int((states == JobState.WAITING).sum()),
            "paused": int((states == JobState.PAUSED).sum()),
        }

    def _ends_in(self, row: int, slots: int) -> float | None:
        """Remaining work by the forecast over the slots that it holds; None: not known."""
        forecast = self._state.forecasts.get(row)
        if forecast is None or slots == 0:
            return None
        seconds = sum(
            job.iterations_left * job.seconds_per_iteration for phase in forecast.phases for job in phase.jobs
        )
        return seconds / slots

    def _attempt(self, app: App) -> int:
        session = self._service.sessions.get(app.name)
        return 0 if session is None else session.attempt

    def _master(self, app: App) -> str:
        node = self._service.nodes.get(app.node)
        status = None if node is None else node.app_masters.get(app.name)
        if status is None:
            return "unknown"
        names = {1: "running", 2: "backing_off", 3: "stopping", 4: "completed"}
        return names.get(int(status.state), "starting")

    # --- jobs and slots --------------------------------------------------------------------------------------------

    def jobs(self, app: App) -> list[pb.Job]:
        """An app's jobs: those that are here by arrival, then those that ended."""
        state = self._state
        row = state.app_row(AppId(app.name))
        mine = np.flatnonzero(state.jobs.live.app[: state.jobs.used] == row).tolist() if row != NONE else []
        mine.sort(key=lambda job: int(state.job_accounts.live.order[job]))
        living = [self._job(app, job) for job in mine]
        return living + [pb.Job(job=job, app=app.name, state=end) for job, end in app.ended_jobs.items()]

    def _job(self, app: App, row: int) -> pb.Job:
        state = self._state
        reason = state.reason(row)
        waits = state.jobs.live.state[row] in (JobState.WAITING, JobState.PAUSED)
        return pb.Job(
            job=state.job_id(row),
            app=app.name,
            state=JobState(int(state.jobs.live.state[row])).name.lower(),
            slots=int((state.holdings.live.job == row).sum()),
            iterations_done=self._done(row),
            iterations=finite(state.jobs.live.iterations[row]),
            reason=reason.word if reason is not None and waits else "",
            starts=int(state.jobs.live.starts[row]),
        )

    def _done(self, row: int) -> float:
        jobs = self._state.jobs.live
        since, done = float(jobs.since[row]), float(jobs.done[row])
        if not math.isnan(since):
            done += float(jobs.rate[row]) * max(0.0, float(self._service.driver.clock.now()) - since)
        most = float(jobs.iterations[row])
        return done if math.isnan(most) else min(done, most)

    def slots(self) -> list[pb.SlotView]:
        """Every slot of the cluster."""
        return [self._slot(gpu) for gpu in range(self._state.cluster.gpus)]

    def _slot(self, gpu: int) -> pb.SlotView:
        state, layout = self._state, self._service.nodes.layout
        held, cluster = state.holdings.live, state.cluster
        app, job = int(held.app[gpu]), int(held.job[gpu])
        now = float(self._service.driver.clock.now())
        ends = float(held.ends_at[gpu])
        view = pb.SlotView(
            gpu=gpu,
            machine=cluster.machines[cluster.machine[gpu]].name,
            slot=gpu if layout is None else layout.places[gpu].slot,
            gpu_type=cluster.gpu_types[cluster.gpu_type[gpu]],
            state=GpuState(int(held.state[gpu])).name.lower(),
            app="" if app == NONE else state.app_id(app),
            job="" if job == NONE else state.job_id(job),
            lease=int(held.lease[gpu]),
            ends_in_seconds=max(0.0, ends - now) if app != NONE and math.isfinite(ends) else None,
        )
        if job != NONE:
            view.iterations_done = self._done(job)
            most = finite(state.jobs.live.iterations[job])
            if most is not None:
                view.iterations = most
        return view

    # --- why a job waits -------------------------------------------------------------------------------------------

    def explanations(self, app: App, job: str | None) -> list[pb.Explanation]:
        """One job, or each of an app's jobs that wait; if none waits, all of them."""
        if job is not None and job in app.ended_jobs:
            return [pb.Explanation(job=job, app=app.name, user=app.user, state=app.ended_jobs[job])]
        if app.over:
            return [pb.Explanation(job=job or app.name, app=app.name, user=app.user, state=app.state, text=app.why)]
        state = self._state
        names = [one.job for one in self.jobs(app)] if job is None else [job]
        rows = [row for name in names if (row := state.job_row(JobId(name))) != NONE]
        waiting = [row for row in rows if state.jobs.live.state[row] in (JobState.WAITING, JobState.PAUSED)]
        shown = waiting or rows if job is None else rows
        if not shown and job is None:
            text = "its app master has not added any job yet"
            return [pb.Explanation(job=app.name, app=app.name, user=app.user, state="starting", text=text)]
        return [self._explanation(app, row) for row in shown]

    def _explanation(self, app: App, row: int) -> pb.Explanation:
        state, now = self._state, float(self._service.driver.clock.now())
        jobs, kept, ledger = state.jobs.live, state.job_accounts.live, state.job_ledger.live
        kind = JobState(int(jobs.state[row]))
        message = pb.Explanation(
            job=state.job_id(row),
            app=app.name,
            user=app.user,
            state=kind.name.lower(),
            seconds=max(0.0, now - float(kept.since[row])),
            round=int(kept.round[row]),
            said_seconds_ago=max(0.0, now - float(kept.since[row])),
            least=int(jobs.least[row]),
            most=int(jobs.most[row]),
            iterations_done=self._done(row),
            iterations=finite(jobs.iterations[row]),
            ran_seconds=float(ledger.attained[row]),
            waited_seconds=float(ledger.waited[row]),
            starts=int(jobs.starts[row]),
            slots=int((state.holdings.live.job == row).sum()),
        )
        if kind in (JobState.WAITING, JobState.PAUSED):
            self._say_why(message, row, now)
        return message

    def _say_why(self, message: pb.Explanation, row: int, now: float) -> None:
        state = self._state
        reason, kept = state.reason(row), state.job_accounts.live
        message.reason = "" if reason is None else reason.word
        message.plugin = state.turned_down_by(row)
        message.stage = "" if int(kept.stage[row]) < 0 else STAGES[int(kept.stage[row])].value
        planned = state.starts_at.get(row)
        if planned is not None and planned >= now:
            message.starts_in_seconds.extend([planned - now, planned - now])
        said = self._asked(message.plugin, message.round, state.job_id(row))
        if said is not None:
            message.text = said.text
            message.numbers.update({name: float(number) for name, number in said.numbers.items()})
            message.frees.extend(pb.Frees(what="text", text=text) for text in said.frees)
            if said.starts_in is not None and not message.starts_in_seconds:
                message.starts_in_seconds.extend(said.starts_in)
        if not message.text and reason is Reason.AWAITING_ROUND:
            message.text = self._nothing_free()
        if JobState(int(state.jobs.live.state[row])) is JobState.WAITING:
            message.frees.extend(self._ends(now))

    def _asked(self, plugin: str, number: int, job: JobId) -> Explanation | None:
        """The plugin's own words for its last verdict, if the round is still known."""
        arbiter = self._service.driver.arbiter
        explain = arbiter.serving.explain.get(plugin)
        decision = self._round(number)
        if explain is None or decision is None:
            return None
        try:
            said = explain(arbiter.snapshot(), decision, job)
        except Exception as error:  # a plugin's fault must not cost an answer
            log.warning("explain.failed", plugin=plugin, why=str(error))
            return None
        return said if isinstance(said, Explanation) else None

    def _nothing_free(self) -> str:
        """Why no round has looked at it, where that is because nothing was to be had."""
        states = self._state.holdings.live.state
        if (states == GpuState.FREE).any() or (states == GpuState.OFFERED).any():
            return ""
        return f"no slot is free: {states.size} of {states.size} are held, and a round comes when one is given back"

    def _round(self, number: int) -> Decision | None:
        """The decision that ended a round: with auctions, the one that closed its offer."""
        return next((made for made in reversed(self._service.driver.rounds) if made.round == number), None)

    def _ends(self, now: float) -> list[pb.Frees]:
        held = self._state.holdings.live
        ends = [
            (float(end), gpu)
            for gpu, end in enumerate(held.ends_at.tolist())
            if math.isfinite(end) and held.app[gpu] >= 0
        ]
        return [
            pb.Frees(
                what="lease_end",
                slot=gpu,
                in_seconds=max(0.0, end - now),
                text=f"lease of {self._state.app_id(int(held.app[gpu]))} ends",
            )
            for end, gpu in sorted(ends)[:SOONEST_ENDS]
        ]


def _state_of(counts: dict[str, int], slots: int, began: bool) -> str:
    if counts["running"] or slots:
        return "running"
    if counts["waiting"]:
        return "waiting"
    if counts["paused"]:
        return "paused"
    return "waiting" if began else "starting"
