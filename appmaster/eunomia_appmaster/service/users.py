"""The users that the operator has added: their tokens, and the limits on their submissions."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import structlog

from eunomia.arbiter import ClusterView
from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia_appmaster.node.accounts import Account
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.user_record import User, UserLimits, check_name, named_in, read_user

log = structlog.get_logger()

Write = Callable[[Note], Awaitable[object]]
"""A function that journals a note, and returns once that is done."""


class Users:
    """Users by name, including removed ones.

    Args:
        notes: an earlier arbiter's notes, by user name.
        check_login: raises ``InputError`` for an account that processes cannot run under.
        system: the machine's clocks.
    """

    def __init__(
        self,
        notes: Mapping[str, Any],
        *,
        check_login: Callable[[str], object] = Account.of,
        system: System = MACHINE,
    ) -> None:
        self._system = system
        self._account_of = check_login
        self._changing = asyncio.Lock()
        self._users: dict[str, User] = {}
        for name, values in notes.items():
            user = read_user(name, values)
            if user is None:
                log.error("user.note_unreadable", user=name)
            else:
                self._users[name] = user

    def __iter__(self) -> Iterator[User]:
        return (user for user in self._users.values() if not user.removed)

    @property
    def any(self) -> bool:
        """Whether a user was ever added."""
        return bool(self._users)

    @property
    def all(self) -> list[User]:
        """Return all users, including removed ones."""
        return list(self._users.values())

    def get(self, name: str) -> User | None:
        """Return a user by name; None if there is none, or it was removed."""
        user = self._users.get(name)
        return None if user is None or user.removed else user

    def known(self, name: str) -> User | None:
        """Return a user, even a removed one, since its limits hold for its remaining apps; None if there is none."""
        return self._users.get(name)

    # --- tokens ----------------------------------------------------------------------------------------------------

    def of_token(self, token: str) -> User | None:
        """Return the user whose valid token this is; None if it is not a valid user token."""
        user = self.get(named_in(token))
        return user if user is not None and user.owns(token) and not self._has_ended(user) else None

    def refusal(self, token: str) -> str:
        """Return why a user's last token is no longer valid; empty if it is not the last token of any user."""
        user = self._users.get(named_in(token))
        if user is None or not user.owns(token):
            return ""
        if user.removed:
            return f"the token of user {user.name} must be one of a user that is here, but the operator has removed it"
        return f"the token of user {user.name} must not have ended (the operator makes another: eunomia users token)"

    def _has_ended(self, user: User) -> bool:
        return user.token_ends_at is not None and self._system.unix_time() >= user.token_ends_at

    # --- changes by the operator -----------------------------------------------------------------------------------

    async def add(self, request: pb.AddUserRequest, write: Write) -> tuple[User, str]:
        """Add a user with its first token.

        Raises:
            InputError: the user exists already, a limit is out of bounds, or processes cannot run under its login;
                nothing was changed.
        """
        check_name(request.user)
        self._check_login(request.login)
        async with self._changing:
            before = self._users.get(request.user)
            if before is not None and not before.removed:
                rule = "a user must be new (`users token` makes another token, `users set` changes limits)"
                raise InputError(rule, value=f'"{request.user}"')
            user = User(name=request.user, limits=UserLimits().changed(request.limits), login=request.login)
            if before is not None:
                user.tokens, user.day, user.used_seconds = before.tokens, before.day, before.used_seconds
                user.seen, user.held_day = before.seen, before.held_day
            made, token = user.with_token(self._ends_at(request))
            await self._keep(made, write)
        return made, token

    async def set_limits(self, request: pb.SetUserRequest, write: Write) -> User:
        """Replace the given limits, and the login for future apps.

        Raises:
            InputError: there is no such user, a limit is out of bounds, or processes cannot run under the login;
                nothing was changed.
        """
        async with self._changing:
            user = self._named(request.user)
            login = request.login if request.HasField("login") else user.login
            if login != user.login:
                self._check_login(login)
            made = dataclasses.replace(user, limits=user.limits.changed(request.limits), login=login)
            await self._keep(made, write)
        return made

    async def remove(self, name: str, write: Write) -> User:
        """Remove a user and invalidate its token; the record stays, with the number of its last token.

        Raises:
            InputError: there is no such user.
        """
        async with self._changing:
            made = dataclasses.replace(self._named(name), removed=True)
            await self._keep(made, write)
        return made

    async def new_token(self, request: pb.NewTokenRequest, write: Write) -> tuple[User, str]:
        """Create a user's next token, which invalidates the previous one.

        Raises:
            InputError: there is no such user.
        """
        async with self._changing:
            made, token = self._named(request.user).with_token(self._ends_at(request))
            await self._keep(made, write)
        return made, token

    def login_of(self, name: str) -> str:
        """Return the account under which a user's new app runs; empty for the arbiter's own."""
        user = self._users.get(name)
        return "" if user is None else user.login

    def _check_login(self, login: str) -> None:
        if login:
            self._account_of(login)

    def _named(self, name: str) -> User:
        user = self.get(name)
        if user is None:
            there = ", ".join(one.name for one in self) or "none"
            raise InputError(f"a user must have been added; there are: {there}", value=f'"{name[:100]}"')
        return user

    def _ends_at(self, request: pb.AddUserRequest | pb.NewTokenRequest) -> float | None:
        given = request.HasField("ends_in_seconds")
        return self._system.unix_time() + request.ends_in_seconds if given else None

    async def _keep(self, user: User, write: Write) -> None:
        await write(user.note())
        self._users[user.name] = user

    # --- limits on submissions -------------------------------------------------------------------------------------

    def check_more(self, name: str, live: Iterable[App], *, jobs: int, app: str = "", weight: float = 0.0) -> None:
        """Check that a user may have one more live app.

        Args:
            name: the user's name.
            live: all live apps.
            jobs: number of jobs that the app adds.
            app: name of an app that is resumed; empty if the app is new.
            weight: the new app's weight.

        Raises:
            InputError: the app would exceed a limit of the user; nothing was changed.
        """
        user = self._named(name)
        mine = [one for one in live if one.user == name and one.name != app]
        if weight > user.limits.weight:
            rule = f"the weight of an app of {name} must be at most {user.limits.weight:g}, the operator's limit"
            raise InputError(rule, value=f"{weight:g}", place="[app].weight")
        if len(mine) >= user.limits.apps:
            rule = f"live apps of {name} must be at most {user.limits.apps}, the operator's limit"
            raise InputError(rule, value=f"{len(mine)} that are not over, and one more")
        there = live_jobs(mine)
        if there + jobs > user.limits.jobs:
            rule = f"jobs of the live apps of {name} must be at most {user.limits.jobs}, the operator's limit"
            raise InputError(rule, value=f"{there} that have not ended, and {jobs} more")


def live_jobs(apps: Iterable[App]) -> int:
    """Return the number of jobs of these live apps that have not ended, including those that have not begun."""
    return sum(app.unfinished for app in apps)


def check_jobs(user: User, view: ClusterView, added: int, *, place: str) -> None:
    """Check that the jobs that an app master adds are within its user's limit.

    Args:
        user: the app's owner.
        view: the arbiter's state.
        added: number of new jobs.
        place: name of the app, for the error.

    Raises:
        InputError: the user has too many jobs that have not ended.
    """
    rows = view.names.apps.values()
    there = sum(view.jobs_of(app).size for app in rows if view.users.id[view.apps.user[app]] == user.name)
    if there + added > user.limits.jobs:
        rule = f"jobs of the live apps of {user.name} must be at most {user.limits.jobs}, the operator's limit"
        raise InputError(rule, value=f"{there} that have not ended, and {added} more", place=place)
