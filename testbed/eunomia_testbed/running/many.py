"""Runs a whole plan: creates the folder, runs its cells, merges tables, and writes the summary and the report."""

import contextlib
import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import builds
from eunomia_appmaster.csv_cells import csv_rows, csv_text
from eunomia_testbed.evidence.draws import Draws, draws_of_seeds
from eunomia_testbed.results.added import Added, write_added
from eunomia_testbed.results.facts import FailedRun, RunFacts, versions_of
from eunomia_testbed.results.folder import ResultFolder, is_there
from eunomia_testbed.results.plugin_metrics import added_by
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.summary import Summary, summaries_of
from eunomia_testbed.results.writing import write_text
from eunomia_testbed.running.cell_files import (
    CELLS,
    LARGE,
    assemble,
    draws_nothing,
    dropped_of,
    gather_resamples,
    is_done,
)
from eunomia_testbed.running.dispatch import InOrder, Limits, Rationed
from eunomia_testbed.running.manifest import check_manifest, manifest_of, write_manifest
from eunomia_testbed.running.memory import hand_back
from eunomia_testbed.running.plan import Cell, FailedCell, Plan, labels_by_load
from eunomia_testbed.running.pool import processes_for, run_cells, without_late
from eunomia_testbed.running.resamples import ResampleFile
from eunomia_testbed.running.watching import Silent, Watch
from eunomia_testbed.simulator.machine_changes import slot_changes

if TYPE_CHECKING:
    import polars as pl

_PACKAGES: Final = ("eunomia", "numpy", "polars", "highspy")


@builds
class Outcome:
    """The outcome of a plan's run.

    Attributes:
        facts: content of ``run.json``.
        metrics: one row for each policy and seed, as in ``summary.csv``.
        ended: ``finished``, or ``interrupted`` by Ctrl-C (finished cells are kept).
        dropped: number of dropped trace rows and of jobs that could not run, by violated rule.
        cpu_seconds: CPU time of the simulations and their tables, in all processes.
        suffice: whether the finished resamples suffice according to ``enough``.
    """

    folder: Path
    facts: RunFacts
    metrics: "pl.DataFrame"
    ended: Literal["finished", "interrupted"]
    done: int
    cells: int
    dropped: Mapping[str, int]
    report: Path | None
    cpu_seconds: float
    suffice: bool = False
    failed: tuple[EunomiaError, ...] = ()
    """Errors of failed simulations, such as a plugin's exception; the other simulations have finished."""


def run_plan(
    plan: Plan,
    out: Path,
    *,
    processes: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    report: bool = True,
    watch: Watch | None = None,
    enough: Callable[["pl.DataFrame"], bool] | None = None,
) -> Outcome:
    """Run every unfinished cell, and write the result folder.

    Args:
        plan: the plan to run.
        out: the folder, which must not exist unless ``overwrite`` or ``resume`` is set.
        processes: number of processes; None: as many as save time.
        overwrite: whether an earlier run's folder is replaced.
        resume: whether an interrupted run's folder is continued.
        report: whether ``report.html`` is written.
        watch: receives the progress.
        enough: returns whether the rows of the resamples finished by all policies suffice; called first with the
            fewest that give an interval, then after each growth by half. None: all are simulated.

    Raises:
        InputError: the plan or the folder is invalid; nothing was changed.
        EunomiaError: a worker died, or the disk is full; finished cells are kept.
    """
    plan.check()
    manifest = manifest_of(plan)
    added = added_by(profile.registry for profile in plan.profiles.values())
    folder = _open(out, plan, manifest, overwrite=overwrite, resume=resume)
    whole = resume and _is_whole(folder.path)
    facts = _facts(plan)
    fixed_before = _fixed_before(folder.path) if resume else ()
    _begin(folder, facts, manifest, added)
    ran = _run_left(plan, folder, facts, _How(whole=whole, processes=processes, watch=watch or Silent(), enough=enough))
    facts = dataclasses.replace(facts, ended_at=_utc(), ended=ran.how, failures=_failures(ran.failed))
    facts = dataclasses.replace(facts, draws=_draws(plan, folder.path, ran, ran.fixed or fixed_before))
    folder.write_facts(facts)
    if plan.jobs >= LARGE:
        hand_back()
    tables = RunData.load(folder.path)
    counted = summaries_of(tables)
    metrics = folder.write_summary(tables, counted)
    return Outcome(
        folder=folder.path,
        facts=facts,
        metrics=metrics,
        ended=ran.ended,
        done=ran.done,
        cells=ran.cells,
        dropped=_dropped(folder.path),
        report=_report(tables, counted, folder.path) if report and (ran.done or ran.failed) else None,
        failed=tuple(each.error for each in ran.failed),
        cpu_seconds=ran.spent_seconds,
        suffice=ran.rationed is not None and ran.rationed.suffice,
    )


