"""``ClientProtocol``: the service that the commands call; see arbiter.proto."""

import asyncio
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message

from eunomia import __version__
from eunomia.contract.events import AppArrived, ProfileChanged
from eunomia.errors import InputError, InputErrors
from eunomia.model.leases import GpuState
from eunomia.units import AppId, UserId
from eunomia_appmaster.app.names import in_order as by_number
from eunomia_appmaster.app.names import no_such_app, no_such_job
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.explaining.explanations import EXPLAINED, add_reasons
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.file_rights import as_account
from eunomia_appmaster.node.kept_apart import admit_login
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.service import bounds
from eunomia_appmaster.service.app_record import App, app_of
from eunomia_appmaster.service.apps import in_order
from eunomia_appmaster.service.deciding import lacks_first_node
from eunomia_appmaster.service.join_calls import JoinCalls
from eunomia_appmaster.service.more_trials import add_trials
from eunomia_appmaster.service.node_calls import NodeCalls
from eunomia_appmaster.service.profiling import set_profile
from eunomia_appmaster.service.refusals import no_node, refuse
from eunomia_appmaster.service.resuming import resume
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.upkeep import Upkeep
from eunomia_appmaster.service.user_calls import UserCalls
from eunomia_appmaster.service.views import Views

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
SUBMITTERS_ENV = ("PATH", "HOME", "LANG", "VIRTUAL_ENV")


