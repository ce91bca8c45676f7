"""Client calls about users, for the operator."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

A = TypeVar("A")


class UserAdministration(abc.ABC):
    """Adds, lists and removes users; part of ``Client``."""

    _stub: rpc.ClientProtocolStub

    def add_user(
        self,
        user: str,
        *,
        limits: pb.UserLimits | None = None,
        ends_in_seconds: float | None = None,
        login: str = "",
    ) -> pb.UserToken:
        """Add a user.

        Args:
            user: the user's name.
            limits: the limits that differ from the defaults.
            ends_in_seconds: validity of the token in seconds; None: unlimited.
            login: the account on the arbiter's machine under which the user's processes run; empty: the arbiter's own.

        Returns:
            The user, with its token, which is in no later answer.

        Raises:
            InputError: the user exists already, or a value is invalid; nothing was changed.
        """
        request = pb.AddUserRequest(user=user, limits=limits, ends_in_seconds=ends_in_seconds, login=login)
        return self._call(self._stub.AddUser, request, retry=False)

    def set_user(self, user: str, limits: pb.UserLimits, *, login: str | None = None) -> pb.User:
        """Replace limits of a user, and its login for future apps; values that are not given stay unchanged.

        Raises:
            InputError: there is no such user, or a value is invalid.
        """
        return self._call(self._stub.SetUser, pb.SetUserRequest(user=user, limits=limits, login=login), retry=False)

    def users(self) -> Sequence[pb.User]:
        """Return all users; with a user's token, only that user."""
        return self._call(self._stub.ListUsers, pb.ListUsersRequest()).users

    def remove_user(self, user: str) -> pb.User:
        """Remove a user: the token becomes invalid, and the user's apps keep running.

        Raises:
            InputError: there is no such user.
        """
        return self._call(self._stub.RemoveUser, pb.RemoveUserRequest(user=user), retry=False)

    def new_token(self, user: str, *, ends_in_seconds: float | None = None) -> pb.UserToken:
        """Create another token for a user, which invalidates the previous one.

        Raises:
            InputError: there is no such user.
        """
        request = pb.NewTokenRequest(user=user, ends_in_seconds=ends_in_seconds)
        return self._call(self._stub.NewToken, request, retry=False)

    @abc.abstractmethod
    def _call(self, method: Callable[..., A], request: Any, *, retry: bool = True) -> A: ...
