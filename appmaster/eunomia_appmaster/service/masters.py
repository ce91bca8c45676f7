"""``ApplicationMasterProtocol``: the service that app masters call; see arbiter.proto."""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import numpy as np
import structlog

from eunomia.arbiter import ClusterView
from eunomia.contract.bundles import ByBundle, offer_classes
from eunomia.contract.decisions import Decision
from eunomia.contract.events import (
    JOB_ENDED,
    NOW,
    Adapted,
    BidReceived,
    Event,
    GpusReturned,
    JobAdded,
    JobFailed,
    JobFinished,
    JobPaused,
    JobReported,
    JobResumed,
    RateMeasured,
)
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.leases import GpuState
from eunomia.units import NONE, AppId, JobId, Seconds, Stage
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.bounds import MOST_BID_PARTS, MOST_BID_ROWS, MOST_JOBS
from eunomia_appmaster.service.driver import QUIET
from eunomia_appmaster.service.left_out import LeftOut
from eunomia_appmaster.service.messages import bid_of, cluster_message, events_of, job_views
from eunomia_appmaster.service.rates import Rate, exhausted, peer_of
from eunomia_appmaster.service.refusals import header_text
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.sessions import LEAST_SECONDS, Session
from eunomia_appmaster.service.tokens import Role
from eunomia_appmaster.service.users import check_jobs
from eunomia_appmaster.service.waiting import wait_for_change

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
OwnRequest = pb.RegisterApplicationMasterRequest | pb.AllocateRequest | pb.FinishApplicationMasterRequest
MOST_CALLS = 8
"""Maximum number of heartbeats of one app master that may be outstanding at the same time."""
_QUIET_FIELDS = frozenset(("app", "attempt", "response_id", "progress", "jobs_progress", "forecast", "standing"))
_LATE = (JobReported, RateMeasured, Adapted, JobFinished, JobFailed, JobPaused, JobResumed)
"""Events that are ignored for an ended job: repeated reports, or reports sent before its end was known."""
_LATE_NAMES = frozenset(kind.__name__ for kind in _LATE)


