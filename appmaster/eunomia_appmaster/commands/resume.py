"""``eunomia resume``: ends an app's suspension at once."""

import json
from typing import Annotated

import typer

from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir


def resume(
    app: Annotated[str, typer.Argument(metavar="APP")],
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Try a suspended app at once, instead of at the end of its pause: its jobs go on where they are."""
    with Client(address, state_dir=state_dir) as client:
        answer = client.resume_app(app)
    if as_json:
        facts = {
            "schema": "eunomia/resume@1",
            "app": answer.app,
            "attempt": answer.attempt,
            "unfinished": answer.unfinished,
        }
        typer.echo(json.dumps(facts))
    else:
        jobs = "1 job goes" if answer.unfinished == 1 else f"{answer.unfinished} jobs go"
        typer.echo(f"{answer.app}: taken up again; attempt {answer.attempt} of its app master starts, and {jobs} on")
