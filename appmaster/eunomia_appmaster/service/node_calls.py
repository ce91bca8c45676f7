"""The calls of ``ClientProtocol`` about nodes, for the operator."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import structlog
from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia.units import NEVER, NONE, Seconds
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.deciding import check_change
from eunomia_appmaster.service.node_words import DRAINING, NodeWords
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.refusals import refuse
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.upkeep import Changes

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


class NodeCalls:
    """Lists, drains and removes nodes.

    Args:
        service: the arbiter's service.
    """

    def __init__(self, service: Service) -> None:
        self._with_nodes = service
        self._words = NodeWords(service)

    async def ListNodes(  # noqa: N802
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        """List the nodes, the arbiter's own first."""
        service = self._with_nodes
        if service.nodes.layout is None and not service.ready.is_set():
            return pb.ListNodesResponse()
        if (why := service.away) is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, why)
        async with service.driver.lock:
            found = sorted(service.nodes, key=lambda node: (not node.is_head, node.name))
            return pb.ListNodesResponse(nodes=[self._seen(node) for node in found])

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> pb.NodeView:  # noqa: N802
        """Drain a node, so that no lease begins on it."""
        service = self._with_nodes

        def changes() -> Changes:
            now = float(service.driver.clock.now())
            until = Seconds(now + request.within_seconds) if request.HasField("within_seconds") else NEVER
            return service.upkeep.drain(service.view, request.node, request.why, until)

        await self._change(request, changes, context)
        return await self._node(request.node)

    async def UndrainNode(self, request: pb.UndrainNodeRequest, context: Context) -> pb.NodeView:  # noqa: N802
        """End the draining of a node, so that leases may begin there again."""
        service = self._with_nodes
        await self._change(request, lambda: service.upkeep.keep(service.view, request.node), context)
        return await self._node(request.node)

    async def RemoveNode(  # noqa: N802
        self, request: pb.RemoveNodeRequest, context: Context
    ) -> pb.RemoveNodeResponse:
        """Remove a node from the cluster, at once or once it is empty."""
        service = self._with_nodes
        before = pb.NodeView(node=request.node)

        def changes() -> Changes:
            made = service.upkeep.remove(
                service.view, request.node, now=request.now, is_off=request.is_off, why=request.why
            )
            if (known := service.nodes.get(request.node)) is not None:
                before.CopyFrom(self._seen(known))
            return made

        await self._change(request, changes, context)
        left = service.nodes.get(request.node) is None
        return pb.RemoveNodeResponse(left=left, node=before if left else await self._node(request.node))

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _change(self, request: Message, changes: Callable[[], Changes], context: Context) -> None:
        """Make a change, which is completed even if its caller disconnects."""
        service = self._with_nodes
        try:
            check_change(service, request, "nodes", of_machines=True)
            await asyncio.shield(asyncio.ensure_future(self._carry_out(changes)))
        except InputError as error:
            await refuse(context, error)

    async def _carry_out(self, changes: Callable[[], Changes]) -> None:
        driver = self._with_nodes.driver
        async with driver.lock:
            driver.put(*changes())
        await driver.fold([])

    async def _node(self, name: str) -> pb.NodeView:
        async with self._with_nodes.driver.lock:
            node = self._with_nodes.nodes.get(name)
            return pb.NodeView(node=name) if node is None else self._seen(node)

    def _seen(self, node: Node) -> pb.NodeView:
        service = self._with_nodes
        view, layout = service.view, service.nodes.layout
        gpus = [] if layout is None else layout.gpus_of(node.name)
        missing = service.nodes.missing(node)
        there = [gpu for gpu in gpus if layout is not None and layout.places[gpu].slot not in missing]
        kinds = Counter(view.cluster.gpu_types[int(view.cluster.gpu_type[gpu])] for gpu in there)
        held = [gpu for gpu in gpus if view.gpus.app[gpu] != NONE]
        words = self._words
        state = words.state(node)
        order = service.upkeep.order(node.name)
        last = min(float(np.max(view.gpus.ends_at[held], initial=0.0)), float(order.until))
        ends = last - float(service.driver.clock.now())
        return pb.NodeView(
            node=node.name,
            state=state,
            slots=kinds,
            missing=missing,
            held=len(held),
            held_by=self._holders(held),
            load=node.load if node.registered else None,
            heard_seconds=node.silent_seconds if node.calls or node.lost else None,
            why=words.why(node),
            version=node.version,
            ends_in_seconds=max(0.0, ends) if state == DRAINING and math.isfinite(ends) else None,
            address=node.container_manager_address,
            head=node.is_head,
            leaves=order.leaves,
            lease_seconds=None if node.lost or math.isinf(node.lease.ends_at) else node.lease.left_seconds,
            rack=self._rack(node.name),
            clock_offset_seconds=node.clock_offset.seconds,
            left_out=[
                pb.AppLeftOut(app=app, node=one.node, other=one.other, words=one.words(service.system.unix_time()))
                for app, one in service.left_out.on(node.name)
            ],
        )

    def _holders(self, held: list[int]) -> list[pb.SlotHolder]:
        """Return the jobs that hold these GPUs, those with the most GPUs first."""
        view = self._with_nodes.view
        rows = Counter((int(view.gpus.app[gpu]), int(view.gpus.job[gpu])) for gpu in held)
        found = [
            pb.SlotHolder(app=view.app_id(app), job="" if job == NONE else view.job_id(job), slots=count)
            for (app, job), count in rows.items()
        ]
        return sorted(found, key=lambda one: (-one.slots, one.app, one.job))

    def _rack(self, node: str) -> str:
        layout = self._with_nodes.nodes.layout
        rows = [] if layout is None else layout.rows_of(node)
        return "" if layout is None or not rows else layout.cluster.machines[rows[0]].rack
