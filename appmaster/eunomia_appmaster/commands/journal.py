"""``eunomia journal check``: looks for violated invariants in a run's journal and its workers' files."""

import functools
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from eunomia.errors import InputError
from eunomia_appmaster.commands.console import AsJson
from eunomia_appmaster.journal_check import Report, check_folder
from eunomia_appmaster.journal_check.check import JOURNAL
from eunomia_appmaster.journal_check.findings import Finding, Rule

journal = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look into the arbiter's journal."
)


@journal.callback()
def _journal() -> None:
    """Commands about the arbiter's journal."""


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
    """Check that no slot was held twice, no gang ran in part, no app was lost, and every order was written first.

    The check reads the journal and the workers' own files with separate code, then tries without any change whether
    an arbiter can start from the journal; the arbiter may be running. Exit code 1 if the check finds a violation.
    """
    report = check_folder(folder, over=over)
    _try(report, journal_of(folder))
    typer.echo(json.dumps(facts(report)) if as_json else "\n".join(lines(report)))
    if report.found:
        raise typer.Exit(1)


@journal.command("salvage")
def salvage(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A state folder, a run's folder, or a journal.")],
) -> None:
    """Replace a journal by its undamaged part; the damaged file is kept under another name.

    Before the replacement, a trial run checks that an arbiter can start from the new file. Exit code 2 if it
    cannot; nothing is changed then.
    """
    typer.echo("\n".join(save(journal_of(folder))))
    typer.echo("an arbiter begins with it: start `eunomia serve`")


def save(path: Path) -> list[str]:
    """Replace a journal by its undamaged part, and accept the loss of the other steps; returns lines on what was done.

    Raises:
        InputError: there is no journal, an arbiter has it open, or its beginning is damaged; nothing was changed.
    """
    from eunomia.journal.journal import Journal
    from eunomia_appmaster.explaining.dry_recovery import try_recovery
    from eunomia_appmaster.node.mark_file import MARK
    from eunomia_appmaster.service.marks import Marks
    from eunomia_appmaster.service.salvage import lines as words
    from eunomia_appmaster.service.salvage import salvage as salvaged

    if not os.path.isfile(path):  # noqa: PTH113 - also under a name that no disk takes
        raise InputError("a journal must exist to be saved from", value="no such file", place=str(path))
    done = salvaged(path, check=functools.partial(_check_begins, path))
    with Journal.open(path) as journal:
        marks = Marks(journal, path.with_name(MARK))
        if (loss := marks.lost()) is not None:
            marks.accept(loss, loss.words(), logged=False)
        marks.close()
    return [*words(path, done), *try_recovery(path).lines()]


def _check_begins(path: Path, fresh: Path) -> None:
    """Raise ``InputError`` if no arbiter could start from the salvaged journal."""
    from eunomia_appmaster.explaining.dry_recovery import try_recovery

    dry = try_recovery(fresh)
    if dry.refused is not None:
        rule = "an arbiter must begin with what is good of a journal; nothing was changed"
        raise InputError(rule, value=dry.refused.replace(str(fresh), str(path)), place=str(path))


def journal_of(folder: Path) -> Path:
    """Return the journal in a folder; a path of a journal is returned unchanged."""
    return folder / JOURNAL if os.path.isdir(folder) else folder  # noqa: PTH112 - as above


def _try(report: Report, path: Path) -> None:
    """Add the findings of a dry start of the arbiter to the report."""
    from eunomia_appmaster.explaining.dry_recovery import try_recovery

    dry = try_recovery(path)
    if dry.refused is not None:
        report.add(Finding(rule=Rule.NOT_RECOVERABLE, what=dry.refused, place=path.name))
    for name in dry.lost:
        what = f"app {name} fails at the next start, for its note is damaged or missing"
        report.add(Finding(rule=Rule.APP_LOST, what=what, place="table notes", app=name))


def facts(report: Report) -> dict[str, object]:
    """Return the report as a JSON object."""
    return {"schema": "eunomia/journal-check@1", **report.to_json()}


def lines(report: Report) -> list[str]:
    """Return the report as text."""
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