class ApplicationMasterProtocol(rpc.ApplicationMasterProtocolServicer):
    """Registers app masters, applies their reports, and answers with changes of leases and offers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registrations = Rate("registrations of one app", 5.0, 20.0)
        self._from_address = Rate("registrations from one address", 200.0, 1000.0)

    async def RegisterApplicationMaster(  # noqa: N802
        self, request: pb.RegisterApplicationMasterRequest, context: Context
    ) -> pb.RegisterApplicationMasterResponse:
        """Register an app master, and answer with its app's state."""
        app = await self._own(request, context)
        service = self._service
        now = asyncio.get_running_loop().time()
        await self._registrations.ask(app.name, now, context)
        await self._from_address.ask(peer_of(context), now, context)
        await _check(request, context)
        if app.over:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{app.name} is over: {_end_of(app)}")
        before = service.sessions.get(app.name)
        if before is not None and (request.attempt, request.part) < (before.attempt, before.part):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a later attempt of this app's master is there")
        session = Session(
            app.name,
            request.attempt,
            request.part,
            bids=self._can_bid(request),
            live=request.live,
            system=self._service.system,
        )
        service.sessions[app.name] = session
        if before is not None:
            before.calls += 1
            before.changed.set()
        log.info("app_master.registered", app=app.name, attempt=request.attempt, bids=session.bids)
        service.hear_mark(f"the app master of {app.name}", request.mark)
        async with service.driver.lock:
            return self._welcome(session, app)

    async def Allocate(  # noqa: N802
        self, request: pb.AllocateRequest, context: Context
    ) -> pb.AllocateResponse:
        """Apply reports; answer at once if there is news, else after the heartbeat interval."""
        app = await self._own(request, context)
        session = self._service.sessions.get(app.name)
        command = _command(app, session, request, self._service.view.cluster)
        if command is not None or session is None:
            return command or pb.AllocateResponse(a_m_command=pb.AM_RESYNC)
        if session.waiting >= MOST_CALLS:
            rule = f"at most {MOST_CALLS} heartbeats of an app master may be on their way, but got more"
            await exhausted(context, rule, app.name, MOST_CALLS * LEAST_SECONDS)
        await session.take_turn()
        # Checked only now, since an earlier call may have been answered while this one waited.
        repeated = session.last is not None and request.response_id == session.response_id - 1
        if not repeated and request.response_id != session.response_id:
            why = f"response_id must be {session.response_id}, that of the last answer, but got {request.response_id}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        session.calls += 1
        session.changed.set()  # an earlier call that still waits is answered now
        call = session.calls
        due = float(self._service.driver.clock.now()) + float(self._service.settings.heartbeat)
        await self._take(session, app, request, acknowledges=not repeated)
        if repeated and session.last is not None:
            return session.last
        return await self._answer(session, app, request, call, due)

    async def FinishApplicationMaster(  # noqa: N802
        self, request: pb.FinishApplicationMasterRequest, context: Context
    ) -> pb.FinishApplicationMasterResponse:
        """Record that an app has ended."""
        app = await self._own(request, context)
        await _check(request, context)
        service = self._service
        session = service.sessions.get(app.name)
        if session is not None and request.attempt < session.attempt:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a later attempt of this app's master is there")
        if not app.over:
            if request.HasField("standing"):
                app.take_standing(request.standing)
            failed = request.final_application_status == pb.FAILED
            if not failed:
                app.progress = 1.0
            state = "cancelled" if request.final_application_status == pb.KILLED else "failed" if failed else "finished"
            async with service.driver.lock:
                for job in request.jobs_failed:
                    if job.job.rpartition("/")[0] == app.name and job.job not in app.failures:
                        app.job_failed(job.job, job.why)
                service.end(app, state, request.diagnostics)
            await service.driver.fold([])
        service.sessions.pop(app.name, None)
        return pb.FinishApplicationMasterResponse(is_unregistered=True)

    async def _own(self, request: OwnRequest, context: Context) -> App:
        """Return the request's app if the caller's token is that app's; else end the call."""
        name = request.app
        caller = self._service.tokens.caller(context.invocation_metadata())
        if caller is None or caller.role is not Role.APP or caller.app != name:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f'an app may touch only what is its own, but got "{name[:100]}"'
            )
        app = self._service.apps.get(name)
        if app is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f'no app "{name}" is here')
            raise InputError("an app must be here", value=name)
        if why := self._service.away or self._service.question:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)
        return app

    # --- registration ----------------------------------------------------------------------------------------------

    def _can_bid(self, request: pb.RegisterApplicationMasterRequest) -> bool:
        service = self._service
        if service.profile.rounds.bid_deadline is None:
            return False
        here = {(plugin.name, plugin.version) for plugin in request.agent_plugins}
        needed = (service.stage_plugins.of(Stage.ELASTICITY), service.stage_plugins.of(Stage.VALUATION))
        return all((plugin.name, plugin.version) in here for plugin in needed)

    def _welcome(self, session: Session, app: App) -> pb.RegisterApplicationMasterResponse:
        service, view = self._service, self._service.view
        row = view.app_row(AppId(app.name))
        leases, tokens = service.news_writer.everything(session, view)
        session.cluster = view.cluster
        machines = view.cluster.machines
        return pb.RegisterApplicationMasterResponse(
            maximum_capability=pb.Resource(
                memory_gib=max(machine.memory_gib or 0.0 for machine in machines),
                cpus=max(machine.cpus or 0.0 for machine in machines),
                gpus=1.0,
            ),
            containers_from_previous_attempts=[container for lease in leases for container in lease.containers],
            queue=service.driver.arbiter.serving.profile,
            cluster=cluster_message(view.cluster),
            elasticity=service.stage_plugins.of(Stage.ELASTICITY),
            valuation=service.stage_plugins.of(Stage.VALUATION),
            agent_bids=session.bids,
            leases=leases,
            now=service.driver.clock.now(),
            arrived_at=app.arrived_at if row == NONE else float(view.apps.arrived[row]),
            user=app.user,
            weight=app.weight,
            user_weight=1.0 if row == NONE else float(view.users.weight[view.apps.user[row]]),
            heartbeat_seconds=float(service.settings.heartbeat),
            seed=view.seed,
            node_tokens=tokens,
            jobs=[] if row == NONE else job_views(view, row),
            max_bid_rows=MOST_BID_ROWS,
            max_bid_parts=MOST_BID_PARTS,
            mark=service.marks.present,
            lease_seconds=service.nodes.leases.seconds if service.nodes.are_several else 0.0,
            node_authority=service.node_authority.pem() if any(token.certificate_name for token in tokens) else b"",
        )

    # --- reports ---------------------------------------------------------------------------------------------------

    async def _take(self, session: Session, app: App, request: pb.AllocateRequest, *, acknowledges: bool) -> None:
        """Apply the reports of a request; the next answer lists the refused reports."""
        events: list[Event] = list(session.take_acknowledged()) if acknowledges else []
        if not events and _is_quiet(request):
            self._put_quiet(session, app, request)
            return
        bid: BidReceived | None = None
        async with self._service.driver.lock:
            view = self._service.view
            try:
                bounds.check(request)
                reports = self._bounded(
                    view, app, _timely(view, list(_events_of(view, request, self._service.driver.clock.now())))
                )
                resized = session.resizes.hear(request.resized, view, app.name, self._service.driver.clock.now())
                events += [*resized, *reports, *self._returned(view, session, request)]
                bid = self._bid(view, session, request)
                notes = [app.note()] if self._note(app, request, reports) else []
            except InputError as error:
                session.refused.append(str(error))
                notes = []
            if request.HasField("left_out"):
                unix = self._service.system.unix_time()
                events += self._service.left_out.hear(
                    app.name, [LeftOut.read(one, unix) for one in request.left_out.nodes]
                )
        events += [] if bid is None else [bid]
        if any(not isinstance(event, QUIET) for event in events):
            decision = await self._service.driver.fold(events, notes)
            _store_refusals(session, decision, bid)
        elif events or notes:
            self._service.driver.put(events, notes)

    def _put_quiet(self, session: Session, app: App, request: pb.AllocateRequest) -> None:
        """Queue reports that can be checked without the arbiter's state, so that they need not wait for a step.

        Reports about ended jobs are dropped by the step.
        """
        try:
            bounds.check(request)
            events = list(events_of(request))
        except InputError as error:
            session.refused.append(str(error))
            return
        notes = [app.note()] if self._note(app, request, events) else []
        if events or notes:
            self._service.driver.put(events, notes)

    def _bounded(self, view: ClusterView, app: App, events: Iterable[Event]) -> list[Event]:
        """Check the events of a report against bounds (number of an app's jobs, existing GPUs), and return them.

        Raises:
            InputError: the first event out of bounds; the whole message is refused.
        """
        found = list(events)
        added = sum(isinstance(event, JobAdded) for event in found)
        row = view.app_row(AppId(app.name))
        known = view.jobs_of(row).size
        if added and added + known + len(app.ended_jobs) > MOST_JOBS:
            value = f"{added} in addition to {known} and {len(app.ended_jobs)} that have ended"
            raise InputError(f"an app must have at most {MOST_JOBS} jobs", value=value, place=app.name)
        if added and (user := self._service.users.known(app.user)) is not None:
            check_jobs(user, view, added, place=app.name)
        for event in found:
            if isinstance(event, RateMeasured):
                _check_rate(view, event)
        return found

    def _bid(self, view: ClusterView, session: Session, request: pb.AllocateRequest) -> BidReceived | None:
        """Return the request's bid, if it is valid for the open offer."""
        if not request.HasField("bid"):
            return None
        offer = view.open_offer
        try:
            bid = bid_of(session.app, request.bid)
            if offer is None or bid.offer != offer.id:
                open_one = "none is open" if offer is None else f"{offer.id} is open"
                raise InputError(
                    f"a bid must name the open offer ({open_one})", value=str(bid.offer), place=session.app
                )
            if isinstance(bid.form, ByBundle):
                bid.form.check(classes=offer_classes(view.cluster, offer), place=session.app)
        except InputError as error:
            session.bid_error = str(error)
            return None
        return bid

    def _returned(self, view: ClusterView, session: Session, request: pb.AllocateRequest) -> Iterator[GpusReturned]:
        """Yield events for the slots that the app gives back, if it holds them under that lease."""
        held, row = view.gpus, view.app_row(AppId(session.app))
        gpus: set[int] = set()
        for release in request.release:
            lease = view.lease(release.lease)
            if lease is None or lease.app != row or release.epoch < lease.epoch:
                continue  # superseded by a newer order
            named = np.array([gpu for gpu in release.gpus if 0 <= gpu < view.cluster.gpus], dtype=np.int64)
            mine = named[(held.lease[named] == lease.id) & (held.state[named] != GpuState.LEAVING)]
            gpus |= set(mine.tolist())
        if gpus:
            yield GpusReturned(app=AppId(session.app), gpus=tuple(sorted(gpus)))

    def _note(self, app: App, request: pb.AllocateRequest, events: list[Event]) -> bool:
        """Store the app's report for users; returns whether it changed."""
        before = app.progress, app.standing, len(app.ended_jobs)
        if request.HasField("progress") and 0.0 <= request.progress <= 1.0:
            app.progress = request.progress
        if request.HasField("standing"):
            app.take_standing(request.standing)
        for event in events:
            if isinstance(event, JobAdded):
                app.ended_jobs.pop(event.job, None)  # of a resumed app
                app.failures.pop(event.job, None)
            elif isinstance(event, JobFinished):
                app.ended_jobs[event.job] = "finished"
            elif isinstance(event, JobFailed) and event.again_in is None:
                app.job_failed(event.job, event.why)
        return before != (app.progress, app.standing, len(app.ended_jobs))

    # --- the answer ------------------------------------------------------------------------------------------------

    async def _answer(
        self, session: Session, app: App, request: pb.AllocateRequest, call: int, due: float
    ) -> pb.AllocateResponse:
        """Wait for news, for the heartbeat's end, or for a later call that supersedes this one.

        The driver's lock is acquired only if there may be news, so that other answers need not wait for a step.
        """
        service = self._service
        while True:
            session.changed.clear()
            if session.calls != call:
                return pb.AllocateResponse(response_id=request.response_id, now=service.driver.clock.now())
            command = _command(app, service.sessions.get(app.name), request, service.view.cluster)
            if command is not None:
                return command
            left = due - float(service.driver.clock.now())
            answer = None
            if session.may_have_news():
                async with service.driver.lock:
                    if session.calls != call:
                        continue
                    session.looked()
                    answer = service.news_writer.news(session, service.view, service.driver.clock.now())
            if answer is None and left <= 0.0:
                answer = pb.AllocateResponse()
            if answer is None:
                await wait_for_change(session.changed, left, session.changed.is_set)
                continue
            session.response_id += 1
            answer.response_id = session.response_id
            answer.now = service.driver.clock.now()
            answer.mark = service.marks.present
            session.last = answer
            return answer


