"""``eunomia clean``: removes the folders of apps that ended long ago."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.units import parse_duration
from eunomia_appmaster.app.cleaning import bytes_of, remove_all_but_best, remove_app
from eunomia_appmaster.app.names import no_such_app
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir, duration, table
from eunomia_appmaster.protocol import arbiter_pb2 as pb

KEEP_BEST: Final = "best"
MIB: Final = float(1 << 20)


@value
class Removable:
    """An ended app whose folder can be removed, with the folder's size."""

    app: pb.App
    ended_seconds_ago: float
    bytes: int


def clean(
    apps: Annotated[list[str] | None, typer.Argument(metavar="[APP]...", help="Of these alone; none: all.")] = None,
    older_than: Annotated[str, typer.Option("--older-than", metavar="TIME", help="Ended so long ago: 30d.")] = "30d",
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="WHAT", help="best: files of the app, and its best checkpoint.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """List the folders of apps that ended long ago, then remove them."""
    seconds = float(parse_duration(older_than, name="--older-than", zero=True))
    if keep not in (None, KEEP_BEST):
        raise InputError("--keep must be best", value=f'"{keep}"')
    with Client(address, state_dir=state_dir) as client:
        root = Path(client.health().state_dir) / "apps"
        if not dry_run:
            check_may_remove(root)
        found = _removable(client, root, tuple(apps or ()), seconds)
        _show(found, older_than, as_json=as_json, dry_run=dry_run)
        if dry_run or not found:
            return
        if not yes and not _agreed(f"Remove {'all but the best of ' if keep else ''}{_folders(len(found))}?"):
            return
        removed = 0
        for one in found:
            if client.app(one.app.app).state not in OVER:  # it was continued after the list was made
                typer.echo(f"{one.app.app}: runs again, left", err=True)
                continue
            if keep:
                remove_all_but_best(root, one.app.app, one.app.standing.best_job)
            else:
                remove_app(root, one.app.app)
            removed += 1
        if not as_json:
            typer.echo(f"removed {'all but the best of ' if keep else ''}{_folders(removed)}")


def check_may_remove(root: Path) -> None:
    """Check that this account may remove folders of apps, before any is listed.

    Raises:
        InputError: this account may not remove them, for instance a user's own account.
    """
    try:
        root.stat()
    except FileNotFoundError:
        return
    except PermissionError:  # of a folder above it
        pass
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        rule = "`eunomia clean` must run under the arbiter's account"
        remedy = "ask the operator for it, or remove files in the folders of your own apps"
        raise InputError(f"{rule} ({remedy})", value=f"user id {os.geteuid()}, which may not change {root}")


def _agreed(question: str) -> bool:
    """Ask the user a yes-or-no question and return whether the answer is yes.

    Raises:
        InputError: the input ends before an answer.
    """
    try:
        return typer.confirm(question)
    except typer.Abort as error:
        if not isinstance(error.__context__, EOFError):  # Ctrl-C
            raise
        typer.echo(err=True)
        raise InputError("the question must be answered, or --yes be given", value="the end of the input") from error


def _folders(count: int) -> str:
    return "1 folder" if count == 1 else f"{count} folders"


def _removable(client: Client, root: Path, names: Sequence[str], seconds: float) -> list[Removable]:
    """Return the apps to remove, ordered by their end, earliest first.

    Raises:
        InputError: a named app does not exist, or has not ended.
    """
    known = {app.app: app for app in client.list(ended=True).apps}
    for name in names:
        app = known.get(name)
        if app is None:
            raise no_such_app(name, list(known))
        if app.state not in OVER:
            raise InputError("an app must have ended to be removed", value=f"{name} is {app.state}")
    found = []
    for app in known.values():
        ago = app.age_seconds - app.jct_seconds
        chosen = app.app in names if names else True
        folder = root / app.app
        if chosen and app.state in OVER and ago >= seconds and folder.is_dir() and not folder.is_symlink():
            found.append(Removable(app=app, ended_seconds_ago=ago, bytes=bytes_of(folder)))
    return sorted(found, key=lambda one: -one.ended_seconds_ago)


def _show(found: Sequence[Removable], older_than: str, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        rows = [
            {"app": one.app.app, "state": one.app.state, "ended_seconds_ago": one.ended_seconds_ago, "bytes": one.bytes}
            for one in found
        ]
        typer.echo(json.dumps({"schema": "eunomia/clean@1", "dry_run": dry_run, "apps": rows}))
        return
    if not found:
        typer.echo(f"no folder of an app that ended {older_than} ago or earlier (--older-than)")
        return
    lines = [
        (one.app.app, one.app.state, f"{duration(one.ended_seconds_ago)} ago", f"{one.bytes / MIB:,.1f}")
        for one in found
    ]
    headers = ("APP", "STATE", "ENDED", "MIB")
    typer.echo("\n".join(table(headers, lines, right=("MIB",))))
    typer.echo(f"{_folders(len(found))}, {sum(one.bytes for one in found) / MIB:,.1f} MiB")
