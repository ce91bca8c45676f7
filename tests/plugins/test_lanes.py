"""Jobs that run, kept in lanes, are served as when everybody is ranked anew: in random histories, ties included."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.units import NONE
from eunomia.valuations import Keys, Line
from eunomia_plugins.allocations import lanes as lanes_module
from eunomia_plugins.allocations.contests import ColumnWalk, Grant, Room
from eunomia_plugins.allocations.lanes import Lane, Lanes, UndecidedError
from eunomia_plugins.allocations.queue import Fits, Outcome, Queue, contest, contest_all

TYPES = 2
slopes = st.sampled_from([0.0, 1.0, 2.0, -1.0])
sizes = st.sampled_from([1, 1, 2, 3, 8])
kinds = st.integers(NONE, TYPES - 1)


class Town:
    """What lanes ask of a snapshot and of its sets: rows are numbers of jobs, that came in the order of their rows."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sets, self.jobs = self, self
        self.gpu_type = np.full(64, NONE, np.int32)
        self.cluster = SimpleNamespace(gpu_type=np.arange(TYPES))
        self.on: dict[int, tuple[int, int]] = {}
        self.until: dict[int, float] = {}

    def gpus_of(self, row: int) -> Any:
        gpus, kind = self.on[row]
        return np.full(gpus, kind)

    def protected_until(self, row: int) -> float:
        return self.until[row]


class Runner(SimpleNamespace):
    """A job that runs, as the model has it."""

    line: Line
    gpus: int
    kind: int


def served_anew(
    waiting: list[tuple[float, int, int, int]], runs: dict[int, Runner], free: list[int], now: float
) -> Any:
    """What ``contest`` means: one walk down everybody; waiting are (key, row, kind, gpus), rows break ties."""
    turns: list[tuple[float, int, Any]] = [(key, row, (kind, gpus)) for key, row, kind, gpus in waiting]
    turns += [(run.line[0] + run.line[1] * now, row, run) for row, run in runs.items()]
    left = [own + sum(run.gpus for run in runs.values() if run.kind == of) for of, own in enumerate(free)]
    room, grants, losers = Room(left, free.copy()), [], []
    passed: set[Any] = set()
    for _, row, who in sorted(turns, key=lambda turn: turn[:2]):
        if isinstance(who, Runner):
            of = room.choose(who.gpus, NONE, who.kind) if who.movable else who.kind
            if who.gpus > room.left[of]:
                losers.append(row)
                continue
            room.take(who.gpus, of, who.kind)
            if of != who.kind:
                grants.append(Grant(row, of, who.gpus))
            continue
        kind, gpus = who
        of = room.choose(gpus, kind)
        if who in passed or gpus > room.left[of]:
            passed.add(who)
            continue
        room.take(gpus, of)
        grants.append(Grant(row, of, gpus))
    return Outcome(grants, losers)


def waiting_in(queue: Queue, waiting: list[tuple[float, int, int, int]]) -> None:
    queue.waiting = {}
    for key, row, kind, gpus in sorted(waiting):
        queue.waiting.setdefault((kind, gpus), []).append((key, row, row))


keys_of = st.integers(-8, 8).map(float) | st.sampled_from([math.inf, 0.1, 0.3])
arrivals = st.tuples(st.integers(0, 15), keys_of, slopes, sizes, st.integers(0, TYPES - 1), st.booleans(), keys_of)
moments = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 0.1, 7.0]),
    st.lists(arrivals, max_size=6),
    st.sets(st.integers(0, 15), max_size=3),
    st.lists(st.tuples(keys_of, kinds, sizes), max_size=5),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)


