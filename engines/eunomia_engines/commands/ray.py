"""``eunomia ray up``, ``status`` and ``down``: an arbiter on the nodes of a Ray cluster."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.units import parse_duration
from eunomia_appmaster.commands.console import NOT_KNOWN, AsJson, StateDir, table
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.settings import default_state_dir
from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.head.files import head_process
from eunomia_engines.head.starting import has_failed, head_line, last_line, members_of, node_facts
from eunomia_engines.pilots.records import Pilot, pilots
from eunomia_engines.ray.ending import end_all
from eunomia_engines.ray.engine import LOGS, RayEngine
from eunomia_engines.ray.request import FOLDER, NAMES, RayRequest, check_address, nodes_option, read_runtime_env
from eunomia_engines.ray.starting import ArbiterFlags, begin

SCHEMA: Final = "eunomia/ray@1"
ID_LENGTH: Final = 8
"""Number of leading digits of Ray's ids in the output."""

ray = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="An arbiter on the nodes of a Ray cluster: up, status, down.",
)


class UpFlags(BaseModel):
    """Flags of ``eunomia ray up``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: Annotated[
        str, typer.Option("--address", metavar="auto|HOST:PORT", help="Of the cluster's head; this machine is a node.")
    ] = "auto"
    nodes: Annotated[
        str, typer.Option("--nodes", metavar="all|N|A..B", help="Of the cluster to use; A..B: more while jobs wait.")
    ] = "all"
    cpu_slots: Annotated[
        int | None, typer.Option("--cpu-slots", metavar="N", min=1, help="CPU slots of a node instead of its GPUs.")
    ] = None
    autoscale: Annotated[
        bool, typer.Option("--autoscale", help="Ask the cluster's autoscaler for nodes that are missing.")
    ] = False
    runtime_env: Annotated[
        Path | None, typer.Option("--runtime-env", metavar="FILE", help="Runtime environment of Ray, as JSON.")
    ] = None
    policy: Annotated[str | None, typer.Option("--policy", metavar="P", help="Preset, profile file or plugin.")] = None
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value.")] = None
    save: Annotated[
        str, typer.Option("--save", metavar="TIME", help="That jobs have to save when a node is given back.")
    ] = "1m"
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="After it, an idle node above the least is given back.")
    ] = "10m"
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="For which jobs must wait before a node more is used.")
    ] = "1m"
    node_dir: Annotated[
        Path, typer.Option("--node-dir", metavar="DIR", help="On each node's local disk, for the node's own files.")
    ] = Path("/var/tmp")
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Journal and apps; all nodes must see it.")
    ] = None
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="Of the head; default: of its last start, or free."),
    ] = None
    as_json: AsJson = False

    def request(self) -> RayRequest:
        """Return the request.

        Raises:
            InputError: a value is invalid.
        """
        least, most = nodes_option(self.nodes)
        return RayRequest(
            address=check_address(self.address),
            least=least,
            most=most,
            cpu_slots=self.cpu_slots,
            autoscale=self.autoscale,
            runtime_env=read_runtime_env(self.runtime_env),
            node_dir=self.node_dir.resolve(),
            stop_seconds=float(parse_duration(self.save, name="--save", zero=True)),
            idle_seconds=float(parse_duration(self.idle, name="--idle", zero=True)),
            wait_seconds=float(parse_duration(self.wait, name="--wait", zero=True)),
        )


@ray.callback()
def _ray() -> None:
    """Serve an arbiter on the nodes of a Ray cluster: up, status, down."""


@ray.command("up")
@with_flags(UpFlags)
def up(flags: UpFlags) -> int:
    """Serve an arbiter from this machine, on the nodes of a Ray cluster."""
    state = _state(flags.state_dir)
    policy = flags.policy or os.environ.get("EUNOMIA_POLICY") or "default"
    serving = ArbiterFlags(policy=policy, settings=tuple(flags.settings or ()), port=flags.port)
    engine, notes = begin(flags.request(), serving, state)
    try:
        _show(state, engine, as_json=flags.as_json, notes=notes)
    finally:
        engine.close()
    if not flags.as_json:
        where = "" if flags.state_dir is None else f" --state-dir {shlex.quote(str(flags.state_dir))}"
        commands = ("submit app.toml", "ray status", "ray down")
        typer.echo("   ".join(f"eunomia {command}{where}" for command in commands))
    return 0


@ray.command("status")
def status(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show the actors of Ray, and the nodes whose launchers they watch."""
    state = _state(state_dir)
    engine = RayEngine(RayRequest.load(state), state)
    try:
        _show(state, engine, as_json=as_json)
    finally:
        engine.close()