class ClientProtocol(UserCalls, NodeCalls, JoinCalls, rpc.ClientProtocolServicer):
    """Accepts apps, and reports the state of apps, jobs and slots with the reasons.

    A user's token gives access only to that user's own apps.
    """

    def __init__(self, service: Service) -> None:
        UserCalls.__init__(self, service)
        NodeCalls.__init__(self, service)
        JoinCalls.__init__(self, service)
        self._service = service
        self._views = Views(service)
        self._submitting = asyncio.Lock()

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        """Check an app file, store it, and start its app master."""
        await self._ask_rate(context)
        await self._decides(request, context)
        me = self._user(context)
        try:
            login = self._service.users.login_of(me)
            file = await asyncio.to_thread(_parsed_as, login, request, self._service.upkeep, me)
            # The caller may disconnect meanwhile: the submission is completed all the same.
            app = await asyncio.shield(asyncio.ensure_future(self._admit_once(request, file, me)))
        except InputError as error:
            await refuse(context, error)
            raise
        answer = await self._accepted(app, str(file.app.name))
        if not file.command.names_any(file.space):
            answer.unnamed_parameters.extend(file.space)
        return answer

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:  # noqa: N802
        """List apps, jobs and slots."""
        await self._ready(request, context)
        service, views = self._service, self._views
        older, more = await asyncio.to_thread(self._archived, request)
        async with service.driver.lock:
            here = self._visible(self._chosen(request), context)
            older = self._visible(older, context)
            return pb.ListResponse(
                now=service.driver.clock.now(),
                apps=[views.app(app) for app in in_order((*older, *here))],
                jobs=[job for app in here for job in views.jobs(app)] if request.jobs else [],
                slots=views.slots(self._user(context)) if request.slots else [],
                serving=service.driver.arbiter.serving.profile,
                round=service.view.round,
                next_round_in_seconds=service.driver.next_round_in,
                missing_slots=views.missing_slots(),
                question=service.question,
                more_ended_before=more,
                warnings=[
                    *filter(None, [service.reserve.words()]),
                    *(f"{app.name} gets {words}" for app in here for words in views.left_out(app.name)),
                ],
            )

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:  # noqa: N802
        """Explain the state of a job or of an app's jobs: why they wait, or why they failed."""
        await self._ready(request, context)
        app, job = self._find(request.job, context)
        if app is not None:
            async with self._service.driver.lock:
                found = self._views.explanations(app, job)
                said = any(one.state in EXPLAINED for one in found)
                explainer = self._views.explainer() if said else None
                missing = self._views.missing_slots() if said else []
            if explainer is not None:
                await asyncio.to_thread(add_reasons, explainer, found, self._service.nodes.layout)
                for one in found:
                    one.missing_slots.extend(missing if one.state == "waiting" else ())
            if found:
                return pb.ExplainResponse(explanations=found)
        apps = await self._names(context)
        async with self._service.driver.lock:
            jobs = [] if app is None else [one.job for one in self._views.jobs(app)]
        error = no_such_job(request.job, by_number(jobs), apps)
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        raise error

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:  # noqa: N802
        """End an app, and revoke its leases."""
        await self._decides(request, context)
        service = self._service
        app = await self._named(request.app, context)
        was_over = app.over
        if not was_over:
            async with service.driver.lock:
                service.end(app, "cancelled")
            await service.driver.fold([])
        return pb.CancelResponse(app=app.name, was_over=was_over, state=app.state)

    async def Health(self, request: pb.HealthRequest, context: Context) -> pb.HealthResponse:  # noqa: N802
        """Report the arbiter's health, also before it is ready."""
        service = self._service
        answer = pb.HealthResponse(
            version=__version__,
            pid=os.getpid(),
            host=_host(),
            profile=service.profile.name,
            state_dir=str(service.settings.state_dir.resolve()),
            nodes=[
                pb.NodeHealth(
                    node=node.name,
                    alive=node.registered and not node.lost,
                    silent_seconds=node.silent_seconds,
                    draining=node.draining,
                    slots=len(node.slot_states),
                    state=self._words.state(node) if service.decides else "",
                    why=self._words.why(node) if service.decides else "",
                )
                for node in service.nodes
            ],
            ready=service.away is None and not service.question,
            question=service.question,
            warnings=[*filter(None, [service.reserve.words()]), *_clocks(service)],
            started_at_unix=service.started_at,
        )
        if answer.ready:
            async with service.driver.lock:
                self._fill_health(answer, self._user(context))
        elif service.away is not None and service.ready.is_set():
            answer.faults.append(service.away)
        return answer

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:  # noqa: N802
        """Return from the fallback to the configured profile."""
        await self._decides(request, context)
        await self._service.driver.fold([ProfileChanged(profile=self._service.profile.name)])
        return pb.ResumeResponse(serving=self._service.driver.arbiter.serving.profile)

    async def ResumeApp(  # noqa: N802
        self, request: pb.ResumeAppRequest, context: Context
    ) -> pb.ResumeAppResponse:
        """Restart a suspended app at once, or resume one that failed because its app master ended."""
        await self._decides(request, context)
        app, me = await self._named(request.app, context), self._user(context)
        try:
            if app.over:
                self._check_more(me, jobs=app.unfinished, app=app.name)
            # A caller that disconnects does not cancel it halfway.
            attempt, unfinished = await asyncio.shield(asyncio.ensure_future(self._resume_once(request.app)))
        except InputError as error:
            await refuse(context, error)
            raise
        return pb.ResumeAppResponse(app=app.name, attempt=attempt, unfinished=unfinished)

    async def MoreTrials(  # noqa: N802
        self, request: pb.MoreTrialsRequest, context: Context
    ) -> pb.MoreTrialsResponse:
        """Add trials to an app that has ended, and let its search continue."""
        await self._decides(request, context)
        app, me = await self._named(request.app, context), self._user(context)
        try:
            self._check_more(me, jobs=request.trials + (app.unfinished if app.over else 0), app=app.name)
            # A caller that disconnects does not cancel it halfway.
            return await asyncio.shield(asyncio.ensure_future(self._more_trials_once(request)))
        except InputError as error:
            await refuse(context, error)
            raise

    async def SetProfile(  # noqa: N802
        self, request: pb.SetProfileRequest, context: Context
    ) -> pb.SetProfileResponse:
        """Replace or drop the known rates of a kind of job."""
        await self._decides(request, context)
        try:
            return await set_profile(self._service, request)
        except InputError as error:
            await refuse(context, error)
            raise

    async def AcceptLoss(  # noqa: N802
        self, request: pb.AcceptLossRequest, context: Context
    ) -> pb.AcceptLossResponse:
        """Make decisions from now on, without the steps that the journal has lost."""
        await self._ready(request, context)
        if self._service.loss is None:
            await refuse(context, InputError("a loss must be asked about before it is accepted", value="none is"))
        return pb.AcceptLossResponse(accepted=self._service.accept_loss())

    # --- parts -----------------------------------------------------------------------------------------------------

    async def _ready(self, request: Message, context: Context) -> None:
        try:
            bounds.check(request)
        except InputError as error:
            await refuse(context, error)
        if lacks_first_node(self._service):
            await refuse(context, no_node())
        if (why := self._service.away) is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)

    async def _decides(self, request: Message, context: Context) -> None:
        """Refuse a request that needs a decision while the operator has not answered whether steps may be lost."""
        await self._ready(request, context)
        if question := self._service.question:
            await refuse(context, InputError("the arbiter must have all its steps to decide", value=question))

    def _chosen(self, request: pb.ListRequest) -> list[App]:
        """Return the requested apps; archived apps only if they are named."""
        if request.ended_before:
            return []
        apps = self._service.apps
        named = apps.get(request.app) if request.app else None
        asked = list(apps) if not request.app else [] if named is None else [named]
        return [app for app in asked if request.ended or not app.over]

    def _archived(self, request: pb.ListRequest) -> tuple[list[App], int]:
        """Return the requested apps that only the journal has, and the journal position for their next page."""
        apps = self._service.apps
        if not request.ended or request.app:
            return [], 0
        return apps.archived_page(request.ended_before) if request.HasField("ended_before") else (apps.archived(), 0)

    async def _named(self, name: str, context: Context) -> App:
        """Return an app that the caller may access; if there is none of this name, end the call with an error."""
        if (app := self._own(name, context)) is not None:
            return app
        error = no_such_app(name, await self._names(context))
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        raise error

    async def _names(self, context: Context) -> list[str]:
        """Return the names of the caller's apps, those that have not ended first."""
        older = await asyncio.to_thread(self._service.apps.archived)
        return [app.name for app in sorted(self._visible((*older, *self._service.apps), context), key=_is_over)]

    async def _admit_once(self, request: pb.SubmitRequest, file: Any, me: str) -> App:
        async with self._submitting:
            before = self._service.apps.asked_before(request.request_id)
            if before is not None and (not me or before.user == me):
                return before
            self._check_more(me, jobs=file.search.trials, weight=float(file.app.weight))
            return await self._admit(request, file)

    async def _resume_once(self, name: str) -> tuple[int, int]:
        async with self._submitting:
            app = self._service.apps.get(name)
            if app is None:
                raise InputError("an app must be here to be resumed", value=f'"{name}"')
            return await resume(self._service, app)

    async def _more_trials_once(self, request: pb.MoreTrialsRequest) -> pb.MoreTrialsResponse:
        async with self._submitting:
            app = self._service.apps.get(request.app)
            if app is None:
                raise InputError("an app must be here to get more trials", value=f'"{request.app}"')
            if request.request_id and app.more_request == request.request_id:
                return pb.MoreTrialsResponse(app=app.name, trials=app.trials, attempt=app.attempts)
            record, attempt, unfinished = await add_trials(self._service, app, request.trials, request.request_id)
            return pb.MoreTrialsResponse(app=record.name, trials=record.trials, attempt=attempt, unfinished=unfinished)

    async def _admit(self, request: pb.SubmitRequest, file: Any) -> App:
        """Create the app's folder and submit the app to the arbiter."""
        service = self._service
        service.apps.check_room()
        if full := service.reserve.words():
            raise InputError("a new app must find room on the disk", value=full)
        node = service.nodes.with_least(Counter(app.node for app in service.apps.live))
        name = service.apps.unique(str(file.app.name))
        now = float(service.driver.clock.now())
        login = service.users.login_of(file.user)
        account = admit_login(service.settings.state_dir, login) if login else None
        app = app_of(
            file,
            name=name,
            submitted_at=service.system.unix_time(),
            arrived_at=now,
            request_id=request.request_id,
            node=node,
            login=login,
        )
        env = {key: request.env[key] for key in SUBMITTERS_ENV if key in request.env}
        folder, text = Path(request.folder), request.app_file
        submission = Submission(file_name=request.file_name, folder=folder, user=app.user, env=env, app_file=text)
        service.apps.prepare(app, submission, account)
        arrived = AppArrived(
            app=AppId(name), user=UserId(app.user), weight=app.weight, tuner_kind=app.tuner, divides=True
        )
        decision = await service.driver.fold([arrived], [app.note()])
        refused = [
            fault.what for fault in decision.faults if fault.what.startswith("AppArrived") and name in fault.what
        ]
        if refused:
            service.apps.drop(app)
            raise InputError("an app must be accepted by the arbiter", value=refused[0])
        service.apps.keep(app)
        log.info("app.submitted", app=name, user=app.user, tuner=app.tuner)
        return app

    async def _accepted(self, app: App, wanted: str) -> pb.SubmitResponse:
        service = self._service
        async with service.driver.lock:
            service.refresh()
            return pb.SubmitResponse(
                app=app.name,
                renamed=app.name != wanted,
                user=app.user,
                trials=app.trials,
                least=app.least,
                most=app.most,
                max_iterations=app.max_iterations,
                other_apps=len(service.apps.live) - (0 if app.over else 1),
                slots=int(service.view.cluster.capacity.sum()) - len(self._views.missing_slots()),
                next_round_in_seconds=service.driver.next_round_in,
                auction=service.profile.rounds.bid_deadline is not None,
                waits_for=self._views.lacks(app, 0),
            )

    def _find(self, name: str, context: Context) -> tuple[App | None, str | None]:
        """Return the app and job that a name denotes; the job is None for an app, the app if not accessible."""
        app = self._own(name, context)
        if app is not None:
            return app, None
        return self._own(name.rpartition("/")[0], context), name

    def _fill_health(self, answer: pb.HealthResponse, me: str) -> None:
        service, view = self._service, self._service.view
        answer.now = service.driver.clock.now()
        answer.serving = service.driver.arbiter.serving.profile
        answer.fallback = view.fallen_back
        answer.faults.extend(() if me else service.driver.faults)  # they name apps
        answer.apps = len(service.apps.live)
        answer.slots = int(view.cluster.capacity.sum())
        answer.free_slots = int((view.gpus.state == GpuState.FREE).sum())
        answer.missing_slots.extend(self._views.missing_slots())
        answer.steps = service.journal.last_step
        answer.round = view.round
        machines = [one for number, one in enumerate(view.cluster.machines) if number not in view.cluster.left]
        parts = [f"{machine.name}: {machine.gpus}x{machine.gpu_type}" for machine in machines]
        answer.cluster = ", ".join(parts)


