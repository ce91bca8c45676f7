"""Rates and costs of programs, read from the journal, the activity logs and the event files of a run."""

import dataclasses
import json
from pathlib import Path

import pytest

from eunomia.arbiter import Arbiter
from eunomia.contract.codec import encode
from eunomia.contract.events import AppArrived, JobAdded
from eunomia.errors import InputError
from eunomia.journal.journal import Journal
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.node.control_groups import choose
from eunomia_appmaster.node.kept_files import sealed
from eunomia_appmaster.node.local_machine import usable_cpus
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.performance.replay_profiles import Measurements, Profiles
from eunomia_testbed.replay.measuring.changes import live_changes, stretches
from eunomia_testbed.replay.measuring.changing import ChangeCounts
from eunomia_testbed.replay.measuring.machine import check_measured, machine_words, present_versions
from eunomia_testbed.replay.measuring.reading import Cost, CostSample, MeasuredApp, RateSample, Samples, read_samples
from eunomia_testbed.replay.measuring.session import Effort, SlotKind, measure
from eunomia_testbed.replay.measuring.setting import RateSetting, app_of
from eunomia_testbed.replay.measuring.showing import measured_lines
from eunomia_testbed.replay.measuring.summary import check_complete, costs_of, profiles_of, spreads_of
from eunomia_testbed.workloads.programs import program_named

AT = 1_000.0
"""Unix time of the first arrival."""


def _activity(job: str, *events: tuple[float, str, int, int]) -> str:
    """Return lines of an activity log: time, event, step and incarnation."""
    rows = []
    for at, event, step, incarnation in events:
        minutes, seconds = divmod(at, 60.0)
        stamp = f"1970-01-01T00:{int(minutes):02}:{seconds:06.3f}Z"
        rows.append({"t": stamp, "job": job, "event": event, "slots": [0], "step": step, "incarnation": incarnation})
    return "".join(json.dumps(row) + "\n" for row in rows)


