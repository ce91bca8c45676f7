"""``eunomia journal check``: whether a run's journal and its workers' files tell of anything that must never be."""

import json
from pathlib import Path
from typing import Annotated

import typer

from eunomia_appmaster.commands.console import AsJson
from eunomia_appmaster.journal_check import Report, check_folder

journal = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look into the arbiter's journal."
)


@journal.callback()
def _journal() -> None:
    """Look into the arbiter's journal."""


@journal.command("check")
def check(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A state folder, a run's folder, a copy of one, or a journal.")
    ],
    over: Annotated[
        bool, typer.Option("--over", help="The run is over: an app that has not ended counts as lost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a slot was held twice, a gang ran in part, an app was lost, an order was sent before it was written.

    It reads the journal and the workers' own files with code of its own, and changes nothing; the arbiter may run.
    Exit code 1 where it finds something.
    """
    report = check_folder(folder, over=over)
    typer.echo(json.dumps(facts(report)) if as_json else "\n".join(lines(report)))
    if report.found:
        raise typer.Exit(1)


def facts(report: Report) -> dict[str, object]:
    """The report for machines."""
    return {"schema": "eunomia/journal-check@1", **report.to_json()}


def lines(report: Report) -> list[str]:
    """The report for people."""
    apps = ", ".join(f"{count} {state}" for state, count in sorted(report.apps.items())) or "none"
    held = ", an arbiter holds it" if report.running else ""
    made = [str(finding) for finding in report.findings]
    if report.found > len(report.findings):
        made.append(f"... and {report.found - len(report.findings)} more")
    made += [f"note: {remark}" for remark in report.remarks]
    made.append(
        f"{report.steps} steps ({report.first_step} to {report.last_step}{held}), {report.orders} orders, "
        f"{report.checkpoints} checkpoints, {report.containers} workers' containers; apps: {apps}"
    )
    made.append(f"{report.found} findings" if report.found else "nothing found")
    return made
