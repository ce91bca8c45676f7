"""The flags of ``eunomia demo``."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from eunomia_testbed.demo.apps_of_demo import PRESET, SEED


class DemoFlags(BaseModel):
    """Flags of ``eunomia demo``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: Annotated[str, typer.Option(help="A preset, a profile file or a plugin.")] = PRESET
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Another value in the profile.")
    ] = None
    slots: Annotated[int | None, typer.Option(help="CPU slots where no GPU is found; 4 by default.")] = None
    slot_types: Annotated[str, typer.Option(help="Paced CPU slots, as in '2x fast:0.5, 2x slow:0.25'.")] = ""
    seed: Annotated[int, typer.Option(help="All randomness of arbiter and searches follows from it.")] = SEED
    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the report's path alone.")] = False
