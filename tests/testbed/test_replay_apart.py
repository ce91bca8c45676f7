"""The tables that say how far the real and the simulated runs of a replay are apart, and why."""

import csv
import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import pytest
from test_replay_twin import made_ready

from eunomia_testbed.replay import twin
from eunomia_testbed.replay.apart import FIDELITY, ORDER, RHO, SLOT_TIME, ReplaySides, write_apart
from eunomia_testbed.replay.cells import RunRecord, interleaved, state_folder, write_done
from eunomia_testbed.replay.fidelity import UNEXPLAINED
from eunomia_testbed.replay.pace import RunPace


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_tables_of_a_replay_hold_shares_differences_and_the_order(tmp_path: Path) -> None:
    """The real runs are simulated with slower starts; their state folders have no journal that could explain them."""
    ready = made_ready(tmp_path, policies=["default", "las"], repeats=2, anyway=True)
    slow = dataclasses.replace(ready.costs, start_seconds=4.0)
    sides = ReplaySides(
        out=tmp_path,
        plan=ready.plan,
        profiles=ready.measured.profiles,
        costs=ready.costs,
        runs=interleaved(["default", "las"], ready.plan.seeds),
        real=twin.simulate_plan(ready.plan, ready.measured.profiles, slow, tmp_path / "real"),
        simulated=twin.simulate_plan(ready.plan, ready.measured.profiles, ready.costs, tmp_path / "simulated"),
    )
    for run in sides.runs[:3]:  # the last one is not done
        state_folder(tmp_path, run).mkdir(parents=True)
        write_done(tmp_path, run, RunRecord(began_at=0.0, ended_at=1.0, late_seconds=0.0, pace=RunPace()))
    lines = write_apart(sides)
    shares: dict[tuple[str, ...], float] = defaultdict(float)
    for row in _rows(tmp_path / SLOT_TIME):
        shares[row["policy"], row["side"], row["repeat"]] += float(row["share"])
    assert len(shares) == 2 * 3
    assert all(share == pytest.approx(1.0) for share in shares.values())
    by_cause = {(row["policy"], row["figure"], row["cause"]): row for row in _rows(tmp_path / FIDELITY)}
    whole, left = (by_cause["las", "jct_mean_seconds", cause] for cause in ("whole", UNEXPLAINED))
    assert float(whole["difference"]) > 0.0
    assert float(left["difference"]) == pytest.approx(float(whole["difference"]))
    assert {row["policy"]: int(row["apps"]) for row in _rows(tmp_path / RHO)} == {"default": 10, "las": 10}
    assert [(row["first"], row["second"]) for row in _rows(tmp_path / ORDER)] == [("default", "las")] * 2
    assert any(line.startswith("las, real slot time: useful") for line in lines)
    assert json.dumps(lines)
