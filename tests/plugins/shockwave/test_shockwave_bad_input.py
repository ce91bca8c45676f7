"""Bad input under Shockwave: options out of bounds, impossible regimes, late announcements, lost machines."""

import json
import math
import re
from pathlib import Path

import pytest
from shockwave_lab import ROUND, Lab

from eunomia import ComingRegime, Profile, Reason, Seconds
from eunomia.contract.events import Adapted, Event, JobFinished, MachineBack, MachineLost, RegimesAnnounced
from eunomia.errors import InputError, InputErrors
from eunomia.model.adaptations import Adapts
from eunomia.units import JobId
from eunomia_testbed import read_trace

A, B = JobId("a"), JobId("b")
GNS = {"batch_size": 32.0, "epochs": 30.0, "samples_per_epoch": 320.0, "adapts": Adapts.GNS}
"""Ten iterations an epoch: 300 in all at the first batch size."""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("plugins.shockwave_utility.window=0", "window must be between 1 and 1000, but got 0"),
        ("plugins.shockwave_utility.window=-3", "window must be between 1 and 1000, but got -3"),
        ("plugins.shockwave_utility.window=1001", "window must be between 1 and 1000, but got 1001"),
        ("plugins.shockwave_utility.window=2.5", "window must be a whole number, but got 2.5"),
        ("plugins.shockwave_utility.k=-1", "k must be between 0 and 100, but got -1"),
        ("plugins.shockwave_utility.k=1e9", "k must be between 0 and 100, but got 1000000000.0"),
        ("plugins.shockwave_utility.k=nan", "k must be between 0 and 100, but got nan"),
        ("plugins.shockwave_utility.round_length=0s", 'round_length must be greater than 0, but got "0s"'),
        ("plugins.shockwave_utility.contention=-1", "contention must be at least 0, but got -1"),
        ("plugins.shockwave.regularizer=-0.1", "regularizer must be between 0 and 1e+06, but got -0.1"),
        ("plugins.shockwave.regularizer=1e7", "regularizer must be between 0 and 1e+06, but got 10000000.0"),
        ("plugins.shockwave.regularizer=nan", "regularizer must be between 0 and 1e+06, but got nan"),
        ("plugins.shockwave.log_points=[0.0, 1.0, 0.5]", "log_points must ascend from 0 to 1"),
        ("plugins.shockwave.log_points=[0.0]", "log_points must have at least 2 items, but got [0.0]"),
        ("plugins.shockwave.nodes=0", "nodes must be at least 1, but got 0"),
    ],
)
def test_options_out_of_their_range_are_refused_with_their_place(setting: str, said: str) -> None:
    with pytest.raises(InputErrors, match=f"^{re.escape(said)}") as refused:
        Profile.load("shockwave", settings=[setting])
    assert f"--set {setting.partition('=')[0]}" in str(refused.value)


@pytest.mark.parametrize("k", [0.0, 100.0])
@pytest.mark.parametrize("regularizer", [0.0, 1e6])
@pytest.mark.parametrize("window", [1, 1000])
def test_plans_with_extreme_options_are_finite_and_use_all_gpus(k: float, regularizer: float, window: int) -> None:
    bounds = {"plugins__shockwave_utility__k": k, "plugins__shockwave_utility__window": window}
    lab = Lab("1x2 V100", plugins__shockwave__regularizer=regularizer, **bounds)
    made = lab.submit(("a", 1, 100.0), ("b", 2, 350.0), ("c", 1, 1e6))
    (columns,) = [record.columns for record in made.records if record.table == "shockwave"]
    assert all(map(math.isfinite, (columns["objective"][0], columns["bound"][0], columns["makespan_bound"][0])))
    assert columns["objective"][0] <= columns["bound"][0] * (1.0 + math.copysign(1e-9, columns["bound"][0]))
    assert sum(len(lease.gpus) for lease in lab.arbiter.state.leases.values()) == 2


def test_announced_regimes_longer_than_the_job_are_refused_and_change_no_plan() -> None:
    lab = Lab("1x1 V100")
    lab.submit(("a", 1, 300.0), ("b", 1, 300.0), **GNS)
    plan = lab.plan
    parts = (ComingRegime(iterations=200.0, rate=1.0), ComingRegime(iterations=101.0, rate=2.0))
    decision = lab.arbiter.step(Seconds(10.0), [RegimesAnnounced(job=A, regimes=parts)])
    assert [fault.what for fault in decision.faults] == [
        "RegimesAnnounced: coming regimes must fit into the job's 300 iterations, but got 301 iterations (a)"
    ]
    assert lab.plan == plan


