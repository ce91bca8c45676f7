"""``eunomia apps``: the apps with their fairness, slots and trials."""

import contextlib
import json
import sys
import time
from typing import Annotated, Any

import typer

from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import (
    Address,
    AsJson,
    StateDir,
    duration,
    given,
    missing,
    missing_facts,
    now_utc,
    number,
    table,
)
from eunomia_appmaster.failures import failure_facts, failure_text
from eunomia_appmaster.protocol import arbiter_pb2 as pb

HEADERS = (
    "APP", "USER", "STATE", "TUNER", "ρ", "SLOTS", "RUN", "WAIT", "PAUSED", "ENDED", "DONE", "BEST", "AGE", "ENDS IN",
)  # fmt: skip
RIGHT = ("ρ", "SLOTS", "RUN", "WAIT", "PAUSED", "ENDED", "DONE", "BEST", "AGE", "ENDS IN")
WATCH_SECONDS = 1.0


def apps(
    ended: Annotated[bool, typer.Option("--all", help="Apps that are over, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """List apps with their fairness, slots and trials."""
    with Client(address, state_dir=state_dir) as client:
        if not watch:
            answer = client.list(ended=ended)
            typer.echo(json.dumps(facts(answer)) if as_json else "\n".join(_lines(client, answer, ended=ended)))
        elif as_json or not sys.stdout.isatty():
            _follow(client, ended=ended, as_json=as_json)
        else:
            _redraw(client, ended=ended)


def facts(answer: pb.ListResponse) -> dict[str, Any]:
    """Returns the answer as a JSON object."""
    return {
        "schema": "eunomia/apps@1",
        "at": now_utc(),
        "apps": [_facts(app) for app in answer.apps],
        "missing_slots": missing_facts(answer.missing_slots),
    }


def _facts(app: pb.App) -> dict[str, Any]:
    made: dict[str, Any] = {
        "app": app.app,
        "user": app.user,
        "state": app.state,
        "tuner": app.tuner,
        "rho": given(app, "rho"),
        "slots": app.slots,
        "max_slots": app.max_slots,
        "jobs": {"running": app.running, "waiting": app.waiting, "paused": app.paused, "ended": app.ended},
        "done": given(app, "done"),
        "best": given(app, "best"),
        "age_seconds": app.age_seconds,
        "ends_in_seconds": given(app, "ends_in_seconds"),
        **failure_facts(app),
    }
    if app.state in OVER:
        made |= {"jct_seconds": given(app, "jct_seconds"), "why": app.why}
    return made


def _lines(client: Client, answer: pb.ListResponse, *, ended: bool) -> list[str]:
    """Return the lines of the table; if no app is live, request the number of ended apps."""
    over = 0 if ended or answer.apps else len(client.list(ended=True).apps)
    return lines(answer, over=over)


def lines(answer: pb.ListResponse, *, over: int = 0) -> list[str]:
    """Returns the answer as the lines of a table.

    Args:
        answer: the arbiter's.
        over: number of apps that are over and not in the answer.
    """
    shown = ["no apps (eunomia submit FILE brings one)"]
    if over:
        shown = [f"no live app; {over} {'is' if over == 1 else 'are'} over (eunomia apps --all lists them)"]
    if answer.apps:
        shown = table(HEADERS, [_row(app) for app in answer.apps], right=RIGHT)
        shown += [f"{app.app}: {text}" for app in answer.apps if (text := _trouble(app))]
    return [*shown, *filter(None, [missing(answer.missing_slots)])]


def _trouble(app: pb.App) -> str:
    """Returns an app's failures as text; empty if there are none."""
    return failure_text(app) or (app.why if app.state == "failed" else "")


def _row(app: pb.App) -> tuple[str, ...]:
    done, ends_in = given(app, "done"), given(app, "ends_in_seconds")
    over = app.state in OVER
    return (
        app.app,
        app.user,
        app.state,
        app.tuner,
        number(given(app, "rho")),
        f"{app.slots} of {app.max_slots}",
        str(app.running),
        str(app.waiting),
        str(app.paused),
        str(app.ended),
        "-" if done is None else f"{100.0 * done:.0f} %",
        number(given(app, "best"), 3),
        duration(app.jct_seconds if over else app.age_seconds),
        "-" if ends_in is None else duration(ends_in),
    )


def _follow(client: Client, *, ended: bool, as_json: bool) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            answer = client.list(ended=ended)
            typer.echo(json.dumps(facts(answer)) if as_json else "\n".join(_lines(client, answer, ended=ended)))
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)


def _redraw(client: Client, *, ended: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with contextlib.suppress(KeyboardInterrupt), Live(console=Console(), auto_refresh=False) as live:
        while True:
            live.update(
                Text("\n".join(_lines(client, client.list(ended=ended), ended=ended)), no_wrap=True), refresh=True
            )
            time.sleep(WATCH_SECONDS)
