"""``eunomia simulate``: a workload on a described cluster under one or many policies."""

import json
import shlex
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eunomia.errors import InputError, RunErrors
from eunomia_testbed.commands.collecting import uncollected

if TYPE_CHECKING:
    from eunomia_testbed.running.many import Outcome
    from eunomia_testbed.running.plan import Plan

OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130


def simulate(
    trace: Annotated[
        str | None, typer.Argument(help="A trace, gzipped or not; - is stdin.", show_default=False)
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Generate a workload instead: themis1, gavel, shockwave, ...")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help='Such as "4x8 V100", or a cluster file.')] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="A preset, a profile file or plugins (A, A+B); may be given several times.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value in each profile; trace.KEY is the reader's, WORKLOAD.KEY the generator's.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="All randomness follows from it.")] = 0,
    seeds: Annotated[str | None, typer.Option(metavar="0-4", help="Several seeds, such as 0-4 or 0,3.")] = None,
    load: Annotated[str, typer.Option(metavar="1,2", help="How many times as fast jobs arrive.")] = "1",
    trace_format: Annotated[str | None, typer.Option("--format", help="Of the trace, where it cannot be told.")] = None,
    throughputs: Annotated[
        str | None, typer.Option(help="Measured throughputs, which Gavel's and Shockwave's traces need.")
    ] = None,
    speeds: Annotated[
        str | None, typer.Option(help="A file or folder of measured speeds, or: analytic. How fast jobs really are.")
    ] = None,
    rules: Annotated[str | None, typer.Option(help="A peer's round rules: gavel.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="KEY=VALUE", help="One of these rules, set otherwise.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", metavar="start=20s", help="What start, checkpoint, restore, migrate, ... take."),
    ] = None,
    failures: Annotated[
        str | None, typer.Option(help="between=30d,repair=1h for machines that fail, or a CSV file.")
    ] = None,
    know: Annotated[
        str | None,
        typer.Option(
            help="What app masters know: declared, measured or oracle. By default declared, with --rules oracle."
        ),
    ] = None,
    error: Annotated[float, typer.Option(help="Relative error of what app masters report.")] = 0.0,
    lie: Annotated[
        list[str] | None, typer.Option("--lie", metavar="APP=2.0", help="A factor on the work that an app reports.")
    ] = None,
    agents: Annotated[bool, typer.Option("--agents", help="App masters answer offers with bids of their own.")] = False,
    until: Annotated[str | None, typer.Option(metavar="30d", help="Cut off after this much simulated time.")] = None,
    rho: Annotated[str | None, typer.Option(help="The ρ to judge by: themis, static, contention or exclusive.")] = None,
    unfair: Annotated[float, typer.Option(help="The ρ above which an app counts as treated unfairly.")] = 1.05,
    out: Annotated[
        Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder of an interrupted run.")] = False,
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Processes; by default as many as are worth it.", show_default=False)
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write tables as CSV too.")] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Rows that are not used, apps left over: an error.")] = False,
    tolerate_faults: Annotated[
        bool,
        typer.Option("--tolerate-faults", help="Go on after a plugin's fault; after several the fallback decides."),
    ] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False,
) -> int:
    """Simulate a workload on a described cluster, under one or many policies."""
    given = locals()
    if resume and out is None:
        raise InputError("--resume must stand with --out, the folder to go on with", value="none", place="--out")
    with uncollected():
        from eunomia_testbed.commands.planning import Flags, plan_of

        plan, heading = plan_of(Flags(**given))
    shown = progress and not quiet
    if shown:
        _say(heading)
    folder = out or Path("eunomia-out") / _new_name()
    outcome = _run(plan, folder, processes, overwrite=overwrite, resume=resume, report=report, shown=shown)
    return _tell(outcome, strict=strict, as_json=as_json, quiet=quiet)


def _new_name() -> str:
    from eunomia_testbed.results.folder import new_folder_name

    return new_folder_name("simulate", datetime.now(UTC))


# -- running and telling


def _run(
    plan: "Plan", folder: Path, processes: int | None, *, overwrite: bool, resume: bool, report: bool, shown: bool
) -> "Outcome":
    from eunomia_testbed.results.folder import is_there
    from eunomia_testbed.running.cell_files import is_done
    from eunomia_testbed.running.display import display
    from eunomia_testbed.running.many import run_plan
    from eunomia_testbed.running.pool import WorkerDiedError

    done = sum(is_done(folder, cell) for cell in plan.cells()) if resume and is_there(folder) else 0
    watch = display(plan, done=done) if shown else None
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_plan(
            plan, folder, processes=processes, overwrite=overwrite, resume=resume, report=report, watch=watch
        )
    except WorkerDiedError as error:
        raise WorkerDiedError(error.rule, value=error.value, place=f"{error.place}; {_goes_on(folder)}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        if watch is not None:
            watch.close()


def _tell(outcome: "Outcome", *, strict: bool, as_json: bool, quiet: bool) -> int:
    from eunomia_testbed.commands.table import json_rows, notes_of, table_lines
    from eunomia_testbed.results.run_data import read_table

    metrics, timings = outcome.metrics, read_table(outcome.folder, "timings")
    if as_json:
        rows = json_rows(metrics, timings)
        failed = [{"policy": each.policy, "seed": each.seed, "error": each.error} for each in outcome.facts.failures]
        plain = {"schema": "eunomia/simulate@1", "out": str(outcome.folder), "ended": outcome.ended}
        told = {"report": None if outcome.report is None else str(outcome.report), "dropped": outcome.dropped}
        typer.echo(json.dumps(plain | told | {"rows": rows, "failed": failed}, ensure_ascii=False))
    elif quiet:
        typer.echo(outcome.folder)
    else:
        lines = [*table_lines(metrics, timings, outcome.facts), "", *notes_of(metrics, outcome.facts)]
        lines = lines if outcome.done or outcome.failed else []
        lines += [f"{outcome.dropped} rows or jobs not used: dropped.csv"] if outcome.dropped else []
        left = f"{len(outcome.failed)} of {outcome.cells} simulations; {_goes_on(outcome.folder)}"
        lines += [f"Failed   {left}"] if outcome.failed else []
        lines += [f"Results  {outcome.folder}"] + ([f"Report   {outcome.report}"] if outcome.report else [])
        typer.echo("\n".join(lines))
    if outcome.ended == "interrupted":
        _say([f"interrupted: {outcome.done} of {outcome.cells} simulations are done; {_goes_on(outcome.folder)}"])
        return INTERRUPTED
    if outcome.failed:
        raise RunErrors(list(outcome.failed))
    if not strict:
        return OK
    whole = outcome.dropped == 0 and bool((metrics["apps_finished"] == metrics["apps"]).all())
    return OK if whole and metrics["faults"].sum() == 0 else ANSWER_IS_NO


def _goes_on(folder: Path) -> str:
    return f"the same command with --out {shlex.quote(str(folder))} --resume goes on"


def _say(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
