"""Waits of a live run: a job that holds slots does not wait."""

import json
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_demo_record import run_folder, script, watched

from eunomia.contract.events import JobResumed
from eunomia.journal.journal import Step
from eunomia.testing.drive import Delays, Drive
from eunomia_appmaster.explaining.spells import Spell, Spells
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.tables import Tables
from eunomia_testbed.live_runs.waits import outside, waits_of
from eunomia_testbed.results import ResultFolder, RunData

PERIODS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), max_size=8)


@given(PERIODS, st.integers(0, 40), st.none() | st.integers(0, 40))
def test_parts_of_a_wait_outside_of_given_periods_cover_the_rest_of_the_wait(
    held: list[list[int]], start: int, end: int | None
) -> None:
    until = 50.0
    wait = Spell(
        job="a/1",
        state="waiting",
        start=float(start),
        reason="outbid",
        end=None if end is None else float(max(start, end)),
    )
    periods = [(float(first), float(last)) for first, last in held]
    parts = list(outside(wait, periods, until))
    over = until if wait.end is None else wait.end
    half = [at + 0.5 for at in range(60)]  # all borders are whole numbers
    left = {at for at in half if start < at < over and not any(first < at < last for first, last in periods)}
    assert {at for at in half for each in parts if each.start < at < (each.end or until)} == left
    assert all(each.start < (each.end or until) for each in parts)
    assert sum((each.end or until) - each.start for each in parts) == len(left)


@pytest.mark.parametrize("policy", ["demo", "las"])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_resumed_by_its_app_on_slots_that_it_kept_does_not_wait(policy: str, seed: int) -> None:
    """The app pauses and resumes a job within its own slots: the journal has the second only, and no division after."""
    arbiter, spells, luck = watched(policy), Spells(), random.Random(seed)
    made, work = script(3, 3, 30.0)
    jobs = sorted(work)
    made += [(luck.uniform(5.0, 80.0), JobResumed(job=luck.choice(jobs), iterations=30.0)) for _ in range(60)]
    compared = 0

    def compare(step: Step) -> None:
        nonlocal compared
        spells.take(arbiter.view, step.at)
        waiting = {str(arbiter.state.job_id(row)) for row in arbiter.state.waiting_jobs.rows}
        resumed = {str(event.job) for event in step.events if isinstance(event, JobResumed)}
        kept = resumed - waiting
        compared += len(kept)
        assert not kept & {wait.job for wait in waits_of(spells.spells) if wait.end is None}

    arbiter.watch = compare  # type: ignore[method-assign]
    Drive(arbiter, work=work, delays=Delays(order=0.1)).run(sorted(made, key=lambda each: each[0]), until=5000.0)
    assert compared > 5
    assert all(wait.end is not None for wait in waits_of(spells.spells))


@pytest.mark.parametrize("seed", range(8))
def test_no_wait_of_a_job_overlaps_a_segment_in_which_it_holds_slots(tmp_path: Path, seed: int) -> None:
    folder, luck = run_folder(tmp_path / "state"), random.Random(seed)
    record = LiveRecord(folder)
    record.poll()
    first, last = record.first_at or 0.0, record.last_at
    record.close()
    for number in range(2):
        lines = []
        for job in (1, 2):
            at = first
            while at < last:
                for event in ("start", "running", luck.choice(["suspended", "paused"])):
                    at += luck.expovariate(0.2)
                    second, part = divmod(at, 60)
                    line = {"t": f"1970-01-01T00:{int(second):02}:{part:06.3f}Z", "job": f"app{number}/{job}"}
                    lines.append(json.dumps(line | {"event": event, "slots": [job], "step": 0, "incarnation": 1}))
        (folder / "apps" / f"app{number}" / "activity.jsonl").write_text("\n".join(lines) + "\n")
        head = "job,parameters,state,rung,iterations,metric,best,incarnations,iterations_lost,why\n"
        rows = "".join(f"app{number}/{job},{{}},finished,,20,,,1,0,\n" for job in (1, 2))
        (folder / "apps" / f"app{number}" / "trials.csv").write_text(head + rows)
    record = LiveRecord(folder)
    record.poll()
    assert waits_of(record.spells.spells)
    Tables(record).write(ResultFolder.create(tmp_path / "out"), policy="demo", seed=7)
    record.close()
    run = RunData.load(tmp_path / "out")
    held = run.segments.filter(pl.col("activity") != "idle").select("job", "start_seconds", "end_seconds")
    both = run.waits.filter(pl.col("end_seconds").is_not_null()).join(held, on="job", suffix="_held")
    overlap = both.filter(
        pl.min_horizontal("end_seconds", "end_seconds_held") - pl.max_horizontal("start_seconds", "start_seconds_held")
        > 1e-5
    )
    assert both.height > 0
    assert overlap.is_empty()
