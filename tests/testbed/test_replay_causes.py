"""Slot time by cause: every moment of every slot has one cause, in made-up and in random histories."""

from pathlib import Path
from typing import Any

import pytest
import random_journals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eunomia_testbed import Costs, SimulationOptions
from eunomia_testbed.replay.causes import Cause, Decisions, SlotTime, partition, slot_time
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.tables import AppRow, JobRow, LeaseRow, SegmentRow, WaitRow
from strength import examples

SPANS = st.lists(st.tuples(st.integers(-3, 25), st.integers(-3, 25)), max_size=6)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(SPANS, max_size=4), st.integers(0, 22))
def test_a_period_is_divided_as_each_of_its_moments_is(layers: list[list[tuple[int, int]]], end: int) -> None:
    causes = list(Cause)[: len(layers)]
    found = partition((0, end), list(zip(causes, layers, strict=True)), Cause.UNWANTED)
    expected = dict.fromkeys([*causes, Cause.UNWANTED], 0)
    for moment in range(end):
        of_moment = (
            cause
            for cause, spans in zip(causes, layers, strict=True)
            if any(start <= moment < over for start, over in spans)
        )
        expected[next(of_moment, Cause.UNWANTED)] += 1
    assert {cause: found.get(cause, 0) for cause in expected} == expected


def _check(found: SlotTime, whole_seconds: float) -> None:
    assert min(found.microseconds.values()) >= 0
    assert sum(found.microseconds.values()) == round(whole_seconds * 1e6)
    whole = 1.0 if whole_seconds > 0.0 else 0.0  # a history in which nothing happened has no time to share
    assert sum(found.share(cause) for cause in Cause) == pytest.approx(whole)


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31))
def test_the_causes_of_a_random_journal_sum_to_its_slot_time(tmp_path: Path, seed: int) -> None:
    run = random_journals.live(seed, tmp_path / "run")
    assert run.facts is not None
    rounds = [(float(at), at + 0.5) for at in range(0, 200, 7)]
    found = slot_time(run, "las", 0, Decisions(auctions=rounds[::2], others=rounds))
    slots = max(run.facts.slots or 0, run.leases.select("machine", "slot").n_unique())
    times = [run.leases["start_seconds"], run.leases["end_seconds"], run.segments["end_seconds"]]
    end = max(float(each.max() or 0.0) for each in [*times, run.apps["finish_seconds"]])  # type: ignore[arg-type]
    _check(found, slots * round(end * 1e6) / 1e6)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["fifo", "las", "srtf"]),
    st.sampled_from([Costs(), Costs(start=3.0, checkpoint=2.0, restore=2.0, release=4.0)]),
)
def test_the_causes_of_a_simulation_sum_to_its_slot_time(seed: int, policy: str, costs: Costs) -> None:
    run = random_journals.simulated(seed, policy, SimulationOptions(costs=costs), cluster="2x2 V100")
    found = slot_time(run, policy, 0)
    end = max(float(run.apps["finish_seconds"].max()), float(run.leases["end_seconds"].max()))  # type: ignore[arg-type]
    _check(found, 4 * round(end * 1e6) / 1e6)
    useful = run.segments.filter(activity="run")
    spent = float((useful["end_seconds"] - useful["start_seconds"]).sum())
    assert found.seconds(Cause.USEFUL) == pytest.approx(spent, abs=1e-3)
    assert (found.seconds(Cause.SAVE) > 0.0) <= (costs.checkpoint > 0.0)


def test_each_cause_has_the_time_that_is_its_own(tmp_path: Path) -> None:
    """Two slots, 40 s: a job that runs twice on the first, while another one waits for it; nothing on the second."""
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="serve", command=("eunomia", "serve"), slots=2))
    ended: dict[str, Any] = {"state": "finished", "arrival_seconds": 0.0, "finish_seconds": 40.0, "jct_seconds": 40.0}
    folder.write("apps", [AppRow(app="a", **ended)], policy="las")
    late = JobRow(app="a", job="a", **ended | {"arrival_seconds": 3.0})  # the wait counts first
    folder.write("jobs", [late], policy="las")
    leases = [(1.0, 16.0), (20.0, 36.0)]
    folder.write(
        "leases",
        [LeaseRow(app="a", job="a", machine="m", slot=0, start_seconds=on, end_seconds=off) for on, off in leases],
        policy="las",
    )
    parts = [
        ("start", 2.0, 5.0), ("run", 5.0, 12.0), ("save", 12.0, 15.0),
        ("restore", 20.5, 24.5), ("run", 24.5, 35.0), ("idle", 35.0, 36.0),
    ]  # fmt: skip
    folder.write(
        "segments",
        [
            SegmentRow(app="a", job="a", machine="m", slot=0, activity=name, start_seconds=on, end_seconds=off)
            for name, on, off in parts
        ],
        policy="las",
    )
    waits = [("a", 0.0, 2.0, "outbid"), ("b", 15.0, 21.0, "outbid"), ("b", 36.0, 38.0, "paused_by_app")]
    folder.write(
        "waits",
        [WaitRow(job=job, start_seconds=on, end_seconds=off, reason=why) for job, on, off, why in waits],
        policy="las",
    )
    decisions = Decisions(
        auctions=[(16.0, 17.0), (38.0, 39.0)],  # no job waits in the second one
        others=[(16.5, 17.25)],
        finishes={"a": [(34.0, 35.0)]},
        resizes={"a": [(10.0, 10.5)]},
    )
    found = slot_time(RunData.load(folder.path), "las", 0, decisions)
    assert {cause: found.seconds(cause) for cause in Cause} == pytest.approx(
        {
            Cause.USEFUL: 7.0 - 0.5 + 10.5 - 1.0,
            Cause.START: 3.0,
            Cause.RESTORE: 4.0,
            Cause.SAVE: 3.0,
            Cause.FINISH: 1.0,
            Cause.RESIZE: 0.5,
            Cause.PROBE: 0.0,
            Cause.AUCTION: 2 * 1.0,
            Cause.DECIDING: 2 * 0.25 + 1.0 + 0.5,
            Cause.BETWEEN: (1.0 + 1.0 + 2.75 + 1.0) + (2.0 + 1.0 + 3.75),
            Cause.ARRIVE: 1.0,
            Cause.UNWANTED: 4.0 + (12.0 + 19.0),
        }
    )
    _check(found, 80.0)