WRONG: dict[str, tuple[Event, str]] = {
    "epochs out of order": (
        Adapted(job=A, batch_size=128.0, iterations_done=20.0, at=Seconds(50.0)),
        "regimes must be in order: the last began at 40 s and 40 iterations, but got",
    ),
    "beyond its epochs": (
        Adapted(job=A, batch_size=128.0, iterations_done=2000.0, at=Seconds(50.0)),
        "a job must adapt within its 30 epochs, but got",
    ),
    "no batch size": (
        Adapted(job=A, batch_size=-64.0, iterations_done=50.0, at=Seconds(50.0)),
        "a batch size must be a number above 0, but got",
    ),
    "a job that ended": (
        Adapted(job=B, batch_size=64.0, iterations_done=50.0, at=Seconds(50.0)),
        "an event must name a job that has not ended, but got",
    ),
    "a job that never was": (
        Adapted(job=JobId("z"), batch_size=64.0, iterations_done=50.0, at=Seconds(50.0)),
        "an event must name a job that has not ended, but got",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_announcement_is_refused_and_the_plan_continues(name: str) -> None:
    lab = Lab("1x2 V100")
    lab.submit(("a", 1, 900.0), ("b", 1, 300.0), ("c", 2, 900.0), **GNS)
    lab.step(Adapted(job=A, batch_size=64.0, iterations_done=40.0, at=Seconds(40.0)), JobFinished(job=B), at=40.0)
    plan = lab.plan
    event, rule = WRONG[name]
    decision = lab.arbiter.step(Seconds(50.0), [event])
    (fault,) = decision.faults
    assert rule in fault.what
    assert lab.plan == plan
    lab.now = 50.0
    lab.pass_to(ROUND)
    assert lab.plan.row == plan.row + 1


def test_a_batch_size_without_a_profile_is_planned_with_the_gain_of_others() -> None:
    """48 is no doubling of 32 and was never measured: the job is expected to stay there, at a rate that follows."""
    lab = Lab("1x1 V100")
    lab.submit(("a", 1, 300.0), ("b", 1, 300.0), **GNS)
    decision = lab.step(Adapted(job=A, batch_size=48.0, iterations_done=20.0), at=20.0)
    assert decision.faults == ()
    assert set(lab.plan.window.turns) == {"a", "b"}
    tables = [record for record in decision.records if record.table == "forecasts"]
    rows = [row for row, job in enumerate(tables[0].columns["job"]) if job == "a"]
    assert [tables[0].columns["batch_size"][row] for row in rows][:2] == [32.0, 48.0]
    assert all(math.isfinite(tables[0].columns["left_seconds"][row]) for row in rows)


def test_a_trace_whose_batch_size_has_no_throughput_is_refused_by_row(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(json.dumps({"v100": {"('LM (batch size 32)', 1)": {"null": 10.0}}}))
    row = "LM (batch size 48)\tpython3 main.py --batch_size 48\tlm\t--steps\t1\t100\t1\tgns\t1\t-1.0\t10\t0\n"
    (tmp_path / "t.trace").write_text(row)
    with pytest.raises(InputError) as refused:
        read_trace(tmp_path / "t.trace", throughputs=str(tmp_path / "rates.json"))
    rule = 'job_type must have a throughput in rates.json, but got "LM (batch size 48) with 1 GPUs", line 1'
    assert rule in str(refused.value)


def test_a_plan_whose_machines_are_lost_waits_with_a_reason_until_one_is_back() -> None:
    lab = Lab("2x1 V100")
    lab.submit(("a", 1, 900.0), ("b", 1, 900.0))
    assert lab.running == {"a", "b"}
    one, other = (machine.name for machine in lab.cluster.machines)
    lab.step(MachineLost(machine=one), at=50.0)
    assert lab.plan.window.capacity == (1,)
    assert lab.running == {"b"}
    lab.pass_to(ROUND)
    (late,) = lab.reasons
    assert lab.reasons[late] is Reason.PLANNED_LATER
    assert lab.plan.starts_at(late) > ROUND
    lab.step(MachineLost(machine=other), at=ROUND + 10.0)
    assert lab.plan.window.capacity == (0,)
    assert lab.running == set()
    lab.pass_to(3 * ROUND)
    assert set(lab.reasons) == {"a", "b"}
    lab.step(MachineBack(machine=one), at=3 * ROUND + 10.0)
    assert lab.plan.window.capacity == (1,)
    assert len(lab.running) == 1
    lab.pass_to(4 * ROUND)
    assert set(lab.reasons.values()) <= {Reason.PLANNED_LATER, Reason.OUTRANKED}
