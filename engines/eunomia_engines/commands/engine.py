"""``eunomia engine check``: what of an engine is there, and what is missing."""

import json
from typing import Annotated, Final

import typer

from eunomia.errors import InputError
from eunomia.words import did_you_mean
from eunomia_appmaster.commands.console import AsJson
from eunomia_engines.slurm.engine import findings
from eunomia_engines.slurm.programs import SlurmPrograms

SCHEMA: Final = "eunomia/engine@1"
CHECKS: Final = {"slurm": lambda: findings(SlurmPrograms())}

engine = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Engines that give machines to an arbiter: check one."
)


@engine.callback()
def _engine() -> None:
    """Check an engine that gives machines to an arbiter."""


@engine.command("check")
def check(name: Annotated[str, typer.Argument(metavar="ENGINE", help="slurm")], as_json: AsJson = False) -> None:
    """Say what of an engine is there, and what is missing; exit code 1 where something is."""
    if name not in CHECKS:
        raise InputError(f"an engine must be one of {', '.join(CHECKS)}", value=f'"{name}"{did_you_mean(name, CHECKS)}')
    found = CHECKS[name]()
    is_good = all(one.is_good for one in found)
    if as_json:
        rows = [{"good": one.is_good, "text": one.text} for one in found]
        typer.echo(json.dumps({"schema": SCHEMA, "engine": name, "good": is_good, "findings": rows}))
    else:
        typer.echo("\n".join(f"{'there  ' if one.is_good else 'missing'}  {one.text}" for one in found))
    raise typer.Exit(0 if is_good else 1)
