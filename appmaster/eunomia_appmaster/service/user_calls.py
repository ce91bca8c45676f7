"""The calls of ``ClientProtocol`` about users, and the rule for which apps a caller may see."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.deciding import check_change
from eunomia_appmaster.service.rates import Rate, peer_of
from eunomia_appmaster.service.refusals import refuse
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.tokens import Role
from eunomia_appmaster.service.user_record import User
from eunomia_appmaster.service.users import live_jobs

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
A = TypeVar("A", pb.User, pb.UserToken)


class UserCalls:
    """Adds, lists and removes users for the operator, and checks what a call's user may access.

    Args:
        service: the arbiter's service.
    """

    def __init__(self, service: Service) -> None:
        self._of = service
        self._submissions = Rate("submissions from one address", 20.0, 200.0)
        self._of_users = Rate("submissions of one user", 5.0, 50.0)

    async def AddUser(self, request: pb.AddUserRequest, context: Context) -> pb.UserToken:  # noqa: N802
        """Add a user, with its first token."""
        return await self._changed(self._add(request), request, context)

    async def SetUser(self, request: pb.SetUserRequest, context: Context) -> pb.User:  # noqa: N802
        """Replace the given limits of a user."""
        return await self._changed(self._set(request), request, context)

    async def RemoveUser(self, request: pb.RemoveUserRequest, context: Context) -> pb.User:  # noqa: N802
        """Remove a user, whose token becomes invalid."""
        return await self._changed(self._remove(request), request, context)

    async def NewToken(self, request: pb.NewTokenRequest, context: Context) -> pb.UserToken:  # noqa: N802
        """Create a user's next token, which invalidates the previous one."""
        return await self._changed(self._token(request), request, context)

    async def ListUsers(  # noqa: N802
        self, request: pb.ListUsersRequest, context: Context
    ) -> pb.ListUsersResponse:
        """List the users; a call with a user's token lists only that user."""
        if (why := self._of.away) is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)
        me = self._user(context)
        async with self._of.driver.lock:
            return pb.ListUsersResponse(
                users=[self._message(one) for one in self._of.users if not me or one.name == me]
            )

    # --- what a caller may see ---------------------------------------------------------------------------------------

    def _user(self, context: Context) -> str:
        """Return the user of a call's token; empty if the token is the operator's."""
        caller = self._of.tokens.caller(context.invocation_metadata())
        return caller.user if caller is not None and caller.role is Role.USER else ""

    def _own(self, name: str, context: Context) -> App | None:
        """Return an app that the caller may access; None if there is none of this name, or it is another user's."""
        app, me = self._of.apps.get(name), self._user(context)
        return app if app is not None and (not me or app.user == me) else None

    def _visible(self, apps: Iterable[App], context: Context) -> list[App]:
        me = self._user(context)
        return [app for app in apps if not me or app.user == me]

    async def _ask_rate(self, context: Context) -> None:
        """Limit the rate of submissions: per address for the operator, else per user."""
        now, me = asyncio.get_running_loop().time(), self._user(context)
        await (self._of_users.ask(me, now, context) if me else self._submissions.ask(peer_of(context), now, context))

    def _check_more(self, me: str, *, jobs: int, app: str = "", weight: float = 0.0) -> None:
        """Check that a submission is within its caller's limits; the operator has none."""
        if me:
            self._of.users.check_more(me, self._of.apps.live, jobs=jobs, app=app, weight=weight)

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _changed(self, change: Coroutine[Any, Any, A], request: Message, context: Context) -> A:
        """Make a change, which is completed even if its caller disconnects."""
        try:
            check_change(self._of, request, "users", of_machines=True)
        except InputError as error:
            change.close()
            await refuse(context, error)
        try:
            return await asyncio.shield(asyncio.ensure_future(change))
        except InputError as error:
            await refuse(context, error)
            raise

    async def _write(self, note: Note) -> object:
        return await self._of.driver.fold([], [note])

    async def _add(self, request: pb.AddUserRequest) -> pb.UserToken:
        user, token = await self._of.users.add(request, self._write)
        log.info("user.added", user=user.name, token=user.tokens)
        return pb.UserToken(user=self._message(user), token=token)

    async def _set(self, request: pb.SetUserRequest) -> pb.User:
        user = await self._of.users.set_limits(request, self._write)
        log.info("user.limits", user=user.name)
        return self._message(user)

    async def _remove(self, request: pb.RemoveUserRequest) -> pb.User:
        user = await self._of.users.remove(request.user, self._write)
        log.info("user.removed", user=user.name)
        return self._message(user)

    async def _token(self, request: pb.NewTokenRequest) -> pb.UserToken:
        user, token = await self._of.users.new_token(request, self._write)
        log.info("user.token", user=user.name, token=user.tokens)
        return pb.UserToken(user=self._message(user), token=token)

    def _message(self, user: User) -> pb.User:
        mine = [app for app in self._of.apps.live if app.user == user.name]
        made = pb.User(
            user=user.name,
            limits=user.limits.message(),
            tokens=user.tokens,
            login=user.login,
            live_apps=len(mine),
            live_jobs=live_jobs(mine),
            gpu_hours_used=self._of.gpu_hours.used_hours(user),
            waits_seconds=self._of.gpu_hours.waits_seconds(user),
        )
        if user.token_ends_at is not None:
            made.token_ends_in_seconds = max(0.0, user.token_ends_at - self._of.system.unix_time())
        return made
