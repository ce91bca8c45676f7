"""``eunomia best``: shows the best trial of a search, and copies its checkpoint, parameters and metrics."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from eunomia.model.shapes import value
from eunomia_appmaster.app.names import no_such_app
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import Address, AsJson, StateDir
from eunomia_appmaster.commands.run_apps import app_of_run, apps_of_run
from eunomia_appmaster.explaining.best_jobs import (
    BestJob,
    best_checkpoint,
    best_job,
    best_line,
    check_metric,
    record_of,
)
from eunomia_appmaster.explaining.metric_check import metric_not_logged
from eunomia_appmaster.node.file_rights import as_owner
from eunomia_appmaster.protocol import arbiter_pb2 as pb

NONE_YET = 1
"""Exit code: the app has no best trial, or not every file could be copied."""


def best(
    app: Annotated[str, typer.Argument(metavar="APP")],
    copy: Annotated[
        Path | None,
        typer.Option("--copy", metavar="DIR", help="Copy best.pt, parameters.toml and metrics.csv into a folder."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="A finished run's folder instead of the arbiter.")
    ] = None,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> int:
    """Show the best trial of a search: parameters, metric at which step, checkpoint; also while the search runs."""
    if run is not None:
        seen = _of_run(run, app)
    else:
        with Client(address, state_dir=state_dir) as client:
            listed = client.app(app)
            seen = SearchedApp(app=listed, folder=Path(listed.folder))
    check_metric(seen.app)
    found = _with_files(best_job(seen.app.standing), seen.folder)
    copied = [] if copy is None or found is None else _copy(found, seen, copy)
    if as_json:
        warning = metric_not_logged(seen.app) or None
        typer.echo(json.dumps({"schema": "eunomia/best@1", **record_of(seen.app, found), "warning": warning}))
    else:
        typer.echo("\n".join([line(seen, found), *(f"copied to {path}" for path in copied)]))
    lacks = copy is not None and (found is None or not found.checkpoint)
    if lacks and found is not None:
        typer.echo(f"{found.job} has no checkpoint that Eunomia knows, so no best.pt was copied", err=True)
    return NONE_YET if found is None or lacks else 0


@value
class SearchedApp:
    """An app that searches, with its folder on this machine."""

    app: pb.App
    folder: Path


def _of_run(run: Path, name: str) -> SearchedApp:
    """Return an app from a run's folder.

    Raises:
        InputError: there is no journal, or no such app in it.
    """
    app = app_of_run(run, name)
    if app is None:
        raise no_such_app(name, apps_of_run(run), place=str(run))
    return SearchedApp(app=app, folder=Path(app.folder))


def _with_files(found: BestJob | None, folder: Path) -> BestJob | None:
    """Return the best trial with its present checkpoint, if the app's folder can be read here."""
    trial = None if found is None else folder / found.job.rpartition("/")[2]
    with as_owner(folder):
        kept = None if trial is None else best_checkpoint(trial)
    if found is None or kept is None:
        return found
    return dataclasses.replace(
        found, checkpoint=str(kept.path), checkpoint_step=kept.step, checkpoint_metric=kept.metric
    )


def line(seen: SearchedApp, found: BestJob | None) -> str:
    """Return the best trial as a line of text."""
    app = seen.app
    if found is None:
        metric = app.standing.metric
        what = f"logged a finite {metric}" if metric else "been reported by its app master"
        warning = metric_not_logged(app)
        if warning:
            return f"{app.app}: {warning}"
        return f"{app.app}: no trial has {what}{'' if app.state in OVER else ' yet'}"
    return best_line(found, app.standing.metric, seen.folder)


def _copy(found: BestJob, seen: SearchedApp, target: Path) -> list[Path]:
    from eunomia_appmaster.explaining.best_copies import copy_best

    title = f"{found.job}: {seen.app.standing.metric} {found.metric} at step {found.step}"
    with as_owner(seen.folder):  # for root: targets of a user's links are not copied, and the copies are the user's
        return copy_best(found, seen.folder / found.job.rpartition("/")[2], target, title=title)
