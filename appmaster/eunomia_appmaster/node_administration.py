"""Calls of a client about nodes, for the operator."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

A = TypeVar("A")


class NodeAdministration(abc.ABC):
    """Lists nodes, lets them drain, and removes them; part of ``Client``."""

    _stub: rpc.ClientProtocolStub

    def nodes(self) -> Sequence[pb.NodeView]:
        """Return the nodes of the cluster, the arbiter's own first."""
        return self._call(self._stub.ListNodes, pb.ListNodesRequest()).nodes

    def drain_node(self, node: str, why: str = "", *, within_seconds: float | None = None) -> pb.NodeView:
        """Let no lease begin on a node; those on it end with their term.

        Args:
            node: its name.
            why: shown to all who ask.
            within_seconds: leases that would last longer are ended in time; None: none is.

        Raises:
            InputError: there is no such node; nothing was changed.
        """
        request = pb.DrainNodeRequest(node=node, why=why, within_seconds=within_seconds)
        return self._call(self._stub.DrainNode, request, retry=False)

    def undrain_node(self, node: str) -> pb.NodeView:
        """Let leases begin on a node again.

        Raises:
            InputError: there is no such node, or it does not drain.
        """
        return self._call(self._stub.UndrainNode, pb.UndrainNodeRequest(node=node), retry=False)

    def remove_node(
        self, node: str, why: str = "", *, now: bool = False, is_off: bool = False
    ) -> pb.RemoveNodeResponse:
        """Take a node out of the cluster, once nothing runs there.

        Args:
            node: its name.
            why: journaled, and shown while it drains.
            now: at once; what runs there goes on elsewhere from its last checkpoint.
            is_off: the node does not answer, and its processes are known to be dead.

        Raises:
            InputError: there is no such node, it is the only one, or it does not answer and ``is_off`` is False.
        """
        request = pb.RemoveNodeRequest(node=node, why=why, now=now, is_off=is_off)
        return self._call(self._stub.RemoveNode, request, retry=False)

    @abc.abstractmethod
    def _call(self, method: Callable[..., A], request: Any, *, retry: bool = True) -> A: ...