@given(st.lists(moments, max_size=12))
def test_a_random_history_is_served_as_if_everybody_were_ranked_anew(history: list[Any]) -> None:
    town, queue = Town(), Queue()
    queue.running = lanes = Lanes()
    runs: dict[int, Runner] = {}
    for passes, come, gone, waits, free in history:
        town.now += passes
        for row in gone:
            lanes.drop(row)
            runs.pop(row, None)
        for row, key, slope, gpus, kind, movable, guarded in come:
            lanes.drop(row)
            town.on[row], town.until[row] = (gpus, kind), town.now + guarded
            town.gpu_type[row] = NONE if movable else kind
            line = (key, slope, math.inf)
            lanes.add(town, row, row, line)  # type: ignore[arg-type]
            runs[row] = Runner(line=line, gpus=gpus, kind=kind, movable=movable)
        lanes.refresh(town, None)  # type: ignore[arg-type]
        here = {row: run for row, run in runs.items() if town.until[row] <= town.now}
        assert set(lanes.contestants(town.now).rows.tolist()) == set(here)
        waiting = [(key, 20 + number, kind, gpus) for number, (key, kind, gpus) in enumerate(waits)]
        waiting_in(queue, waiting)
        anew = served_anew(waiting, here, list(free), town.now)
        fits = Fits(np.array([100, 100]))
        assert contest_all(queue, town, list(free), fits) == anew  # type: ignore[arg-type]
        columns = ColumnWalk(lanes.contestants(town.now), list(free))
        assert contest(queue, columns, list(free), fits) == anew


def test_a_line_that_has_ended_is_asked_for_again() -> None:
    town, lanes, asked = Town(), Lanes(), []
    town.on[3], town.until[3] = (2, 1), -math.inf

    def line(row: int) -> Line:
        asked.append(row)
        return 1.0, 0.0, math.inf

    lanes.add(town, 3, 3, (0.0, 1.0, 5.0))  # type: ignore[arg-type]
    for now, times in ((4.0, 0), (5.0, 1), (6.0, 1)):
        town.now = now
        lanes.refresh(town, Keys(owner=town, of=lambda _: None, line=line))  # type: ignore[arg-type, return-value]
        assert len(asked) == times
    assert lanes.contestants(6.0).keys.tolist() == [1.0]


def test_who_is_told_apart_only_before_rounding_goes_by_arrival() -> None:
    """Two keys that differ at time 0, and not now, stand the other way round in their lane."""
    town, queue = Town(), Queue()
    queue.running = lanes = Lanes()
    town.now = 2.0**54
    runs = {}
    for row, at_zero in ((5, 0.0), (4, 0.5)):
        town.on[row], town.until[row] = (1, 0), -math.inf
        lanes.add(town, row, row, (at_zero, 1.0, math.inf))  # type: ignore[arg-type]
        runs[row] = Runner(line=(at_zero, 1.0), gpus=1, kind=0, movable=False)
    waiting = [(0.0, 20, 0, 1)]
    waiting_in(queue, waiting)
    fits, walk = Fits(np.array([2, 0])), lanes.walk(town.now, [0, 0])
    assert walk is not None
    with pytest.raises(UndecidedError):
        contest(queue, walk, [0, 0], fits)
    town.gpu_type[:] = 0
    assert contest_all(queue, town, [0, 0], fits) == Outcome([Grant(20, 0, 1)], [5])  # type: ignore[arg-type]
    assert served_anew(waiting, runs, [0, 0], town.now).losers == [5]


def test_where_lanes_are_many_everybody_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MANY", 1)
    town, lanes = Town(), Lanes()
    for row in range(3):
        town.on[row], town.until[row] = (1, 0), -math.inf
        lanes.add(town, row, row, (0.0, float(row), math.inf))  # type: ignore[arg-type]
    assert lanes.walk(0.0, [0, 0]) is None


class Read(list[Any]):
    """A list that counts how often an entry of it is read."""

    reads = 0

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("at", [0, 1, 2_000, 4_095, 4_096])
def test_a_lane_in_which_all_keys_are_equal_is_not_read_entry_by_entry(at: int) -> None:
    """The jobs of one queue of ``las`` have one key: a place among them by arrival is found by bisection."""
    lane = Lane((0.0, 1, 0, True))
    lane.entries = read = Read((1.0, 2 * row, row) for row in range(4_096))
    assert lane.before((1.0, 2 * at - 1, 9_999), 50.0) == at
    if at:
        assert lane.settled(at - 1, 0, 50.0) == (1.0, 2 * at - 2)
    assert read.reads < 100
