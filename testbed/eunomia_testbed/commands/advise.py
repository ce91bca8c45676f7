"""``eunomia advise``: recommends a policy for a trace on a cluster, by goal, with the assumptions of the answer."""

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from eunomia.errors import EunomiaError, InputError, RunErrors
from eunomia.own_stdout import own_stdout
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_testbed.advise.flags import AdviseFlags
from eunomia_testbed.commands.collecting import uncollected

if TYPE_CHECKING:
    from eunomia_testbed.advise.study import Study
    from eunomia_testbed.advise.wording import Advice
    from eunomia_testbed.running.plan import Plan
    from eunomia_testbed.spec.fitting import LeftOut

OK: Final = 0
INTERRUPTED: Final = 130
CANDIDATES: Final = (
    *("fifo", "srtf", "las", "tiresias", "themis", "max_min_fairness", "oef", "gandiva_fair", "allox"),
    *("synergy", "shockwave", "afs", "afs_p"),
)
"""The policies to compare unless ``--policy`` is given: the main policy of each paper, and common queue orders."""


@with_flags(AdviseFlags)
def advise(flags: AdviseFlags) -> int:
    """Recommend a policy for a trace on a cluster, by goal, and state the assumptions."""
    flags.check()
    with uncollected(), own_stdout():
        plan, left = _plan(flags)
    folder = _folder(flags)
    try:
        with own_stdout():
            study = _study(flags, plan, left, folder)
    except KeyboardInterrupt:
        _say([f"interrupted: what was simulated is in {folder}"])
        return INTERRUPTED
    return _tell(flags, study, folder)


def _plan(flags: AdviseFlags) -> tuple["Plan", list["LeftOut"]]:
    """Return the plan of the trace with the policies that fit, and the left-out policies with reasons."""
    from eunomia_testbed.spec.fitting import fitting_presets
    from eunomia_testbed.spec.planning import plan_of

    names = tuple(str(each) for each in flags.policies or CANDIDATES)
    asked = flags.model_copy(update={"budget": None})  # the budget is for all of the advice
    first, _ = plan_of(asked.model_copy(update={"policies": ("fifo",), "skip_unfit": False}))
    kept, left = fitting_presets(names, first.cluster, list(first.workloads.values()))
    if not kept:
        reasons = "; ".join(each.text for each in left)
        raise InputError("a policy must suit the trace and the cluster", value=f"none: {reasons}", place="--policy")
    plan, heading = plan_of(asked.model_copy(update={"policies": tuple(kept)}))
    if flags.progress and not flags.quiet:
        _say([*heading, f"  compared: {', '.join(kept)}", *(f"  left out: {each.text}" for each in left)])
    return plan, left


def _folder(flags: AdviseFlags) -> Path:
    from eunomia_testbed.results.folder import ResultFolder, new_folder_name

    path = flags.out or Path("eunomia-out") / new_folder_name("advise", datetime.now(UTC))
    if (path / "advice.json").is_file() and flags.overwrite:
        import shutil

        shutil.rmtree(path)
    return ResultFolder.create(path, overwrite=False).path


def _study(flags: AdviseFlags, plan: "Plan", left: list["LeftOut"], folder: Path) -> "Study":
    from eunomia_testbed.advise.study import Means, study
    from eunomia_testbed.running.display import display

    shown = flags.progress and not flags.quiet
    means = Means(
        folder=folder,
        budget_seconds=flags.budget_seconds(),
        processes=flags.processes,
        watch=display if shown else lambda plan: None,
    )
    return study(plan, left, means, seed=flags.seed)


def _tell(flags: AdviseFlags, study: "Study", folder: Path) -> int:
    from eunomia_testbed.advise.page import page
    from eunomia_testbed.advise.wording import screen, worded
    from eunomia_testbed.commands.answers_json import answers_json
    from eunomia_testbed.commands.table import table_lines
    from eunomia_testbed.results.run_data import read_table
    from eunomia_testbed.results.writing import write_text

    advice = worded(study, flags.goal, flags.command())
    outcome = study.outcome
    timings = read_table(outcome.folder, "timings")
    compared = {name: text for name, text in outcome.facts.profiles.items() if name in study.plan.profiles}
    run = dataclasses.replace(outcome.facts, profiles=compared, failures=())  # only the compared policies
    table = table_lines(outcome.metrics, timings, run, study.evidence)
    title = f"{Path(str(flags.trace) if flags.trace else '-').name} on {study.plan.cluster.gpus} GPUs"
    facts = _facts(advice, study) | answers_json(study.evidence, run) | {"out": str(folder)}
    write_text(page(advice, table, title), folder / "advice.html")
    write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", folder / "advice.json")
    if flags.as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    elif flags.quiet:
        typer.echo(folder)
    else:
        typer.echo("\n".join([*screen(advice), "", *table, "", f"Advice   {folder / 'advice.html'}"]))
    if study.failed:
        raise RunErrors([EunomiaError(text) for text in study.failed])
    return OK


def _facts(advice: "Advice", study: "Study") -> dict[str, object]:
    return {
        "schema": "eunomia/advise@1",
        "compared": list(study.plan.profiles),
        "left_out": [
            {"policy": each.policy, "reason": each.reason, "nearest": each.nearest} for each in study.left_out
        ],
        "assumed": list(advice.assumed),
        "lines": [{"goal": line.label, "answer": line.text, "supported": line.supported} for line in advice.answers],
        "method": advice.method,
        "conditions": list(advice.conditions),
        "turns": list(advice.turns),
        "limits": list(advice.limits),
        "cpu_seconds": study.spent_seconds,
        "command": advice.command,
    }


def _say(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
