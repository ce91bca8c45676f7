"""``eunomia explain``: why a job waits, who said so, and what would free it."""

import json
import textwrap
from typing import Annotated, Any

import typer

from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir, duration, given, number
from eunomia_appmaster.protocol import arbiter_pb2 as pb

INDENT = " " * 11
WIDTH = 110


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="app/number, or an app: each of its jobs that wait.")],
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Say why a job waits, and what would free it."""
    with Client(address, state_dir=state_dir) as client:
        found = client.explanations(job)
        if as_json:
            typer.echo("\n".join(json.dumps(facts(one)) for one in found))
            return
        apps = {app.app: app for app in client.list().apps}
        typer.echo("\n\n".join("\n".join(lines(one, apps.get(one.app))) for one in found))


def facts(said: pb.Explanation) -> dict[str, Any]:
    """One explanation for machines."""
    return {
        "schema": "eunomia/explain@1",
        "job": said.job,
        "state": said.state,
        "seconds": said.seconds,
        "reason": said.reason or None,
        "stage": said.stage or None,
        "plugin": said.plugin or None,
        "round": said.round,
        "text": said.text,
        "numbers": dict(said.numbers),
        "frees": [_frees(way) for way in said.frees],
        "starts_in_seconds": list(said.starts_in_seconds) or None,
    }


def _frees(way: pb.Frees) -> dict[str, Any]:
    made: dict[str, Any] = {"what": way.what}
    if way.HasField("slot"):
        made["slot"] = way.slot
    if way.HasField("in_seconds"):
        made["in_seconds"] = way.in_seconds
    return made | ({"text": way.text} if way.text else {})


def lines(said: pb.Explanation, app: pb.App | None) -> list[str]:
    """One explanation for people."""
    out = [_head(said, app)]
    if said.reason:
        out.append(_line("Why", _why(said)))
    if said.text:
        out += textwrap.wrap(said.text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    if said.frees:
        out.append(_line("Frees it", "     ".join(_way(way) for way in said.frees)))
    if said.state == "waiting":
        out.append(_line("Starts", _starts(said)))
    if said.starts or said.waited_seconds or said.ran_seconds:
        times = "once" if said.starts == 1 else f"{said.starts} times"
        text = f"ran {duration(said.ran_seconds)}, waited {duration(said.waited_seconds)}"
        out.append(_line("So far", f"{text}; started {times}" if said.starts else text))
    return out


def _line(word: str, text: str) -> str:
    return f"{word:<11}{text}"


def _head(said: pb.Explanation, app: pb.App | None) -> str:
    parts = [f"{said.job}   {said.state.upper()}" + (f" for {duration(said.seconds)}" if said.seconds else "")]
    rho = None if app is None else given(app, "rho")
    if said.app:
        shown = "" if rho is None else f", ρ {number(rho)}"
        parts.append(f"app {said.app}, user {said.user}{shown}")
    if said.least:
        sizes = str(said.least) if said.least == said.most else f"{said.least} to {said.most}"
        verb = "has" if said.slots else "wants"
        count = str(said.slots) if said.slots else sizes
        parts.append(f"{verb} {count} slot{'' if count == '1' else 's'}")
    if said.HasField("iterations_done"):
        most = f" of {said.iterations:.0f}" if said.HasField("iterations") else ""
        parts.append(f"iteration {said.iterations_done:.0f}{most}")
    return "    ".join(parts)


def _why(said: pb.Explanation) -> str:
    by = f", said by {said.plugin} ({said.stage})" if said.plugin else ""
    when = f" in round {said.round}, {duration(said.said_seconds_ago)} ago" if said.plugin else ""
    return f"{said.reason}{by}{when}"


def _way(way: pb.Frees) -> str:
    slot = f"slot {way.slot}: " if way.HasField("slot") else ""
    when = f" in {duration(way.in_seconds)}" if way.HasField("in_seconds") else ""
    return f"{slot}{way.text or way.what}{when}"


def _starts(said: pb.Explanation) -> str:
    if not said.starts_in_seconds:
        return "not known"
    early, late = said.starts_in_seconds[0], said.starts_in_seconds[-1]
    return f"in {duration(early)}" + (f" to {duration(late)}" if late - early >= 1.0 else "")
