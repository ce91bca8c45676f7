"""Writes the results of a replay: tables of the real and the simulated runs in one folder, and the report page."""

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eunomia_appmaster.csv_cells import csv_text
from eunomia_testbed.evidence.draws import draws_of_seeds
from eunomia_testbed.evidence.evidence import evidence_in
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.tables import RhoSample, Tables
from eunomia_testbed.replay.cells import Replay
from eunomia_testbed.replay.plan import ReplayPlan
from eunomia_testbed.replay.preparing import PreparedReplay
from eunomia_testbed.replay.sides import HEADINGS, Side, SideFigure
from eunomia_testbed.replay.twin import simulate_plan, times_alone, with_draws
from eunomia_testbed.results import ResultFolder, RunFacts
from eunomia_testbed.results.added import write_added
from eunomia_testbed.results.facts import versions_of
from eunomia_testbed.results.run_data import RunData
from eunomia_testbed.results.tables import TABLES
from eunomia_testbed.results.writing import write_text
from eunomia_testbed.running.summing import over_seeds

if TYPE_CHECKING:
    import polars as pl

PACKAGES: Final = ("eunomia", "torch", "numpy", "grpcio", "polars", "scikit-learn")
REAL: Final = "real"
"""Subfolder with the tables of the real runs alone."""
SIMULATED: Final = "simulated"
"""Subfolder with the tables of the simulation alone."""
TABLE: Final = "real-and-simulated.csv"
FIGURES: Final = ("makespan_seconds", "jct_mean_seconds", "rho_unfair_share", "rho_mean", "rho_worst")
"""The metrics by which real and simulated runs are compared."""


def simulated_label(policy: str) -> str:
    """Return the name of a policy's simulation in tables with real and simulated runs."""
    return f"{policy}, simulated"


def write_real(
    out: Path, ready: PreparedReplay, record: LiveRecord, samples: Sequence[RhoSample], *, policy: str, seed: int
) -> None:
    """Append one real run to the tables of the real runs.

    As in the simulation, rho uses the run times alone that were measured before the replay.
    """
    alone = times_alone(ready.plan, ready.measured.profiles, ready.costs)
    Tables(record, samples, alone=alone).write(ResultFolder(path=out / REAL), policy=policy, seed=seed)


def begin_real(out: Path, ready: PreparedReplay, made: Replay) -> None:
    """Write ``run.json`` to the replay's folder and to that of its real runs, where it is missing."""
    facts = facts_of(ready, made)
    for folder in (out, out / REAL):
        if not (folder / "run.json").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            ResultFolder(path=folder).write_facts(facts)


def facts_of(ready: PreparedReplay, made: Replay) -> RunFacts:
    """Return the facts of a replay's real runs, as in ``run.json``."""
    plan = ready.plan
    return RunFacts(
        kind="replay",
        command=("eunomia", *sys.argv[1:]) if len(sys.argv) > 1 else ("eunomia", "replay"),
        seeds=plan.seeds,
        draws=draws_of_seeds(len(plan.seeds)),
        profiles={name: profile.resolved() for name, profile in plan.profiles.items()},
        cluster=plan.cluster_text,
        machine=ready.draft.slots.describe(),
        slots=plan.cluster.gpus,
        rho=plan.rho,
        unfair_above=plan.unfair_above,
        spec=dict(made.flags),
        notes=ready.notes,
        inputs=ready.inputs,
        versions=versions_of(*PACKAGES),
        started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )


def write_dropped(out: Path, plan: ReplayPlan) -> None:
    """Write the rows and jobs of the trace that the replay leaves out, with the rules that they break."""
    rows = [(each.file, each.line, each.rule, each.value) for each in plan.workload.dropped]
    write_text(csv_text([("file", "line", "rule", "value"), *rows]), out / "dropped.csv")


