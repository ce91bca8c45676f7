"""``eunomia report``: writes tables and an HTML page about what an arbiter has served, during or after its run."""

import contextlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from eunomia.errors import InputError
from eunomia.journal.files import is_locked
from eunomia_testbed.live_runs.leaving import leave_record
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.results import ResultFolder, new_folder_name

OK: Final = 0
JOURNAL: Final = "journal.sqlite"


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="The arbiter's state folder; default: that of `eunomia serve`."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The new folder; default: eunomia-out/report-TIME."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write tables and an HTML page about all that an arbiter has served so far; its state folder is only read."""
    from eunomia_appmaster.service.settings import default_state_dir

    state = folder or default_state_dir()
    _check_state(state)
    target = out or Path("eunomia-out") / new_folder_name("report", datetime.now(UTC))
    _check_apart(state, target)
    live = is_locked(state / JOURNAL)
    with contextlib.closing(LiveRecord(state)) as record:
        record.poll()
        _check_record(record)
        made = ResultFolder.create(target, overwrite=overwrite)
        started, ended = _utc(record.first_at or record.last_at), None if live else _utc(record.last_at)
        page = leave_record(record, made, tuple(sys.argv), started, ended)
    if as_json:
        facts = {"schema": "eunomia/report@1", "folder": str(state), "live": live, "out": str(target)}
        typer.echo(json.dumps(facts | {"report": str(page)}))
    else:
        typer.echo(f"tables and page: {page}" + (" (the arbiter still runs)" if live else ""))
    return OK


def _check_state(state: Path) -> None:
    """Check that a folder is an arbiter's state folder.

    Raises:
        InputError: the folder is not an arbiter's state folder.
    """
    rule = f"a state folder must be one that `eunomia serve` writes, with {JOURNAL}"
    try:
        if (state / JOURNAL).is_file():
            return
        what = "no such folder" if not state.exists() else "a file" if not state.is_dir() else "none of it"
    except OSError as error:
        what = error.strerror or str(error)
    if what == "none of it" and (state / "run.json").is_file():
        what = "a folder of results, which has its own page"
    raise InputError(rule, value=what, place=str(state))


def _check_apart(state: Path, target: Path) -> None:
    """Check that the results folder is not the state folder, not within it, and does not contain it.

    Raises:
        InputError: the folders overlap.
    """
    home, there = state.resolve(), target.resolve()
    if there == home or home in there.parents or there in home.parents:
        rule = f"--out must be apart from the state folder {state}"
        raise InputError(rule, value=str(target), place="--out")


def _check_record(record: LiveRecord) -> None:
    """Check that an app has arrived, and that the journal is complete from its first step.

    Raises:
        InputError: no app has arrived, or the journal has dropped its first steps.
    """
    if record.dropped_steps:
        rule = (
            "a journal must have all its steps for tables and a page (eunomia serve --journal-keep archive keeps them)"
        )
        raise InputError(rule, value=f"one that has dropped its first {record.dropped_steps}", place=str(record.folder))
    if record.cluster is None or not record.apps:
        raise InputError(
            "an arbiter must have served an app to be reported", value="none yet", place=str(record.folder)
        )


def _utc(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