@builds
class _How:
    """Options for running a plan's cells; ``whole``: an earlier run has merged all runs of the trace."""

    whole: bool
    processes: int | None
    watch: Watch
    enough: Callable[["pl.DataFrame"], bool] | None


@builds
class _Ran:
    """The state of a plan's cells: the number of finished cells, including earlier runs, and the failed cells."""

    ended: Literal["finished", "interrupted"]
    done: int
    failed: list[FailedCell]
    cells: int
    """Number of cells that the plan needs, including finished ones."""
    fixed: tuple[str, ...]
    """Labels of policies whose runs draw no random numbers, so that only one seed was simulated."""
    spent_seconds: float
    """CPU time of the cells that this run simulated."""
    rationed: Rationed | None
    """The source that selected resamples within the limits; None: there were no limits, and all were run."""

    @property
    def how(self) -> str:
        """Return the outcome's name in ``run.json``."""
        return "failed" if self.failed else self.ended


def _run_left(plan: Plan, folder: ResultFolder, facts: RunFacts, how: _How) -> _Ran:
    """Run the unfinished cells and merge all finished cells; on Ctrl-C the finished cells are kept.

    If a policy's run of the first seed draws no random numbers, its other seeds of the same workload are skipped.
    """
    drawn = ResampleFile(folder.path).done

    def is_merged(cell: Cell) -> bool:
        """Return whether an earlier run has merged the cell."""
        return (cell.label, cell.seed) in drawn if cell.resampled else how.whole

    cells = [cell for cell in plan.cells() if not is_merged(cell)]
    merged = len(plan.cells()) - len(cells)
    ended: Literal["finished", "interrupted"] = "finished"
    failed: list[FailedCell] = []
    sources: list[InOrder | Rationed] = []

    def run(some: list[Cell]) -> None:
        left, late = without_late(failed, (cell for cell in some if not is_done(folder.path, cell)))
        failed.extend(late)
        if left:
            sources.append(_source(plan, left, folder.path, how.enough))
            processes = processes_for(plan, left, how.processes)
            failed.extend(run_cells(plan, sources[-1], folder.path, processes=processes, watch=how.watch))

    try:
        run([cell for cell in cells if not plan.repeats(cell)])
        run([cell for cell in _needed(plan, folder.path, cells) if plan.repeats(cell)])
    except KeyboardInterrupt:
        ended = "interrupted"
        # Within polars one Ctrl-C raises twice, in polars and then in Python: the second exception is caught here.
        try:  # noqa: SIM105 - suppress is called before it suppresses
            time.sleep(0.0)
        except KeyboardInterrupt:
            pass
    except Exception:
        folder.write_facts(dataclasses.replace(facts, ended_at=_utc(), ended="failed"))
        raise
    finally:
        rationed = next((each for each in sources if isinstance(each, Rationed)), None)
        needed = _needed(plan, folder.path, cells)
        if rationed is not None and ended == "finished":
            needed = [cell for cell in needed if not cell.resampled or is_done(folder.path, cell)]
        done = [cell for cell in needed if is_done(folder.path, cell)]
        fixed = tuple(dict.fromkeys(cell.label for cell in cells if cell not in set(needed)))
        _finish(folder, plan, done, complete=len(done) == len(needed))
    return _Ran(
        ended=ended,
        done=merged + len(done),
        failed=failed,
        cells=merged + len(needed),
        fixed=fixed,
        spent_seconds=math.fsum(each.spent_seconds for each in sources),
        rationed=rationed,
    )


