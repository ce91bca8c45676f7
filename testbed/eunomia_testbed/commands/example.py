"""``eunomia example``: writes the files that the examples of the documents use."""

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from eunomia_testbed.example import EXAMPLE_FILES, write_example

OK: Final = 0


def example(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path(),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same names and another content.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as one JSON object.")] = False,
) -> int:
    """Write a small trace and a cluster file into a folder, to try out commands."""
    paths = write_example(folder, overwrite=overwrite)
    if as_json:
        typer.echo(json.dumps({"schema": "eunomia/example@1", "files": [str(path) for path in paths]}))
        return OK
    width = max(len(str(path)) for path in paths)
    typer.echo("\n".join(f"{path!s:{width}}   {EXAMPLE_FILES[path.name]}" for path in paths))
    return OK
