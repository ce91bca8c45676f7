"""``eunomia profiles``: the rates by kind of job that an arbiter keeps."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from eunomia.errors import InputError
from eunomia.model.kind_profiles import KnownRate
from eunomia_appmaster.client import Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir, table
from eunomia_appmaster.commands.journal import journal_of
from eunomia_appmaster.explaining.dry_recovery import profiles_of
from eunomia_appmaster.service.kind_profile_files import facts_of, load_profile, profile_text

profiles = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Rates by kind of job: list, show, check, export, import, drop.",
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A state folder, or a journal; the arbiter may run.")]
Kind = Annotated[str, typer.Argument(metavar="KIND")]


@profiles.callback()
def _profiles() -> None:
    """Rates by kind of job: list, show, check, export, import, drop."""


@profiles.command("list")
def list_kinds(folder: Folder, as_json: AsJson = False) -> None:
    """List the kinds of job with known rates."""
    known = profiles_of(journal_of(folder))
    if as_json:
        kinds = [{"kind": kind, "points": len(rates)} for kind, rates in sorted(known.items())]
        typer.echo(json.dumps({"schema": "eunomia/profiles@1", "kinds": kinds}))
        return
    rows = [(kind, str(len(rates)), rates[-1].date or "-") for kind, rates in sorted(known.items())]
    typer.echo("\n".join(table(("KIND", "POINTS", "LAST"), rows, right=("POINTS",))))


@profiles.command("show")
def show(folder: Folder, kind: Kind, as_json: AsJson = False) -> None:
    """Show the known rates of a kind."""
    _show(kind, _rates(folder, kind), as_json=as_json)


@profiles.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A kind's file.")], as_json: AsJson = False
) -> None:
    """Read a kind's file and show it; all errors of the file are reported together."""
    kind, rates = load_profile(file)
    _show(kind, rates, as_json=as_json)


@profiles.command("export")
def export(
    folder: Folder, kind: Kind, file: Annotated[Path, typer.Argument(metavar="FILE", help="Must not exist.")]
) -> None:
    """Write the rates of a kind to a TOML file."""
    text = profile_text(kind, _rates(folder, kind))
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        rule = "the file of an export must be new and writable"
        raise InputError(rule, value=error.strerror or str(error), place=str(file)) from error
    typer.echo(f"{kind}: written to {file}")


@profiles.command("import")
def import_kind(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A kind's file.")],
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Replace the rates that the arbiter keeps for a kind by those of a file; running jobs use them from then on."""
    load_profile(file)  # all errors of the file, by its name, also without an arbiter
    with Client(address, state_dir=state_dir) as client:
        answer = client.import_profile(file)
    typer.echo(f"{answer.kind}: {_points(answer.points)} known, {answer.before} before")


@profiles.command("drop")
def drop(kind: Kind, address: Address = None, state_dir: StateDir = None) -> None:
    """Drop the rates that the arbiter keeps for a kind."""
    with Client(address, state_dir=state_dir) as client:
        answer = client.drop_profile(kind)
    typer.echo(f"{answer.kind}: {_points(answer.before)} dropped")


def _points(count: int) -> str:
    return "1 point" if count == 1 else f"{count} points"


def _rates(folder: Path, kind: str) -> tuple[KnownRate, ...]:
    known = profiles_of(journal_of(folder))
    if kind not in known:
        rule = f"a kind must be one with known rates ({', '.join(sorted(known)) or 'there is none yet'})"
        raise InputError(rule, value=f'"{kind}"', place=str(folder))
    return known[kind]


def _show(kind: str, rates: tuple[KnownRate, ...], *, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Any] = {"schema": "eunomia/kind@1", "kind": kind, "points": [facts_of(rate) for rate in rates]}
        typer.echo(json.dumps(facts))
        return
    headers = ("GPUS", "TYPE", "LOCALITY", "RATE", "CPUS", "GIB", "BATCH", "KNOWN", "MACHINE", "DATE")
    keys = ("gpus", "gpu_type", "locality", "rate", "cpus", "memory_gib", "batch_size", "known", "machine", "date")
    rows = [[_cell(facts_of(rate).get(key)) for key in keys] for rate in rates]
    typer.echo("\n".join([f"{kind}: iterations a second", *table(headers, rows)]))


def _cell(given: object) -> str:
    return "-" if given is None else f"{given:g}" if isinstance(given, float) else str(given)
