"""The steps of ``eunomia ray up``: the request is checked against the cluster, then the head starts."""

from collections.abc import Sequence
from pathlib import Path

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia_engines.engine import EngineRefusedError, NodeState
from eunomia_engines.head.files import head_process, save_serving
from eunomia_engines.head.starting import await_head, check_may_begin, start_head
from eunomia_engines.ray.engine import RayEngine, is_able, nodes_words, wanted_words
from eunomia_engines.ray.request import ENDS, FOLDER, MOST_NODES, NAMES, RayRequest


@value
class ArbiterFlags:
    """The flags of the arbiter.

    Attributes:
        policy: preset, profile file or plugin.
        settings: changes of the policy's values, each ``KEY=VALUE``.
        port: the head's port; None: that of its last start, else any free one.
    """

    policy: str
    settings: tuple[str, ...] = ()
    port: int | None = None


def checked_notes(request: RayRequest, engine: RayEngine) -> tuple[RayRequest, Sequence[str]]:
    """Return the request with the cluster's address, and notes on requested nodes that the cluster does not have free.

    Raises:
        EngineSilentError: no cluster answers at the address.
        EngineRefusedError: the cluster has another version of Ray or Python, or no suitable node.
    """
    nodes = engine.cluster.nodes()
    able = [node for node in nodes if is_able(node, request)]
    if not able and not request.autoscale:
        rule = f"a Ray cluster must have nodes with {wanted_words(request)}"
        raise EngineRefusedError(rule, value=f'"{nodes_words(nodes)}"', place=engine.cluster.address())
    notes = [f"node {node.name}: {why}" for node, why in engine.room() if why]
    if request.least != MOST_NODES and len(able) < request.least:
        notes.append(f"the cluster has {len(able)} such nodes, fewer than {request.least}; no more are asked for")
    return request.model_copy(update={"address": engine.cluster.address()}), notes


def begin(request: RayRequest, serving: ArbiterFlags, state: Path) -> tuple[RayEngine, Sequence[str]]:
    """Serve an arbiter on a Ray cluster; returns its engine and the notes of ``checked_notes``.

    Raises:
        InputError: a value is invalid, the cluster cannot be used, or the state folder is served already.
        EngineSilentError: no cluster answers at the address.
        EunomiaError: the head does not serve.
    """
    check_request(request)
    Profile.load(serving.policy, settings=serving.settings)
    (state / FOLDER).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_may_begin(NAMES, state)
    engine = RayEngine(request, state)
    try:
        known, notes = checked_notes(request, engine)
        known.save(state)
        save_serving(state / FOLDER, policy=serving.policy, settings=serving.settings, port=serving.port)
        (state / FOLDER / ENDS).unlink(missing_ok=True)
        start_head(NAMES, state)
        await_head(NAMES, state, lambda: _has_begun(engine), "a node is asked for")
    except BaseException:
        engine.close()
        raise
    return engine, notes


def check_request(request: RayRequest) -> None:
    """Check a request without the cluster.

    Raises:
        InputError: the autoscaler is combined with all nodes.
    """
    if request.autoscale and request.most == MOST_NODES:
        raise InputError("--autoscale must come with a number of nodes, such as --nodes 2..8", value="all")


def serves(state: Path) -> bool:
    """Return whether a head serves a state folder from this machine."""
    return head_process(state / FOLDER) is not None


def _has_begun(engine: RayEngine) -> bool:
    """Return whether a node is requested, or none can be requested now."""
    return any(node.state is not NodeState.ENDED for node in engine.nodes()) or all(why for _, why in engine.room())
