"""``eunomia nodes``: list the cluster's nodes, or drain, undrain or remove one."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from eunomia.units import parse_duration
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands import join_tokens
from eunomia_appmaster.commands.console import NOT_KNOWN, Address, AsJson, StateDir, duration, given, number, table
from eunomia_appmaster.node.engine_note import AskedNode, note_here
from eunomia_appmaster.protocol import arbiter_pb2 as pb

SCHEMA: Final = "eunomia/nodes@1"
NO_NODE: Final = "no node has joined yet: eunomia nodes token makes a token for one, eunomia launcher joins with it"

NAMED: Final = 5
"""Maximum number of jobs named in a line as holders of a node's slots; ``--json`` contains all."""

nodes = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Machines of the cluster: list them, or drain, undrain, remove one.",
)
Name = Annotated[str, typer.Argument(metavar="NODE")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Shown to all who ask, and journaled.")]


@nodes.callback(invoke_without_command=True)
def _nodes(
    context: typer.Context, as_json: AsJson = False, address: Address = None, state_dir: StateDir = None
) -> None:
    """Machines of the cluster: list them, or drain, undrain, remove one."""
    if context.invoked_subcommand is None:
        list_nodes(as_json=as_json, address=address, state_dir=state_dir)


@nodes.command("list")
def list_nodes(as_json: AsJson = False, address: Address = None, state_dir: StateDir = None) -> None:
    """List the nodes: state, slots, load, when they were heard, and why one is not up."""
    with Client(address, state_dir=state_dir) as client:
        known = list(client.nodes())
    note = note_here(address, state_dir)
    _show(known, as_json=as_json, asked=() if note is None else note.asked)
    if note is not None and note.lines and not as_json:
        typer.echo("\n".join(note.lines))


@nodes.command("drain")
def drain(
    node: Name,
    why: Why = "",
    within: Annotated[
        str | None, typer.Option("--within", metavar="TIME", help="End leases that would last longer.")
    ] = None,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Let no lease begin on a node; those on it end with their term."""
    seconds = None if within is None else float(parse_duration(within, name="--within"))
    with Client(address, state_dir=state_dir) as client:
        drained = client.drain_node(node, why, within_seconds=seconds)
    _show([drained], as_json=as_json)
    if not as_json and (waits := later(drained)):
        typer.echo(f"{node}: {waits}")


@nodes.command("undrain")
def undrain(node: Name, as_json: AsJson = False, address: Address = None, state_dir: StateDir = None) -> None:
    """Let leases begin on a node again."""
    with Client(address, state_dir=state_dir) as client:
        _show([client.undrain_node(node)], as_json=as_json)


@nodes.command("remove")
def remove(
    node: Name,
    why: Why = "",
    now: Annotated[bool, typer.Option("--now", help="At once; jobs there go on from their checkpoints.")] = False,
    is_off: Annotated[
        bool, typer.Option("--is-off", help="It does not answer, and its processes are known to be dead.")
    ] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Take a node out of the cluster, once nothing runs there."""
    with Client(address, state_dir=state_dir) as client:
        made = client.remove_node(node, why, now=now, is_off=is_off)
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "left": made.left, "node": _facts(made.node)}))
        return
    typer.echo(f"{node}: {'removed' if made.left else later(made.node)}")


def later(node: pb.NodeView) -> str:
    """Return what a node that drains or is to be removed waits for, and what would end it sooner; empty: nothing."""
    empty = "it leaves once it is empty (--now: at once)"
    if not node.held:
        return f"what ran there is still ending; {empty}" if node.leaves else ""
    held = f"{node.held} of its slots {'is' if node.held == 1 else 'are'} held{_holders(node)}"
    ends = given(node, "ends_in_seconds")
    within = f"eunomia nodes drain {node.node} --within 10m"
    if node.leaves:
        return f"{held}{f' without an end ({within} ends the leases there)' if ends is None else ''}; {empty}"
    if ends is not None:
        return f"{held}; it is drained in {duration(ends)} at the latest"
    now = f"eunomia nodes remove {node.node} --now"
    return f"{held} without an end; it is drained once the jobs there end, sooner by {within}, or at once by {now}"


def _holders(node: pb.NodeView) -> str:
    """Return the holders of a node's slots as text: `` (nets/4: 2, nets/7: 1)``; where no job is known, the app."""
    shown = [f"{one.job or one.app}: {one.slots}" for one in node.held_by[:NAMED]]
    more = len(node.held_by) - len(shown)
    return f" ({', '.join(shown)}{f', and {more} more' if more else ''})" if shown else ""


join_tokens.add_to(nodes)


def _show(known: list[pb.NodeView], *, as_json: bool, asked: Sequence[AskedNode] | None = None) -> None:
    if as_json:
        of_engine = {} if asked is None else {"asked": [node.model_dump() for node in asked]}
        typer.echo(json.dumps({"schema": SCHEMA, "nodes": [_facts(node) for node in known], **of_engine}))
        return
    headers = ("NODE", "STATE", "SLOTS", "LEASE", "LOAD", "HEARD", "WHY")
    typer.echo("\n".join(table(headers, [_row(node) for node in known])))
    if not known and not asked:
        typer.echo(NO_NODE)


def _row(node: pb.NodeView) -> tuple[str, ...]:
    heard, down, lease = given(node, "heard_seconds"), node.state == "down", given(node, "lease_seconds")
    return (
        node.node,
        node.state,
        slots_of(node),
        NOT_KNOWN if lease is None else duration(lease),
        NOT_KNOWN if down else number(given(node, "load"), 1),
        NOT_KNOWN if heard is None else f"{heard:.1f} s" if heard < 10.0 else duration(heard),
        "; ".join(filter(None, [" ".join(node.why.split()), _held(node), _missing(node), *_left_out(node)])),
    )


def slots_of(node: pb.NodeView) -> str:
    """Return a node's present slots by type, as text: ``8 V100``, ``4 V100, 2 P100``."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(node.slots.items())) or NOT_KNOWN


def _held(node: pb.NodeView) -> str:
    if node.state != "draining":
        return ""
    ends = given(node, "ends_in_seconds")
    last = ", without an end" if ends is None else f", last lease ends in {duration(ends)}"
    return f"{node.held} of {sum(node.slots.values())} still held{_holders(node)}{last}"


def _missing(node: pb.NodeView) -> str:
    names = ", ".join(map(str, node.missing))
    return f"slot{'s' if len(node.missing) > 1 else ''} {names} missing" if names else ""


def _left_out(node: pb.NodeView) -> list[str]:
    return [f"{one.app}: {one.words}" for one in node.left_out]


def _facts(node: pb.NodeView) -> dict[str, Any]:
    return {
        "node": node.node,
        "state": node.state,
        "slots": dict(node.slots),
        "missing_slots": list(node.missing),
        "held": node.held,
        "held_by": [{"app": one.app, "job": one.job or None, "slots": one.slots} for one in node.held_by],
        "ends_in_seconds": given(node, "ends_in_seconds"),
        "later": (later(node) or None) if node.leaves or node.state == "draining" else None,
        "lease_seconds": given(node, "lease_seconds"),
        "load": given(node, "load"),
        "heard_seconds": given(node, "heard_seconds"),
        "why": node.why,
        "version": node.version,
        "address": node.address,
        "head": node.head,
        "leaves": node.leaves,
        "rack": node.rack,
        "clock_offset_seconds": given(node, "clock_offset_seconds"),
        "left_out": [{"app": one.app, "node": one.node, "other": one.other, "why": one.words} for one in node.left_out],
    }