async def _check(request: OwnRequest, context: Context) -> None:
    """End the call if the request is out of bounds."""
    try:
        bounds.check(request)
    except InputError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, header_text(str(error)))


def _check_rate(view: ClusterView, event: RateMeasured) -> None:
    cluster = view.cluster
    if event.gpus > cluster.gpus:
        rule = f"a rate must be of at most the cluster's {cluster.gpus} GPUs"
        raise InputError(rule, value=str(event.gpus), place=event.job)
    if event.gpu_type not in cluster.gpu_types:
        rule = f"a rate must be of a GPU type of the cluster ({', '.join(cluster.gpu_types)})"
        raise InputError(rule, value=f'"{event.gpu_type[:50]}"', place=event.job)


def _command(
    app: App, session: Session | None, request: pb.AllocateRequest, cluster: Cluster
) -> pb.AllocateResponse | None:
    """Return the command that ends an app master whose app has ended, or that was superseded; None if there is none.

    An app master with an outdated cluster gets the command to register again, since machines have joined or left.
    """
    if app.over:
        return pb.AllocateResponse(
            a_m_command=pb.AM_SHUTDOWN,
            response_id=request.response_id,
            diagnostics=f"{app.name} is over: {_end_of(app)}",
        )
    if session is None or request.attempt > session.attempt:
        return pb.AllocateResponse(a_m_command=pb.AM_RESYNC, response_id=request.response_id)
    if request.attempt == session.attempt and session.cluster is not cluster:
        return pb.AllocateResponse(a_m_command=pb.AM_RESYNC, response_id=request.response_id)
    if request.attempt < session.attempt:
        why = "a later attempt of this app's master is there"
        return pb.AllocateResponse(a_m_command=pb.AM_SHUTDOWN, response_id=request.response_id, diagnostics=why)
    return None


