"""``eunomia cancel``: ends an app."""

import json
from typing import Annotated

import typer

from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir


def cancel(
    app: Annotated[str, typer.Argument(metavar="APP")],
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Cancel an app: its jobs save and leave, and its slots become free for other apps."""
    with Client(address, state_dir=state_dir) as client:
        answer = client.cancel(app)
    if as_json:
        facts = {
            "schema": "eunomia/cancel@1",
            "app": answer.app,
            "was_over": answer.was_over,
            "state": answer.state,
        }
        typer.echo(json.dumps(facts))
    elif answer.was_over:
        typer.echo(f"{answer.app}: was over already ({answer.state})")
    else:
        typer.echo(f"{answer.app}: cancelled; its jobs save and leave their slots")
