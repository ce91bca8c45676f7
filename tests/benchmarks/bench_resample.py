"""CPU of ``simulate --resample`` by cause: ``python tests/benchmarks/bench_resample.py [RESAMPLES] [BUDGET]``.

A generated trace of 300 jobs under FIFO, SRTF, LAS, max-min, OEF and AFS-P. The share is that of everything but the
simulations: start of the workers, reading, tables and page. Beside it, one run of the trace under Themis, Tiresias and
Gandiva, and what a budget does with all nine. CPU seconds are those of the system, all processes together.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

JOBS: Final = 300
CLUSTER: Final = "4x8 V100"
FAST: Final = ("fifo", "srtf", "las", "max_min", "oef_noncooperative", "afs_p")
SLOW: Final = ("themis", "tiresias", "gandiva")


def trace(jobs: int = JOBS, seed: int = 27) -> str:
    """The trace in Eunomia's own format: lognormal lengths, gangs of 1 up to 1, 2, 4 or 8 GPUs, ten users."""
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(180.0, jobs))
    seconds = draw.lognormal(np.log(1800.0), 1.2, jobs)
    most = draw.choice((1, 2, 4, 8), jobs, p=(0.55, 0.2, 0.15, 0.1))
    rows = [
        f"job{at:03d},u{at % 10},{arrivals[at] - arrivals[0]:.0f},1,{most[at]},{max(1.0, seconds[at]):.0f},1"
        for at in range(jobs)
    ]
    head = "job,user,arrival_seconds,least_gpus,most_gpus,iterations,seconds_per_iteration"
    return "\n".join([head, *rows, ""])


def command(policies: tuple[str, ...], *more: str) -> list[str]:
    named = [text for policy in policies for text in ("--policy", policy)]
    usual = ["--cluster", CLUSTER, "--cost", "start=30s", "--cost", "pause=30s", "--no-progress"]
    return ["simulate", "jobs.csv", *usual, *named, *more]


def seconds_of_children(words: list[str]) -> tuple[float, str]:
    """Run ``eunomia`` in a process of its own; return its CPU seconds with those of its workers, and its output."""
    before = os.times()
    found = subprocess.run([sys.executable, "-m", "eunomia", *words], capture_output=True, text=True, check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, found.stdout


@contextlib.contextmanager
def counted(by_cause: dict[str, float], cause: str) -> Iterator[None]:
    began = time.process_time()
    yield
    by_cause[cause] = by_cause.get(cause, 0.0) + time.process_time() - began


def by_cause(resamples: int) -> dict[str, float]:
    """Run the command's parts in this process and its workers; return CPU seconds by cause."""
    found: dict[str, float] = {}
    with counted(found, "reading: imports, trace, plan"):
        from eunomia_testbed.commands.table import answer_lines, table_lines
        from eunomia_testbed.evidence.evidence import evidence_in
        from eunomia_testbed.report import write_report
        from eunomia_testbed.results.run_data import read_table
        from eunomia_testbed.running.many import run_plan
        from eunomia_testbed.spec.planning import plan_of
        from eunomia_testbed.spec.simulation import SimulateFlags

        plan, _ = plan_of(
            SimulateFlags(
                trace="jobs.csv", cluster=CLUSTER, policies=FAST, cost=("start=30s", "pause=30s"), resample=resamples
            )
        )
    before = os.times()
    with counted(found, "main process: handing out, summary, rows"):
        outcome = run_plan(plan, Path("parts"), processes=2, report=False)
    after = os.times()
    with counted(found, "page"):
        write_report(outcome.folder)
    with counted(found, "table and answers on the screen"):
        evidence = evidence_in(outcome.folder, outcome.facts, outcome.metrics)
        timings = read_table(outcome.folder, "timings")
        table_lines(outcome.metrics, timings, outcome.facts, evidence)
        answer_lines(evidence, outcome.facts)
    workers = after.children_user + after.children_system - before.children_user - before.children_system
    found["start of the workers"] = workers - outcome.cpu_seconds
    tables = seconds_of_tables(plan, min(10, resamples)) * (1 + resamples)
    found["tables and rows of the runs"] = tables
    found["simulation"] = outcome.cpu_seconds - tables
    return found


def seconds_of_tables(plan: object, resamples: int) -> float:
    """CPU seconds of a resample under every policy, apart from the simulations themselves."""
    from eunomia_testbed.running import cell_files
    from eunomia_testbed.running.plan import Plan

    assert isinstance(plan, Plan)
    spent, real = 0.0, cell_files.simulate_one

    def timed(*given: object, **named: object) -> object:
        nonlocal spent
        began = time.process_time()
        try:
            return real(*given, **named)  # type: ignore[arg-type]
        finally:
            spent += time.process_time() - began

    cell_files.simulate_one = timed  # type: ignore[assignment]
    try:
        began = time.process_time()
        for cell in plan.cells():
            if cell.resampled and cell.seed <= resamples:
                cell_files.run_cell(plan, cell, Path("rows"))
        return (time.process_time() - began - spent) / resamples
    finally:
        cell_files.simulate_one = real


def main(resamples: int, budget: str) -> None:
    """Print the CPU seconds by cause, of slow policies, and what a budget leaves."""
    Path("jobs.csv").write_text(trace(), encoding="utf-8")
    found = by_cause(resamples)
    whole = sum(found.values())
    print(f"{JOBS} jobs, {len(FAST)} policies, {resamples} resamples; two workers; CPU seconds")
    for cause, spent in sorted(found.items(), key=lambda item: -item[1]):
        print(f"  {cause:<42}{spent:>9.2f}{spent / whole:>9.1%}")
    print(f"  {'all':<42}{whole:>9.2f}; without the simulations {1.0 - found['simulation'] / whole:.1%}")
    spent, _ = seconds_of_children(command(FAST, "--resample", str(resamples), "-j", "2", "--out", "whole"))
    print(f"  the command as a whole, by the system's count {spent:.2f}")
    for policy in (*FAST, *SLOW):
        spent, shown = seconds_of_children(command((policy,), "--out", f"one-{policy}", "--no-report", "--json"))
        deciding = json.loads(shown)["rows"][0]["deciding_seconds"]
        print(f"  one run of the trace under {policy:<19} {spent:6.2f} s, of which deciding {deciding:.2f} s")
    more = ("--resample", str(resamples), "--budget", budget, "--out", "budget")
    spent, shown = seconds_of_children(command((*FAST, *SLOW), *more))
    said = re.findall(r"^(?:\d+ resamples of|One run:).*$", shown, re.MULTILINE)
    print(f"--budget {budget}, all nine policies: {spent:.1f} s. {' '.join(said)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else "10m")
