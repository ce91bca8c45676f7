"""``eunomia serve``: runs the arbiter and this machine's launcher, and finally writes tables and an HTML page."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from eunomia.errors import InputError
from eunomia.journal.files import Keep
from eunomia_appmaster.commands import serve as serving
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.commands.serve_flags import ServeFlags


class ServeAndReportFlags(ServeFlags):
    """Flags of ``eunomia serve``."""

    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="At the end, leave tables and a page there: all that was served."),
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="ENGINE", help="On the nodes that this shell has of an engine: slurm (salloc)."),
    ] = None


@with_flags(ServeAndReportFlags)
def serve(flags: ServeAndReportFlags) -> int:
    """Run the arbiter and this machine's launcher."""
    if flags.out is None:
        return _serve(flags)
    from eunomia_testbed.results import ResultFolder

    if flags.journal_keep is Keep.DROP:
        rule = "--out must have a journal with all its steps"
        raise InputError(rule, value=f"--journal-keep {flags.journal_keep.value}", place="serve")
    if flags.on is None:
        serving.checked(flags)  # checked first, so that an error leaves no folder
    if flags.on is not None and flags.out.exists():  # with --on, errors show only at the start
        raise InputError("--out must name a new folder with --on", value=str(flags.out), place="--out")
    folder = ResultFolder.create(flags.out, overwrite=flags.overwrite)
    begun = _utc()
    code = _serve(flags)
    _leave(flags, folder.path, begun)
    return code


def _serve(flags: ServeAndReportFlags) -> int:
    """Serve on this machine's slots, or with ``--on`` on the nodes of a cluster engine; return the exit code."""
    if flags.on is None:
        return serving.serve(flags)
    from eunomia.platform.registry import default_registry
    from eunomia_engines.engines import serve_on

    return serve_on(flags.on, flags, default_registry())


def _leave(flags: ServeAndReportFlags, out: Path, begun: str) -> None:
    """Write tables and the HTML page, and print the path of the page."""
    from eunomia_testbed.live_runs.leaving import leave_served
    from eunomia_testbed.results import ResultFolder

    report = leave_served(flags.home, ResultFolder(path=out), tuple(sys.argv), begun, _utc())
    line = f"nothing was served: no page in {out}" if report is None else f"tables and page: {report}"
    facts = {"schema": "eunomia/served@1", "out": str(out), "report": None if report is None else str(report)}
    typer.echo(json.dumps(facts) if flags.as_json else line)


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