def write_simulated(out: Path, ready: PreparedReplay) -> None:
    """Simulate the plan, and replace the folder of an earlier simulation with the tables."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".simulating-") as folder:
        plan = with_draws(ready.plan, ready.measured.profiles)
        simulate_plan(plan, ready.measured.profiles, ready.costs, Path(folder) / SIMULATED)
        shutil.rmtree(out / SIMULATED, ignore_errors=True)
        (Path(folder) / SIMULATED).rename(out / SIMULATED)


def write_both(out: Path, facts: RunFacts, plan: ReplayPlan) -> tuple[tuple[Side, ...], Path | None]:
    """Write all tables into one folder, the comparison of real and simulated figures, and the page.

    Args:
        out: folder of the replay, with the tables of the real and the simulated runs in subfolders.
        facts: facts of the real runs.
        plan: the plan.

    Returns:
        The comparison by policy, and the path of the page; None: no app of a real run has arrived.
    """
    from eunomia_testbed.report import write_report

    real, simulated = RunData.load(out / REAL), RunData.load(out / SIMULATED)
    if not real.apps.height:
        return (), None
    whole = ResultFolder(path=out)
    write_added(real.added, out)
    for name in TABLES:
        for frame in (real.table(name), _labelled(simulated.table(name))):
            if frame.height:
                whole.write_frame(name, frame.select(_columns(name, real)))
    for data, label in ((real, None), (simulated, simulated_label)):
        _write_records(whole, data, label)
    profiles = {name: profile.resolved() for name, profile in plan.profiles.items()}
    both = profiles | {simulated_label(name): text for name, text in profiles.items()}
    whole.write_facts(dataclasses.replace(facts, profiles=both))
    whole.write_summary()
    sides = compare_sides(out, plan)
    write_text(csv_text([HEADINGS, *(row for side in sides for row in side.rows())]), out / TABLE)
    return sides, write_report(out)


def compare_sides(out: Path, plan: ReplayPlan) -> tuple[Side, ...]:
    """Return the real and the simulated figures of each policy that has run."""
    real, simulated = (_figures(out / folder) for folder in (REAL, SIMULATED))
    return tuple(
        Side(
            policy=policy,
            repeats=int(real[policy]["seeds"] or 0),
            figures=tuple(
                SideFigure(
                    metric=name,
                    real=real[policy][name],
                    low=real[policy][f"{name}_low"],
                    high=real[policy][f"{name}_high"],
                    simulated=simulated[policy][name],
                    simulated_low=simulated[policy][f"{name}_low"],
                    simulated_high=simulated[policy][f"{name}_high"],
                )
                for name in FIGURES
            ),
        )
        for policy in plan.profiles
        if policy in real and policy in simulated
    )


def _figures(folder: Path) -> Mapping[str, Mapping[str, float | None]]:
    """Return the figures of each policy in a result folder, with their intervals over repeats."""
    data = RunData.load(folder)
    metrics = ResultFolder(path=folder).write_summary(data)
    if not metrics.width:
        return {}
    seeds = metrics["seed"].n_unique()
    facts = data.facts if data.facts is None else dataclasses.replace(data.facts, draws=draws_of_seeds(seeds))
    frame = over_seeds(metrics, evidence_in(folder, facts, metrics))
    return {str(row["policy"]): row for row in frame.iter_rows(named=True)}


def _labelled(frame: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    return frame.with_columns(pl.col("policy").map_elements(simulated_label, return_dtype=pl.String()))


def _columns(table: str, real: RunData) -> list[str]:
    from eunomia_testbed.results.tables import schema_of

    return list(schema_of(table, tuple(real.added.get(table, ()))))


def _write_records(whole: ResultFolder, data: RunData, label: object) -> None:
    """Write the records of plugins of the real or the simulated runs."""
    for plugin, frame in data.records.items():
        for (policy, seed), rows in frame.group_by(["policy", "seed"], maintain_order=True):
            name = simulated_label(str(policy)) if label is not None else str(policy)
            plain: Iterable[Mapping[str, object]] = rows.drop("policy", "seed").iter_rows(named=True)
            whole.write_record(plugin, plain, policy=name, seed=int(seed))
