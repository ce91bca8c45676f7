"""Client calls about join tokens, for the operator."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

A = TypeVar("A")


class JoinAdministration(abc.ABC):
    """Creates, lists and revokes join tokens; part of ``Client``."""

    _stub: rpc.ClientProtocolStub

    def make_join_token(self, *, ends_in_seconds: float | None = None, reusable: bool = False) -> pb.JoinTokenMade:
        """Create a token with which a machine joins as a node.

        Args:
            ends_in_seconds: validity of the token in seconds; None: one hour.
            reusable: whether several machines may join with it.

        Returns:
            The token, with its text, which is in no later answer.

        Raises:
            InputError: a value is invalid, or the arbiter makes no decisions now.
        """
        request = pb.MakeJoinTokenRequest(ends_in_seconds=ends_in_seconds, reusable=reusable)
        return self._call(self._stub.MakeJoinToken, request, retry=False)

    def join_tokens(self) -> Sequence[pb.JoinToken]:
        """Return all join tokens that were ever made, without their text."""
        return self._call(self._stub.ListJoinTokens, pb.ListJoinTokensRequest()).tokens

    def revoke_join_token(self, number: int) -> pb.JoinToken:
        """Revoke a join token; nodes that have joined with it stay.

        Raises:
            InputError: no token has this number.
        """
        return self._call(self._stub.RevokeJoinToken, pb.RevokeJoinTokenRequest(number=number), retry=False)

    @abc.abstractmethod
    def _call(self, method: Callable[..., A], request: Any, *, retry: bool = True) -> A: ...
