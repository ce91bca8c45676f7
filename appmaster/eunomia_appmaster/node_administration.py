"""Client calls about nodes, for the operator."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

A = TypeVar("A")


class NodeAdministration(abc.ABC):
    """Lists, drains and removes nodes; part of ``Client``."""

    _stub: rpc.ClientProtocolStub

    def nodes(self) -> Sequence[pb.NodeView]:
        """Return the nodes of the cluster, the arbiter's own first."""
        return self._call(self._stub.ListNodes, pb.ListNodesRequest()).nodes

    def drain_node(self, node: str, why: str = "", *, within_seconds: float | None = None) -> pb.NodeView:
        """Drain a node: no lease begins there any more, and present ones run to their end.

        Args:
            node: the node's name.
            why: reason, shown to all users.
            within_seconds: leases that would last longer are ended by then; None: no lease is ended early.

        Raises:
            InputError: there is no such node; nothing was changed.
        """
        request = pb.DrainNodeRequest(node=node, why=why, within_seconds=within_seconds)
        return self._call(self._stub.DrainNode, request, retry=False)

    def undrain_node(self, node: str) -> pb.NodeView:
        """End the draining of a node, so that leases may begin there again.

        Raises:
            InputError: there is no such node, or it is not being drained.
        """
        return self._call(self._stub.UndrainNode, pb.UndrainNodeRequest(node=node), retry=False)

    def remove_node(
        self, node: str, why: str = "", *, now: bool = False, is_off: bool = False
    ) -> pb.RemoveNodeResponse:
        """Remove a node from the cluster, once nothing runs there.

        Args:
            node: the node's name.
            why: reason, journaled and shown while it drains.
            now: remove it at once; its jobs resume on other nodes from their last checkpoints.
            is_off: the node does not answer, and the operator is certain that its processes are dead.

        Raises:
            InputError: there is no such node, it is the only one, or it does not answer and ``is_off`` is False.
        """
        request = pb.RemoveNodeRequest(node=node, why=why, now=now, is_off=is_off)
        return self._call(self._stub.RemoveNode, request, retry=False)

    @abc.abstractmethod
    def _call(self, method: Callable[..., A], request: Any, *, retry: bool = True) -> A: ...