def _source(
    plan: Plan, cells: Sequence[Cell], folder: Path, enough: Callable[["pl.DataFrame"], bool] | None
) -> InOrder | Rationed:
    """Return a source of cells, which ends early if the budget is spent or ``enough`` resamples have finished."""
    if plan.resampling is None or (plan.budget_seconds is None and enough is None):
        return InOrder(cells)
    file = ResampleFile(folder)
    resampled = [cell for cell in plan.cells() if cell.resampled]
    before = {(cell.policy, cell.seed) for cell in resampled if (cell.label, cell.seed) in file.done}
    before |= {(cell.policy, cell.seed) for cell in resampled if is_done(folder, cell)}

    def suffice(count: int) -> bool:
        left = [cell for cell in resampled if cell.seed <= count and is_done(folder, cell)]
        gather_resamples(folder, left, list(plan.profiles))
        return enough is not None and enough(file.rows(count))

    budget = math.inf if plan.budget_seconds is None else plan.budget_seconds
    limits = Limits(budget_seconds=budget, enough=None if enough is None else suffice)
    return Rationed(cells, plan.resampling.count, before, limits)


def _needed(plan: Plan, folder: Path, cells: list[Cell]) -> list[Cell]:
    """Return the cells, except those that would repeat a finished run without random numbers."""
    first = plan.seeds[0]

    def is_needed(cell: Cell) -> bool:
        if not plan.repeats(cell):
            return True
        before = dataclasses.replace(cell, seed=first)
        return not (is_done(folder, before) and draws_nothing(folder, before))

    return [cell for cell in cells if is_needed(cell)]


def _open(out: Path, plan: Plan, manifest: dict[str, str], *, overwrite: bool, resume: bool) -> ResultFolder:
    if overwrite and resume:
        raise InputError("--resume and --overwrite must not be given together", value="both")
    if resume and is_there(out):
        check_manifest(out, manifest)
        return ResultFolder(path=out, csv=plan.csv)
    return ResultFolder.create(out, overwrite=overwrite, csv=plan.csv)


def _begin(folder: ResultFolder, facts: RunFacts, manifest: dict[str, str], added: Added) -> None:
    """Write the files that readers and ``--resume`` need before the tables exist."""
    folder.write_facts(facts)
    write_manifest(folder.path, manifest)
    write_added(added, folder.path)


def _is_whole(path: Path) -> bool:
    """Return whether every cell of the folder has been merged; failed cells have to run again."""
    if not (path / "summary.csv").is_file() or (path / CELLS).exists():
        return False
    facts = path / "run.json"
    return not facts.is_file() or not RunFacts.from_json(facts.read_text(encoding="utf-8")).failures


def _failures(failed: Sequence[FailedCell]) -> tuple[FailedRun, ...]:
    """Return the failed runs, with at most one resample per policy, and none if its run of the trace failed."""
    named = {each.cell.label for each in failed if not each.cell.resampled}
    made = []
    for each in failed:
        cell = each.cell
        if cell.resampled and cell.label in named:
            continue
        named.add(cell.label)
        error, resampled = str(each.error), cell.resampled
        made.append(FailedRun(policy=cell.label, seed=cell.seed, error=error, resampled=resampled))
    return tuple(made)


def _finish(folder: ResultFolder, plan: Plan, done: list[Cell], *, complete: bool) -> None:
    """Merge the finished cells into the tables; the cells' own files are kept while other cells are missing.

    Args:
        folder: folder of the results.
        plan: the plan.
        done: finished cells whose files must still be merged.
        complete: whether no cell is missing.
    """
    resampled = [cell for cell in done if cell.resampled]
    gather_resamples(folder.path, resampled, list(plan.profiles))
    tables = [cell for cell in done if not cell.resampled]
    if not tables:
        return
    write_text(_dropped_csv(folder.path, plan, tables), folder.path / "dropped.csv")
    assemble(folder.path, tables, csv=plan.csv, keep=not complete)