def _logged(run_dir: Path, incarnation: int, first: int, last: int, start: float, each: float) -> None:
    """Write the event file of an incarnation, with a point for each step."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run_dir / "logs"), filename_suffix=f".r{incarnation}") as writer:
        for step in range(first, last + 1):
            writer.add_scalar("train/loss", 0.5, step, walltime=start + (step - first) * each)


def _state(folder: Path) -> LiveRecord:
    """A run of a job that starts by fork, is suspended after 40 steps, and finishes after 100."""
    app = folder / "apps" / "a"
    for incarnation in (1, 2):
        container = app / "1" / "containers" / f"c{incarnation}"
        container.mkdir(parents=True)
        record = {"container_id": "c", "job": 1, "incarnation": incarnation, "slot": 0, "status": {"forked": True}}
        (container / "container.json").write_text(sealed(record))
    (app / "app.toml").write_text('[app]\nname = "a"\n[job]\ncommand = "python x.py"\n')
    head = "job,parameters,state,rung,iterations,metric,best,incarnations,iterations_lost,why\n"
    (app / "trials.csv").write_text(head + "a/1,{},finished,,100,,,2,0,\n")
    (app / "activity.jsonl").write_text(
        _activity(
            "a/1",
            (1002.0, "start", 0, 1),
            (1002.3, "running", 0, 1),
            (1013.0, "suspending", 40, 1),
            (1013.5, "suspended", 40, 1),
            (1020.0, "start", 40, 2),
            (1020.4, "resumed", 40, 2),
            (1040.0, "finished", 100, 2),
        )
    )
    _logged(app / "1", 1, 1, 40, 1003.25, 0.25)  # the first step ends 1.25 s after the order
    _logged(app / "1", 2, 41, 100, 1021.65, 0.25)  # 1.65 s after the order; the last one at 1036.4
    cluster = Cluster.parse("1x1 V100")
    profile = Profile.load("las")
    arbiter = Arbiter(cluster, profile.stages(cluster), Profile.fallback().stages(cluster), seed=1)
    arrived = (AppArrived(app=AppId("a"), user=UserId("ana")),)
    added = (JobAdded(job=JobId("a/1"), app=AppId("a"), iterations=100.0),)
    with Journal.open(folder / "journal.sqlite", durable=False) as journal:
        journal.set_meta(layout=encode((cluster.machines, (("box", 0),))))
        for now, events in ((0.0, arrived), (1.5, added)):
            journal.append(Seconds(now), events, arbiter.step(Seconds(now), events), at=AT + now)
    made = LiveRecord(folder)
    made.poll()
    return made


def test_rates_and_costs_are_read_from_a_run(tmp_path: Path) -> None:
    record = _state(tmp_path)
    found = read_samples(record, {"a": MeasuredApp(program="x", batch_size=32, slot_type="V100")})
    record.close()
    assert [(each.slots, each.steps, round(each.seconds, 3)) for each in found.rates] == [(1, 39, 9.75), (1, 59, 14.75)]
    costs = {each.cost: round(each.seconds, 3) for each in found.costs}
    assert costs == {
        Cost.ARRIVE: 1.5,
        Cost.START: 1.0,
        Cost.SAVE: 0.5,
        Cost.RESTORE: 0.4,
        Cost.FINISH: 3.6,
        Cost.DECIDE: costs[Cost.DECIDE],
    }
    profiles = profiles_of(found.rates, {"V100": 0.0})
    assert profiles.rates[0].iterations_per_second == pytest.approx(4.0)
    assert profiles.rates[0].samples == 2


def test_steps_outside_of_the_app_masters_record_give_no_rate(tmp_path: Path) -> None:
    record = _state(tmp_path)
    record.lines = [dataclasses.replace(line, at=line.at + 100.0) for line in record.lines]
    found = read_samples(record, {"a": MeasuredApp(program="x", batch_size=32, slot_type="V100")})
    record.close()
    assert found.rates == ()
    assert {each.cost for each in found.costs} == {Cost.ARRIVE, Cost.SAVE, Cost.DECIDE}


def test_a_program_has_costs_of_its_own_from_three_samples_on() -> None:
    seconds = {"x": (0.1, 0.2, 0.6), "y": (5.0, 7.0)}
    samples = [
        CostSample(program=program, cost=Cost.SAVE, seconds=each) for program, all_ in seconds.items() for each in all_
    ]
    spreads = spreads_of(samples)
    assert [(each.program, each.samples, each.median_seconds) for each in spreads] == [
        ("", 5, 0.6),
        ("x", 3, 0.2),
        ("y", 2, 6.0),
    ]
    assert spreads[0].p95_seconds == pytest.approx(6.6)
    common, own = costs_of(spreads)
    means = (common.save_seconds, own["x"].save_seconds, own["y"].save_seconds)
    assert means == pytest.approx((12.9 / 5, 0.3, 12.9 / 5))
    assert common.start_seconds == 0.0


def test_a_rate_has_the_spread_of_its_starts() -> None:
    starts = [
        RateSample(program="x", batch_size=8, slots=slots, slot_type="a", steps=10, seconds=seconds)
        for slots, seconds in ((1, 1.9), (1, 2.1), (2, 3.0))
    ]
    profiles = profiles_of(starts, {"a": 0.35})
    assert [rate.spread for rate in profiles.rates] == pytest.approx([0.1 * 2**0.5 / 2.0, 0.0])
    assert profiles.spread == profiles.rates[0].spread
    assert profiles_of(starts[2:], {"a": 0.35}).spread == 0.0


def _line(at: float, event: str, slots: int, step: int, why: str = "", pause: float | None = None) -> Line:
    return Line(
        at=at, app="a", job="a/1", event=event, slots=tuple(range(slots)), step=step, incarnation=1, why=why,
        pause_seconds=pause,
    )  # fmt: skip


LIVE = [
    _line(10.0, "start", 1, 0),
    _line(10.5, "running", 1, 0),
    _line(20.0, "change", 1, 0, "grow 1 -> 2 ordered"),
    _line(20.5, "change", 1, 0, "grow 1 -> 4 ordered: its lease has 4 slots"),  # replaces the order before
    _line(22.0, "change", 1, 0, "3 newcomers ready"),
    _line(22.75, "resized", 4, 12, pause=0.25),
    _line(30.0, "change", 4, 0, "shrink 4 -> 2 ordered"),
    _line(30.25, "resized", 2, 20, pause=0.125),
]
"""A job that grows to four slots after 12 steps, and shrinks to two after 20."""


def test_pauses_and_joins_are_read_from_the_lines_of_live_changes() -> None:
    changes = list(live_changes(LIVE))
    assert [(each.before, each.after, each.pause_seconds, each.join_seconds) for each in changes] == [
        (1, 4, 0.25, 2.0),
        (4, 2, 0.125, None),
    ]
    assert (ChangeCounts.of(changes).grown, ChangeCounts.of(changes).shrunk) == (1, 1)
    assert not ChangeCounts.of(2 * changes).suffice
    assert ChangeCounts.of(3 * changes).suffice


def test_steps_of_a_live_job_count_for_the_size_at_which_they_were_made() -> None:
    steps = [(step, 10.0 + step) for step in range(1, 31)]
    found = [(len(each.slots), each.steps, each.seconds) for each in stretches(LIVE, steps)]
    # steps 1 to 11, 13 to 19, 21 to 30; the last step before a change is left out
    assert found == [(1, 10, 10.0), (4, 6, 6.0), (2, 9, 9.0)]
    assert stretches(LIVE[:2], steps)[0].steps == 29


def test_the_costs_of_live_changes_are_samples_of_their_program(tmp_path: Path) -> None:
    record = _state(tmp_path)
    record.lines = [*LIVE]
    found = read_samples(record, {"a": MeasuredApp(program="x", batch_size=32, slot_type="V100")})
    record.close()
    costs = [(each.program, each.cost, each.seconds) for each in found.costs if each.cost in (Cost.PAUSE, Cost.JOIN)]
    assert costs == [("x", Cost.PAUSE, 0.25), ("x", Cost.JOIN, 2.0), ("x", Cost.PAUSE, 0.125)]
    assert costs_of(spreads_of(found.costs))[0].pause_seconds == pytest.approx(0.1875)


def test_a_measuring_job_that_changes_live_has_sizes(tmp_path: Path) -> None:
    wanted = RateSetting(program="x", command="python x.py --n=1", batch_size=8, slots=2, slot_type="a")
    text = app_of(wanted, "m", iterations=9, folder=tmp_path, live=True).text
    assert 'slots = { min = 1, max = 2 }\nelastic = "live"' in text


def test_a_setting_without_a_rate_is_named() -> None:
    rate = RateSample(program="x", batch_size=8, slots=1, slot_type="cpu-0.35", steps=10, seconds=2.0)
    wanted = RateSetting(program="x", command="python x.py", batch_size=8, slots=2, slot_type="cpu-0.35")
    with pytest.raises(InputError, match=r"x with batch size 8 on 2 x cpu-0\.35"):
        check_complete(profiles_of([rate], {}), [wanted])


def test_the_file_keeps_spreads_and_the_calibrating_loop(tmp_path: Path) -> None:
    samples = Samples(
        rates=(RateSample(program="x", batch_size=8, slots=1, slot_type="a", steps=10, seconds=2.0),),
        costs=(CostSample(program="x", cost=Cost.START, seconds=0.5),),
    )
    costs, own = costs_of(spreads_of(samples.costs))
    made = Measurements(
        profiles=profiles_of(samples.rates, {"a": 0.35}),
        costs=costs,
        machine=machine_words(tmp_path),
        versions=present_versions(),
        measured_at="2026-01-02T03:04:05Z",
        program_costs=own,
        spreads=spreads_of(samples.costs),
        loop_seconds=0.004,
        pace=0.97,
    )
    assert "of a CPU of unknown model" in made.machine
    assert Measurements.parse(made.to_toml(), place="profiles.toml") == made


def test_a_file_of_another_machine_or_version_is_refused_unless_wanted(tmp_path: Path) -> None:
    made = Measurements(
        profiles=Profiles(rates=(), slot_speeds={}),
        costs=costs_of(())[0],
        machine="two cores",
        versions={"torch": "2.0", "python": "3.11"},
        measured_at="",
        program_costs={},
    )
    check_measured(made, machine="two cores", versions=dict(made.versions), place="f")
    with pytest.raises(InputError) as refused:
        check_measured(made, machine="one core", versions={"torch": "3.0", "python": "3.11"}, place="f")
    assert 'machine "two cores", here "one core"; torch 2.0, here 3.0' in str(refused.value)
    check_measured(made, machine="one core", versions={}, place="f", anyway=True)


def test_a_program_is_measured_on_slots_that_there_are(tmp_path: Path) -> None:
    wanted = RateSetting(program="x", command="python x.py", batch_size=8, slots=4, slot_type="a")
    with pytest.raises(InputError, match=r"x with batch size 8 on 4 x a .slots: 2 x a of 0.35 core."):
        measure(tmp_path, [wanted], [SlotKind(name="a", count=2, speed=0.35)])


def test_a_measuring_job_starts_by_exec_where_it_is_asked_for(tmp_path: Path) -> None:
    wanted = RateSetting(program="x", command="python x.py --n=1", batch_size=8, slots=2, slot_type="a")
    forked, executed = (app_of(wanted, "m", iterations=9, folder=tmp_path, by_exec=way) for way in (False, True))
    assert 'command = "python x.py --n=1"\nslots = 2\nmax_iterations = 9' in forked.text
    assert ("PYTHONNOUSERSITE" in forked.text, "PYTHONNOUSERSITE" in executed.text) == (False, True)


def test_measured_rates_and_costs_are_shown() -> None:
    samples = [
        CostSample(program="x", cost=cost, seconds=seconds)
        for cost, all_ in ((Cost.START, (0.4, 0.5, 0.6)), (Cost.EXEC_START, (15.0,)))
        for seconds in all_
    ]
    rates = [
        RateSample(program="x", batch_size=8, slots=slots, slot_type="cpu-0.35", steps=steps, seconds=2.0)
        for slots, steps in ((1, 20), (2, 33))
    ]
    spreads = spreads_of(samples)
    made = Measurements(
        profiles=profiles_of(rates, {"cpu-0.35": 0.35}),
        costs=costs_of(spreads)[0],
        machine="",
        versions={},
        measured_at="",
        program_costs={},
        spreads=spreads,
        pace=0.993,
    )
    assert measured_lines(made) == [
        "x, batch size 8, cpu-0.35: iterations per second 10 on 1, 16.5 on 2",
        "start: median 0.5 s, p95 0.59 s, 3 samples",
        "exec_start: median 15 s, p95 15 s, 1 sample",
        "a start by exec takes 30 times as long",
        "every slot had at least 99.3% of its pace",
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_measurement_on_paced_slots_has_rates_and_all_costs(tmp_path: Path) -> None:
    """Takes about a minute on two idle cores."""
    groups = choose(tmp_path / "state")
    groups.close()
    if "cpu" not in groups.controllers or usable_cpus() < 1.5:
        pytest.skip(f"no pace can be kept here: {groups.describe()}")
    command = program_named("mlp").command(batch_size=96, options={"width": 64})
    wanted = [
        RateSetting(program="mlp", command=command, batch_size=96, slots=slots, slot_type="a") for slots in (1, 2)
    ]
    made = measure(
        tmp_path / "out",
        wanted,
        [SlotKind(name="a", count=2, speed=0.4)],
        effort=Effort(seconds=10.0, repeats=2),
        changes=wanted[1:],
    )
    assert set(made.profiles.points("mlp", 96, "a")) == {1, 2}
    found = {each.cost for each in made.spreads if not each.program}
    assert found == {cost.value for cost in Cost}
    assert made.costs.exec_start_seconds > made.costs.start_seconds
    assert made.pace is not None
    check_measured(made, machine=made.machine, versions=present_versions(), place="f")
