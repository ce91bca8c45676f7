"""``python -m eunomia_engines.ray.bridge``: a driver of Ray that answers calls, each one line of JSON.

A driver ends, or hangs, when the head of its cluster dies, so the arbiter's own process must not be one. Actors are
read from the table of Ray's head, as ``ray list actors`` does: Ray's API needs the dashboard, ``ray[default]``.
"""

import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from eunomia_engines.ray.cluster import NewActor, RayActor, RayNode

REFUSED: Final = "refused"
SILENT: Final = "silent"
MAY_REFUSE: Final = frozenset({"connect", "create"})
REFUSALS: Final = (RuntimeError, TypeError, ValueError)
"""Exceptions that Ray raises for another version or unsupported options; a lost connection is an ``OSError``."""
PARALLEL_CALLS: Final = 4
"""Number of calls that an actor runs at the same time, so that a waiting call does not block others."""
MOST_WORDS: Final = 1000


class Bridge:
    """The calls of ``RayCluster``, on a cluster that ``connect`` names."""

    def __init__(self) -> None:
        self._namespace = ""

    def connect(self, address: str, namespace: str) -> dict[str, str]:
        """Connect to a cluster of which this machine is a node."""
        import ray

        self._namespace = namespace
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="error")
        version = f"Ray {ray.__version__}, Python {platform.python_version()}"
        return {"version": version, "address": ray.get_runtime_context().gcs_address}

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes of the cluster."""
        import ray

        table = _table()
        free, draining = table.available_resources_per_node(), table.get_draining_nodes()
        found = [_node(one, free.get(one["NodeID"], {}), draining) for one in ray.nodes()]
        return [one.model_dump() for one in sorted(found, key=lambda one: (one.host, one.address))]

    def actors(self) -> list[dict[str, Any]]:
        """Return all actors of the cluster."""
        from ray.core.generated import gcs_pb2

        rows = _table()._connect_and_get_accessor().get_actor_table(None, None)
        return [_actor(gcs_pb2.ActorTableData.FromString(row), gcs_pb2).model_dump() for row in rows]

    def create(self, new: Mapping[str, Any]) -> str:
        """Create the actor of a node; returns the actor's id; empty: the actor's name is taken."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from eunomia_engines.ray.actor import EunomiaLauncher

        given = NewActor.model_validate(new)
        options = {
            "name": given.name,
            "lifetime": "detached",
            "max_restarts": -1,
            "max_concurrency": PARALLEL_CALLS,
            "num_gpus": given.gpus,
            "num_cpus": given.cpus,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(given.node, soft=False),
            **({"runtime_env": dict(given.runtime_env)} if given.runtime_env else {}),
        }
        try:
            made = ray.remote(EunomiaLauncher).options(**options).remote(given.state, given.arbiter_node)
        except ray.exceptions.ActorAlreadyExistsError:
            return ""
        return str(made._actor_id.hex())

    def end(self, actor: str) -> None:
        """Order an actor to end its launcher and then itself, without waiting for the answer."""
        if (found := self._found(actor)) is not None:
            found.end.remote()

    def kill(self, actor: str) -> None:
        """Kill the actor of this name, such as one that still waits for resources."""
        import ray

        if (found := self._found(actor)) is not None:
            ray.kill(found, no_restart=True)

    def want(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Request bundles of resources from the autoscaler, replacing earlier requests."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[dict(bundle) for bundle in bundles])

    def _found(self, actor: str) -> Any:
        import ray

        try:
            return ray.get_actor(actor, namespace=self._namespace)
        except ValueError:  # there is no living actor of this name
            return None


def _table() -> Any:
    """Return Ray's reader of its head's tables, which works without the dashboard."""
    from ray._private import state

    return state.state


def _node(one: Mapping[str, Any], free: Mapping[str, float], draining: Mapping[str, int]) -> RayNode:
    has, ends = one.get("Resources", {}), draining.get(one["NodeID"])
    return RayNode(
        id=one["NodeID"],
        host=one.get("NodeManagerHostname") or one["NodeManagerAddress"],
        address=one["NodeManagerAddress"],
        alive=bool(one["Alive"]),
        drains=ends is not None,
        ends_at=ends / 1000.0 if ends else None,
        gpus=has.get("GPU", 0.0),
        free_gpus=free.get("GPU", 0.0),
        cpus=has.get("CPU", 0.0),
        free_cpus=free.get("CPU", 0.0),
    )


def _actor(one: Any, types: Any) -> RayActor:
    """Convert a row of Ray's table of actors; a state without a name in Ray's enum becomes its number."""
    states = types.ActorTableData.ActorState
    state = states.Name(one.state) if one.state in states.values() else f"state {one.state}"
    context = one.death_cause.WhichOneof("context") if state == "DEAD" else None
    why = getattr(getattr(one.death_cause, context), "error_message", "") if context else ""
    was_made = context == "creation_task_failure_context"  # it ran, although Ray has no start time
    if was_made:
        lines = one.death_cause.creation_task_failure_context.formatted_exception_string.split("\n")
        why = next((line for line in reversed(lines) if line.strip()), "the actor could not begin")
    began = one.start_time or (one.timestamp if was_made else 0)
    return RayActor(
        id=one.actor_id.hex(),
        name=one.name,
        namespace=one.ray_namespace,
        class_name=one.class_name,
        state=state,
        node=one.node_id.hex() or one.address.node_id.hex(),
        why=" ".join(why.split())[:MOST_WORDS],
        began_at=began / 1000.0 if began else None,
        gpus=one.required_resources.get("GPU", 0.0),
    )


def answer(bridge: Bridge, line: str) -> dict[str, Any]:
    """Carry out the call in a line and return its answer, or the message of its error."""
    calls: dict[str, Callable[..., Any]] = {
        "connect": bridge.connect,
        "nodes": bridge.nodes,
        "actors": bridge.actors,
        "create": bridge.create,
        "end": bridge.end,
        "kill": bridge.kill,
        "want": bridge.want,
    }
    asked = json.loads(line)
    try:
        return {"answer": calls[asked["call"]](**asked["given"])}
    except Exception as error:
        refused = asked["call"] in MAY_REFUSE and isinstance(error, REFUSALS)
        return {"kind": REFUSED if refused else SILENT, "error": _words(error)}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MOST_WORDS]}"


def _serve(source: IO[str], to: IO[str]) -> None:
    bridge = Bridge()
    for line in source:
        to.write(json.dumps(answer(bridge, line)) + "\n")
        to.flush()


def main() -> None:
    """Answer calls until stdin ends; Ray's own output goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _serve(sys.stdin, answers)
    os._exit(0)  # Ray's own end would wait for its cluster


if __name__ == "__main__":
    main()