def _draws(plan: Plan, folder: Path, ran: _Ran, fixed: tuple[str, ...]) -> Draws:
    """Return the kind and number of independent draws in the finished runs.

    Args:
        plan: the plan.
        folder: folder of the results.
        ran: the state of the cells.
        fixed: labels of policies whose runs draw no random numbers.
    """
    if plan.resampling is not None:
        rationed = ran.rationed
        done = ResampleFile(folder).complete(() if rationed is None else rationed.without)
        found = plan.resampling.draws(done) if done >= plan.resampling.fewest else draws_of_seeds(1)
        if rationed is None or not rationed.cut or ran.ended == "interrupted":
            return found
        return dataclasses.replace(
            found,
            asked=plan.resampling.count,
            budget_seconds=plan.budget_seconds,
            without=tuple(rationed.without) if found.shows_chance else (),
            needed_seconds=rationed.needed_seconds if rationed.without else None,
        )
    labels = {cell.label for cell in plan.cells()}
    found = draws_of_seeds(1) if labels <= set(fixed) else plan.draws
    return dataclasses.replace(found, fixed=tuple(fixed))


def _fixed_before(folder: Path) -> tuple[str, ...]:
    """Return the labels of policies whose earlier runs in the folder drew no random numbers."""
    path = folder / "run.json"
    return RunFacts.from_json(path.read_text(encoding="utf-8")).draws.fixed if path.is_file() else ()


def _dropped_csv(path: Path, plan: Plan, done: list[Cell]) -> str:
    workloads = {id(workload): workload for workload in plan.workloads.values()}
    rows = [(each.file, each.line, each.rule, each.value) for w in workloads.values() for each in w.dropped]
    unfit = [(each["file"], "", each["rule"], each["value"]) for cell in done for each in dropped_of(path, cell)]
    return csv_text([("file", "line", "rule", "value"), *rows, *dict.fromkeys(unfit)])


def _dropped(path: Path) -> Mapping[str, int]:
    """Return the number of dropped rows and jobs by violated rule, the most frequent first."""
    file = path / "dropped.csv"
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as stream:
        return dict(Counter(row["rule"] for row in csv_rows(stream)).most_common())


def _facts(plan: Plan) -> RunFacts:
    texts = {label: plan.profiles[label].resolved() for label in plan.profiles}
    cells = plan.cells()
    notes = [note for workload in plan.workloads.values() for note in workload.notes]
    notes += plan.notes
    return RunFacts(
        kind="simulate",
        command=plan.command,
        seeds=plan.seeds,
        draws=plan.draws,
        profiles={cell.label: texts[cell.policy] for cell in cells},
        cluster=plan.cluster_text,
        machine=f"{plan.cluster.gpus} GPUs on {len(plan.cluster.machines)} machines, simulated",
        slots=plan.cluster.gpus,
        slot_changes=slot_changes(plan.cluster, plan.options.machines),
        clock="virtual",
        rho=plan.rho,
        unfair_above=plan.unfair_above,
        loads=labels_by_load(cells),
        costs_given=_costs_given(plan),
        resizes_free=_resizes_free(plan),
        assumptions=plan.assumptions,
        spec=dict(plan.spec),
        notes=tuple(dict.fromkeys(notes)),
        inputs=plan.inputs,
        versions=versions_of(*_PACKAGES),
        started_at=_utc(),
    )


def _costs_given(plan: Plan) -> bool | None:
    """Return whether any change of a job takes time; None: a peer's rules set the times."""
    if plan.peer is not None:
        return None
    costs = plan.options.costs
    return any(getattr(costs, each.name) > 0.0 for each in dataclasses.fields(costs) if each.name != "checkpoint_every")


def _resizes_free(plan: Plan) -> bool:
    """Return whether some changes take time, but growing and shrinking a gang do not."""
    costs = plan.options.costs
    free = costs.join == 0.0 and costs.pause == 0.0 and plan.options.resizes != "restart"
    return bool(_costs_given(plan)) and free


def _report(tables: RunData, counted: Mapping[tuple[str, int], Summary], path: Path) -> Path:
    from eunomia_testbed.report import write_report

    with _no_interrupts():
        return write_report(path, tables, counted)


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C within the block, if this is the main thread."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def deciding_seconds(timings: "pl.DataFrame", policy: str, seed: int) -> float | None:
    """Return the CPU seconds of the arbiter's ``step`` in one cell; None: not measured."""
    mine = timings.filter((timings["policy"] == policy) & (timings["seed"] == seed) & (timings["stage"] == "step"))
    return float(mine["cpu_seconds"].sum()) if mine.height else None
