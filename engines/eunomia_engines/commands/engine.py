"""``eunomia engine check``: reports which prerequisites of an engine are found, and which are missing."""

import json
from typing import Annotated, Final

import typer

from eunomia.errors import PluginError
from eunomia.platform.registry import default_registry
from eunomia_appmaster.commands.console import AsJson
from eunomia_engines.engines import load_engine

SCHEMA: Final = "eunomia/engine@1"

engine = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Engines that give machines to an arbiter: check one."
)


@engine.callback()
def _engine() -> None:
    """Check an engine that gives machines to an arbiter."""


@engine.command("check")
def check(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="kubernetes, slurm, or a plugin's.")],
    as_json: AsJson = False,
) -> None:
    """Say what of an engine is there, and what is missing; exit code 1 where something is."""
    kind = load_engine(name, default_registry())
    try:
        found = kind.check()
    except Exception as error:
        rule = f'the check of engine "{name}" must raise nothing'
        raise PluginError(rule, value=f"{type(error).__name__}: {error}") from error
    is_good = all(one.is_good for one in found)
    if as_json:
        rows = [{"good": one.is_good, "text": one.text} for one in found]
        typer.echo(json.dumps({"schema": SCHEMA, "engine": name, "good": is_good, "findings": rows}))
    else:
        typer.echo("\n".join(f"{'there  ' if one.is_good else 'missing'}  {one.text}" for one in found))
    raise typer.Exit(0 if is_good else 1)
