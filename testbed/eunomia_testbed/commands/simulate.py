"""``eunomia simulate``: simulates a workload on a described cluster under one or more policies."""

import json
import shlex
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from eunomia.errors import InputError, RunErrors
from eunomia.own_stdout import own_stdout
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_testbed.commands.collecting import uncollected
from eunomia_testbed.spec.simulation import SimulateFlags

if TYPE_CHECKING:
    from eunomia_testbed.running.many import Outcome
    from eunomia_testbed.running.plan import Plan

OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130


@with_flags(SimulateFlags)
def simulate(flags: SimulateFlags) -> int:
    """Simulate a workload on a described cluster, under one or more policies."""
    if flags.resume and flags.out is None:
        raise InputError("--resume must stand with --out, the folder to go on with", value="none", place="--out")
    with uncollected(), own_stdout():
        from eunomia_testbed.running.cell_files import is_done
        from eunomia_testbed.spec.planning import plan_of

        plan, heading = plan_of(flags)
    if flags.progress and not flags.quiet:
        _say(heading)
    folder = flags.out or Path("eunomia-out") / _new_name()
    try:
        with own_stdout():
            outcome = _run(plan, folder, flags)
    except KeyboardInterrupt:  # outside of a simulation: before the first, or after the last
        _say([_interrupted(sum(is_done(folder, cell) for cell in plan.cells()), len(plan.cells()), folder)])
        return INTERRUPTED
    return _tell(outcome, flags)


def _new_name() -> str:
    from eunomia_testbed.results.folder import new_folder_name

    return new_folder_name("simulate", datetime.now(UTC))


# -- running and output


def _run(plan: "Plan", folder: Path, flags: SimulateFlags) -> "Outcome":
    from eunomia_testbed.results.folder import is_there
    from eunomia_testbed.running.cell_files import is_done
    from eunomia_testbed.running.display import display
    from eunomia_testbed.running.many import run_plan
    from eunomia_testbed.running.pool import WorkerDiedError

    done = sum(is_done(folder, cell) for cell in plan.cells()) if flags.resume and is_there(folder) else 0
    watch = display(plan, done=done) if flags.progress and not flags.quiet else None
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_plan(
            plan,
            folder,
            processes=flags.processes,
            overwrite=flags.overwrite,
            resume=flags.resume,
            report=flags.report,
            watch=watch,
        )
    except WorkerDiedError as error:
        raise WorkerDiedError(error.rule, value=error.value, place=f"{error.place}; {_goes_on(folder)}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        if watch is not None:
            watch.close()


def _tell(outcome: "Outcome", flags: SimulateFlags) -> int:
    from eunomia_testbed.commands.answers_json import answers_json
    from eunomia_testbed.commands.rho_table import rho_lines
    from eunomia_testbed.commands.table import answer_lines, json_rows, notes_of, table_lines
    from eunomia_testbed.evidence.evidence import evidence_in
    from eunomia_testbed.results.assumptions import assumption_sentences
    from eunomia_testbed.results.run_data import read_table

    metrics, timings = outcome.metrics, read_table(outcome.folder, "timings")
    evidence = evidence_in(outcome.folder, outcome.facts, metrics)
    if flags.as_json:
        rows = json_rows(metrics, timings)
        failed = [{"policy": each.policy, "seed": each.seed, "error": each.error} for each in outcome.facts.failures]
        plain = {"schema": "eunomia/simulate@1", "out": str(outcome.folder), "ended": outcome.ended}
        said = {
            "report": None if outcome.report is None else str(outcome.report),
            "dropped": sum(outcome.dropped.values()),
            "assumed": assumption_sentences(outcome.facts.assumptions),
        }
        answers = answers_json(evidence, outcome.facts)
        typer.echo(json.dumps(plain | said | {"rows": rows, "failed": failed} | answers, ensure_ascii=False))
    elif flags.quiet:
        typer.echo(outcome.folder)
    else:
        answers_told = answer_lines(evidence, outcome.facts)
        assumed = assumption_sentences(outcome.facts.assumptions)
        lines = [*assumed, *table_lines(metrics, timings, outcome.facts, evidence), ""]
        lines += [*answers_told, ""] if answers_told else []
        policies = list(dict.fromkeys(metrics["policy"].to_list())) if metrics.width else []
        kinds = rho_lines(outcome.facts, evidence, policies)
        lines += [*kinds, "", *notes_of(metrics, outcome.facts)] if kinds else notes_of(metrics, outcome.facts)
        lines = lines if outcome.done or outcome.failed else []
        lines += _dropped(outcome.dropped)
        left = f"{len(outcome.failed)} of {outcome.cells} simulations; {_goes_on(outcome.folder)}"
        lines += [f"Failed   {left}"] if outcome.failed else []
        lines += [f"Results  {outcome.folder}"] + ([f"Report   {outcome.report}"] if outcome.report else [])
        typer.echo("\n".join(lines))
    if outcome.ended == "interrupted":
        _say([_interrupted(outcome.done, outcome.cells, outcome.folder)])
        return INTERRUPTED
    if outcome.failed:
        raise RunErrors(list({str(error): error for error in outcome.failed}.values()))
    if not flags.strict:
        return OK
    whole = not outcome.dropped and bool((metrics["apps_finished"] == metrics["apps"]).all())
    return OK if whole and metrics["faults"].sum() == 0 else ANSWER_IS_NO


def _dropped(rules: Mapping[str, int]) -> list[str]:
    """Return a line with the number of dropped jobs and apps and the most frequent reason; empty: none were dropped."""
    if not rules:
        return []
    rule, count = next(iter(rules.items()))
    others = f"; {len(rules) - 1} other reasons" if len(rules) > 1 else ""
    whole = sum(rules.values())
    used = "1 row or job is" if whole == 1 else f"{whole} rows or jobs are"
    return [f"{used} left out under every policy: {rule} ({count} of {whole}){others}; see dropped.csv"]


def _interrupted(done: int, cells: int, folder: Path) -> str:
    return f"interrupted: {done} of {cells} simulations are done; {_goes_on(folder)}"


def _goes_on(folder: Path) -> str:
    return f"the same command with --out {shlex.quote(str(folder))} --resume goes on"


def _say(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
