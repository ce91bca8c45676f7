"""``eunomia submit``: submits an app file to the arbiter."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eunomia.errors import InputError
from eunomia.platform.toml_bounds import SMALL
from eunomia_appmaster.client import Client, Ended
from eunomia_appmaster.commands.console import Address, AsJson, StateDir, duration, missing, missing_facts, number
from eunomia_appmaster.explaining.best_jobs import best_job, record_of
from eunomia_appmaster.explaining.metric_check import metric_not_logged
from eunomia_appmaster.protocol import arbiter_pb2 as pb

FAILED = 1
SHOWN_NAMES = 5


def submit(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The app file; - is stdin. With --more-trials: an app's name.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the end; exit code 1 if the app failed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the app's name alone.")] = False,
    more_trials: Annotated[
        int | None,
        typer.Option("--more-trials", metavar="N", min=1, help="Let an app that has ended go on with N more trials."),
    ] = None,
    wait_for_machines: Annotated[
        bool,
        typer.Option("--wait-for-machines", help="Accept a gang that is larger than the cluster has ever been."),
    ] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> int:
    """Submit an app: a hyperparameter search, or a single job. Or give a search that has ended more trials."""
    stdin = file == "-"
    with Client(address, state_dir=state_dir) as client:
        if more_trials is not None and wait_for_machines:
            raise InputError("--wait-for-machines must come with an app file", value=f"--more-trials {more_trials}")
        if more_trials is not None:
            return _add_trials(client, file, more_trials, wait=wait, quiet=quiet, as_json=as_json)
        path = Path.cwd() / "stdin.toml" if stdin else Path(file)
        text = _read_stdin() if stdin else None
        app = client.submit(path, text=text, wait_for_machines=wait_for_machines)
        absent = () if quiet else client.list(app=app.name).missing_slots
        if quiet:
            typer.echo(app.name)
        elif not as_json:
            unnamed = unnamed_parameters(app.submitted)
            typer.echo("\n".join([*lines(app.submitted, client.address), *unnamed, *too_wide(app.submitted, absent)]))
        elif not wait:
            typer.echo(json.dumps(facts(app.submitted, client.address, absent)))
        if not wait:
            return 0
        return _wait(client, app.name, facts(app.submitted, client.address, absent), quiet=quiet, as_json=as_json)


def _add_trials(client: Client, app: str, trials: int, *, wait: bool, quiet: bool, as_json: bool) -> int:
    """Add trials to an app, print the answer, and wait for its end if asked to; returns the exit code."""
    answer = client.more_trials(app, trials)
    made = {
        "schema": "eunomia/more_trials@1",
        "app": answer.app,
        "more_trials": trials,
        "trials": answer.trials,
        "attempt": answer.attempt,
        "unfinished": answer.unfinished,
    }
    if quiet:
        typer.echo(answer.app)
    elif not as_json:
        typer.echo("\n".join(more_lines(answer, trials)))
    elif not wait:
        typer.echo(json.dumps(made))
    return _wait(client, answer.app, made, quiet=quiet, as_json=as_json) if wait else 0


def _wait(client: Client, name: str, made: dict[str, Any], *, quiet: bool, as_json: bool) -> int:
    """Wait for an app's end and print it; returns the exit code."""
    ended = client.wait(name, on_look=None if quiet else _MetricWarning())
    listed = client.app(name)
    warning = "" if quiet else metric_not_logged(listed)
    if as_json:
        typer.echo(json.dumps(made | record_of(listed, best_job(listed.standing)) | {"warning": warning or None}))
    elif not quiet:
        typer.echo("\n".join([*_end_lines(ended), *([f"  {warning}"] if warning else [])]))
    return 0 if ended.state == "finished" else FAILED


class _MetricWarning:
    """Warns once, while an app runs, that none of its ended trials has logged the metric."""

    def __init__(self) -> None:
        self._ended = 0

    def __call__(self, app: pb.App) -> None:
        if app.ended <= self._ended:
            return
        warning = metric_not_logged(app) if self._ended == 0 else ""
        self._ended = app.ended
        if warning:
            typer.echo(f"warning: {app.app}: {warning}", err=True)


def more_lines(answer: pb.MoreTrialsResponse, trials: int) -> list[str]:
    """Return the answer to a request for more trials as lines of text."""
    more = "1 more trial" if trials == 1 else f"{trials} more trials"
    left = "" if not answer.unfinished else f", and {answer.unfinished} earlier ones that had not ended"
    ways = f"eunomia apps --watch   eunomia best {answer.app}   eunomia cancel {answer.app}"
    return [f"{answer.app}: goes on with {more}{left}; {answer.trials} in all", f"  {ways}"]