def _is_over(app: App) -> bool:
    return app.over


def _parsed_as(login: str, request: pb.SubmitRequest, upkeep: Upkeep, me: str) -> Any:
    """Check an app file as ``_parsed`` does, with the file rights of the user's account."""
    if not login:
        return _parsed(request, upkeep, me)
    account = Account.of(login)
    with as_account(account.uid, account.gid):
        return _parsed(request, upkeep, me)


def _parsed(request: pb.SubmitRequest, upkeep: Upkeep, me: str) -> Any:
    """Check an app file against its rules, the cluster's size and, if a user submits it, the user's name.

    Args:
        request: the submission, with the file.
        upkeep: has the largest number of slots that the cluster has had.
        me: the user of the call's token; empty for the operator.

    Raises:
        InputErrors: all errors of the file; InputError: the folder is not absolute.
    """
    from eunomia_appmaster.app.app_file import AppFile

    name = request.file_name or "app.toml"
    if not request.folder.startswith("/"):
        raise InputError("the folder of an app must be absolute", value=f'"{request.folder}"', place=name)
    env = {key: request.env[key] for key in SUBMITTERS_ENV if key in request.env}
    file = AppFile.parse(
        request.app_file, place=name, folder=Path(request.folder), env=env or None, user=me or request.user or None
    )
    if me and file.user != me:
        rule = "user must be that of the token, or left out"
        raise InputErrors([InputError(rule, value=f'"{file.user}" with a token of {me}', place=f"{name}, [app].user")])
    gang, slots = file.job.slots.min, upkeep.most_slots
    if gang > slots and not request.wait_for_machines:
        rule, value = "slots must fit the cluster", f"a gang of {gang} where {slots} slots exist"
        if upkeep.has_had_others:
            rule += ", as it is or has been, or the app must wait for machines (--wait-for-machines)"
            value = f"a gang of {gang} where at most {slots} slots were at once"
        raise InputErrors([InputError(rule, value=value, place=f"{name}, [job].slots")])
    return file


def _host() -> str:
    """Return the machine's host name, as shown to users."""
    return socket.gethostname().split(".")[0] or "localhost"


def _clocks(service: Service) -> list[str]:
    """Return lines about nodes whose clocks differ from the arbiter's."""
    return [f"{node.name}: {node.clock_offset.words}" for node in service.nodes if node.clock_offset.words]