def _is_quiet(request: pb.AllocateRequest) -> bool:
    """Return whether a request has no other reports than progress, a forecast and data for users."""
    return all(field.name in _QUIET_FIELDS for field, _ in request.ListFields())


def _end_of(app: App) -> str:
    return f"{app.state}, {app.why}" if app.why else app.state


def _timely(view: ClusterView, events: list[Event]) -> Iterator[Event]:
    """Yield the events without repetitions and without those about ended jobs."""
    added = {event.job for event in events if isinstance(event, JobAdded)}
    for event in events:
        job: JobId | None = getattr(event, "job", None)
        known = job is None or view.job_row(job) != NONE
        if isinstance(event, JobAdded):
            if not known:
                yield event
        elif known or job in added or not isinstance(event, _LATE):
            yield event


def _events_of(view: ClusterView, request: pb.AllocateRequest, now: Seconds) -> Iterator[Event]:
    """Yield the events of a request; adaptations keep their order despite clocks and delays."""

    def adapted_at(job: JobId) -> Seconds:
        known = view.reports.adaptations.get(view.job_row(job))
        return known.kept[-1].at if known is not None and known.kept else NOW

    return events_of(request, now=now, date=datetime.now(UTC).date().isoformat(), adapted_at=adapted_at)


def _store_refusals(session: Session, decision: Decision, bid: BidReceived | None) -> None:
    """Store the refused reports for the session's next answer, except those about jobs that had ended meanwhile."""
    for fault in decision.faults:
        if JOB_ENDED in fault.what and fault.what.partition(":")[0] in _LATE_NAMES:
            continue
        if fault.stage is None and session.app in fault.what:
            if bid is not None and fault.what.startswith("BidReceived"):
                session.bid_error = fault.what
            else:
                session.refused.append(fault.what)