def _read_stdin() -> str:
    """Read an app file from stdin, at most up to the size limit, since a pipe may never end."""
    content = sys.stdin.buffer.read(SMALL.kibibytes * 1024 + 1)
    if len(content) > SMALL.kibibytes * 1024:
        raise InputError(f"an app file must have at most {SMALL.kibibytes} KiB", value="more", place="stdin")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("an app file must be readable text", value=str(error), place="stdin") from error


def facts(answer: pb.SubmitResponse, address: str, absent: Sequence[pb.MissingSlot]) -> dict[str, Any]:
    """Return the answer as a JSON object."""
    return {
        "schema": "eunomia/submit@1",
        "app": answer.app,
        "renamed": answer.renamed,
        "user": answer.user,
        "address": address,
        "trials": answer.trials,
        "slots": {"min": answer.least, "max": answer.most},
        "max_iterations": answer.max_iterations if answer.HasField("max_iterations") else None,
        "other_apps": answer.other_apps,
        "cluster_slots": answer.slots,
        "waits_for": answer.waits_for or None,
        "unnamed_parameters": list(answer.unnamed_parameters),
        "missing_slots": missing_facts(absent),
    }


def lines(answer: pb.SubmitResponse, address: str) -> list[str]:
    """Return the answer as text."""
    sizes = str(answer.least) if answer.least == answer.most else f"{answer.least} to {answer.most}"
    work = f"a job of {sizes}" if answer.trials == 1 else f"{answer.trials} trials of {sizes}"
    slots = "slot" if answer.most == 1 else "slots"
    limit = ""
    if answer.HasField("max_iterations"):
        limit = f", at most {answer.max_iterations} iterations" + (" each" if answer.trials > 1 else "")
    first = f"{answer.app}: submitted to {address} as user {answer.user}, {work} {slots}{limit}"
    name = " (the name was in use)" if answer.renamed else ""
    others = "no other app is" if answer.other_apps == 0 else f"{answer.other_apps} other app"
    others += "" if answer.other_apps == 0 else "s" if answer.other_apps > 1 else ""
    share = f"{others} here, {_slots(answer)}" if answer.other_apps == 0 else _sharing(others, answer)
    ways = f"eunomia apps --watch   eunomia explain {answer.app}   eunomia cancel {answer.app}"
    return [first + name, f"  {share}{_next(answer)}.   {ways}"]


def unnamed_parameters(answer: pb.SubmitResponse) -> list[str]:
    """Return the lines of a warning if the command of a search names no parameter; else none."""
    if not answer.unnamed_parameters:
        return []
    many = len(answer.unnamed_parameters)
    names = ", ".join(answer.unnamed_parameters[:SHOWN_NAMES]) + (", ..." if many > SHOWN_NAMES else "")
    what = f"parameter {names}" if many == 1 else f"parameters {names}"
    return [
        f"  The command has neither {{args}} nor {what}: unless the script reads run.params or EUNOMIA_PARAMS,",
        "  every trial trains the same.",
    ]


def too_wide(answer: pb.SubmitResponse, absent: Sequence[pb.MissingSlot]) -> list[str]:
    """Return an explanation if an app waits because the cluster lacks machines for its smallest gang; else none."""
    if not answer.waits_for:
        return []
    return [f"  No job of it can start: {answer.waits_for}.", *filter(None, [missing(absent)])]


def _sharing(others: str, answer: pb.SubmitResponse) -> str:
    return f"{others} share{'s' if answer.other_apps == 1 else ''} {_slots(answer)}"


def _slots(answer: pb.SubmitResponse) -> str:
    return f"{answer.slots} slot{'' if answer.slots == 1 else 's'}"


def _next(answer: pb.SubmitResponse) -> str:
    if not answer.HasField("next_round_in_seconds"):
        return ""
    what = "auction" if answer.auction else "round"
    return f"; next {what} within {duration(max(1.0, answer.next_round_in_seconds))}"


def _end_lines(ended: Ended) -> list[str]:
    why = f": {ended.why}" if ended.why else ""
    lines = [f"{ended.name}: {ended.state} after {duration(ended.jct_seconds)}{why}"]
    lines += [f"  {ended.trouble}"] if ended.trouble else []
    best = ended.best_job
    if best is not None and best.metric is not None:
        lines.append(f"  best {best.job}: {number(best.metric, 4)}   {best.settings}   {best.checkpoint}".rstrip())
    return lines