@ray.command("down")
def down(
    now: Annotated[
        bool, typer.Option("--now", help="End the head first, so that it hears of nothing that nodes save last.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """End the launchers, their actors of Ray and the head; running jobs save first and go on after the next `up`."""
    state = _state(state_dir)
    end_all(state, RayEngine(RayRequest.load(state), state), now=now)
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "head": None, "nodes": [], "state_dir": str(state)}))
        return
    typer.echo(f"down: no head and no actor of Ray is left; the apps stay in {state}, and go on after eunomia ray up")


def _state(given: Path | None) -> Path:
    return (given or default_state_dir()).resolve()


def _show(state: Path, engine: RayEngine, *, as_json: bool, notes: Sequence[str] = ()) -> None:
    begun, members = pilots(state / FOLDER), members_of(state)
    rows = [node for node in engine.nodes() if _is_shown(node, begun.get(node.id))]
    room = engine.room()
    if as_json:
        pid = head_process(state / FOLDER)
        facts = [{"actor": node.id, **node_facts(node, begun.get(node.id), members)} for node in rows]
        free = [{"host": node.host, "ray_node": node.id, "why": why} for node, why in room]
        head = None if pid is None else {"pid": pid}
        typer.echo(json.dumps({"schema": SCHEMA, "head": head, "nodes": facts, "unused": free, "notes": list(notes)}))
        return
    typer.echo(head_line(NAMES, state))
    lines = [_row(state, node, begun.get(node.id), members) for node in rows]
    lines += [(node.name, "unused", NOT_KNOWN, NOT_KNOWN, why) for node, why in room]
    typer.echo("\n".join(table(("NODE", "STATE", "ACTOR", "SLOTS", "WHY"), lines)))
    typer.echo("".join(f"note: {note}\n" for note in notes), nl=False)


def _is_shown(node: EngineNode, pilot: Pilot | None) -> bool:
    """Return whether a node has not ended, or has failed and its record still exists."""
    return node.state is not NodeState.ENDED or (pilot is not None and has_failed(node, pilot))


def _row(state: Path, node: EngineNode, pilot: Pilot | None, members: Mapping[str, pb.NodeView]) -> tuple[str, ...]:
    member = None if pilot is None else members.get(pilot.node)
    slots = NOT_KNOWN if member is None else ", ".join(f"{n} {kind}" for kind, n in sorted(member.slots.items()))
    log = state / FOLDER / LOGS / f"{node.id}.log"
    failed = f"{last_line(log)} ({log})" if has_failed(node, pilot) and log.exists() else ""
    why = "; ".join(filter(None, [node.why, failed, "" if member is None or member.state == "up" else member.why]))
    name = node.host if pilot is None else pilot.node
    return (name or NOT_KNOWN, _words(node, member), node.id[:ID_LENGTH], slots, why)


def _words(node: EngineNode, member: pb.NodeView | None) -> str:
    """Return a node's state as text: from the arbiter if the node is registered there, else the actor's from Ray."""
    if node.state is NodeState.RUNS:
        return "starting" if member is None else str(member.state)
    words = {NodeState.ASKED: "pending", NodeState.UNKNOWN: "actor unknown", NodeState.ENDED: "actor ended"}
    return words.get(node.state, str(node.state.value))
