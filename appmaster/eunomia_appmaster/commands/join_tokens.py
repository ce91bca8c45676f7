"""``eunomia nodes token``, ``tokens`` and ``revoke``: the tokens with which machines join."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import NOT_KNOWN, Address, AsJson, StateDir, duration, table
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol.join_text import LONGEST_DAYS, JoinText

SCHEMA: Final = "eunomia/join-tokens@1"


def add_to(nodes: typer.Typer) -> None:
    """Add the commands about join tokens to ``eunomia nodes``."""
    nodes.command("token")(token)
    nodes.command("tokens")(tokens)
    nodes.command("revoke")(revoke)


def token(
    ends: Annotated[
        str, typer.Option("--ends", metavar="TIME", help="No machine can join with it after this time.")
    ] = "1h",
    reusable: Annotated[bool, typer.Option("--reusable", help="Several machines may join with it.")] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Print a token with which a machine joins, shown once, alone on standard output."""
    seconds = float(parse_duration(ends, name="--ends"))
    if seconds > LONGEST_DAYS * 86400.0:
        raise InputError(f"--ends must be at most {LONGEST_DAYS}d", value=ends)
    with Client(address, state_dir=state_dir) as client:
        made = client.make_join_token(ends_in_seconds=seconds, reusable=reusable)
    authority = JoinText.parse(made.text, "answer").fingerprint
    if as_json:
        facts = _facts(made.token) | {"token": made.text, "authority_sha256": authority or None}
        typer.echo(json.dumps({"schema": SCHEMA} | facts))
        return
    typer.echo(made.text)
    number = made.token.number
    until = (datetime.now(UTC) + timedelta(seconds=made.token.ends_in_seconds)).strftime("%Y-%m-%d %H:%M UTC")
    users = "several machines may join" if reusable else "one machine may join"
    own_machine_alone = "the arbiter serves without TLS, so only on its own machine"
    checks = f"it checks the arbiter by the CA {authority}" if authority else own_machine_alone
    typer.echo(f"token {number}: {users} with it until {until}; {checks}", err=True)
    typer.echo("there: eunomia launcher --arbiter HOST:PORT --apps AT --join FILE-WITH-THE-TOKEN", err=True)


def tokens(as_json: AsJson = False, address: Address = None, state_dir: StateDir = None) -> None:
    """List the join tokens, without their text."""
    with Client(address, state_dir=state_dir) as client:
        known = list(client.join_tokens())
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "tokens": [_facts(one) for one in known]}))
        return
    if not known:
        typer.echo("no join token has been made (eunomia nodes token makes one)")
        return
    headers = ("TOKEN", "STATE", "ENDS IN", "JOINED WITH IT")
    typer.echo("\n".join(table(headers, [_row(one) for one in known], right=("TOKEN",))))


def revoke(
    number: Annotated[int, typer.Argument(metavar="TOKEN", help="Its number, as in `eunomia nodes tokens`.")],
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """End a join token; nodes that have joined with it stay."""
    with Client(address, state_dir=state_dir) as client:
        made = client.revoke_join_token(number)
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA} | _facts(made)))
        return
    typer.echo(f"token {number}: revoked{_staying(made.members)}")


def _staying(members: Sequence[str]) -> str:
    """Return text on the nodes that stay in the cluster although their token is revoked: ``; n1, n2 stay``."""
    return f"; {', '.join(members)} stay{'s' if len(members) == 1 else ''}" if members else ""


def _state(known: pb.JoinToken) -> str:
    if known.revoked:
        return "revoked"
    if known.ends_in_seconds == 0.0:
        return "ended"
    if known.used_by and not known.reusable:
        return "used"
    return "reusable" if known.reusable else "unused"


def _row(known: pb.JoinToken) -> tuple[str, ...]:
    state = _state(known)
    left = duration(known.ends_in_seconds) if state in ("reusable", "unused") else NOT_KNOWN
    return str(known.number), state, left, ", ".join(known.members) or NOT_KNOWN


def _facts(known: pb.JoinToken) -> dict[str, Any]:
    return {
        "number": known.number,
        "state": _state(known),
        "ends_in_seconds": known.ends_in_seconds,
        "reusable": known.reusable,
        "used_by": [*known.used_by],
        "members": [*known.members],
    }
