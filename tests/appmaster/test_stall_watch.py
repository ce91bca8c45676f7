"""The watch that decides when a job has stalled, in virtual time: no false alarm, no stall that is missed."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_appmaster.node.loop_clock import MOST_GAP_SECONDS, LoopClock
from eunomia_appmaster.node.stall_watch import (
    ALLOWANCES,
    LEAST_SECONDS,
    Observed,
    Phase,
    Stall,
    StallLimits,
    StallWatch,
)

TICK = 0.2
HOUR = 3600.0


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Lab:
    """A watch of one job, whose loop ticks every 0.2 s of virtual time."""

    def __init__(self, limits: StallLimits | None = None) -> None:
        self.time = Time()
        self.watch = StallWatch(limits or StallLimits(), self.time)
        self.news = 0
        self.phases: tuple[Phase, ...] = (Phase.START,)
        self.step_seconds: float | None = None
        self.logged = True
        self.stalls: list[tuple[float, Stall]] = []

    def run(self, seconds: float, phase: Phase | None = None, *, beat_every: float | None = None) -> None:
        """Let time pass in a phase; ``beat_every``: seconds between two signs of progress; None: there is none."""
        self.phases = self.phases if phase is None else (phase,)
        end, beaten = self.time.now + seconds, self.time.now
        while self.time.now < end:
            self.time.now += TICK
            if beat_every is not None and self.time.now - beaten >= beat_every:
                self.news, beaten = self.news + 1, self.time.now
            self.look()

    def look(self) -> None:
        self.watch.tick()
        seen = Observed(news=self.news, phases=self.phases, step_seconds=self.step_seconds, logged=self.logged)
        if (stall := self.watch.look(1, seen)) is not None:
            self.stalls.append((self.time.now, stall))
            self.watch.forgive(1)

    def progress(self) -> None:
        self.news += 1
        self.look()


def stalled_after(lab: Lab, seconds: float) -> float | None:
    """Return the seconds of silence after which the job was said to have stalled; None: it was not."""
    began = lab.time.now
    lab.run(seconds)
    return None if not lab.stalls else lab.stalls[0][0] - began


@pytest.mark.parametrize("before", [Phase.START, Phase.FIRST_STEP, Phase.STEPS, Phase.UNKNOWN])
def test_a_process_stopped_before_its_first_step_has_a_limit_of_a_minute(before: Phase) -> None:
    lab = Lab()
    lab.run(10.0, before)
    lab.run(55.0, Phase.STOPPED)
    assert not lab.stalls
    lab.run(10.0)
    assert [(stall.phase, stall.limit_seconds) for _, stall in lab.stalls] == [(Phase.STOPPED, LEAST_SECONDS)]


def test_ten_healthy_hours_with_long_evaluations_and_checkpoints_raise_no_alarm() -> None:
    lab = Lab()
    lab.run(240.0, Phase.START)
    lab.run(420.0, Phase.FIRST_STEP)
    lab.step_seconds = 0.5
    while lab.time.now < 1000.0 + 10 * HOUR:
        lab.run(900.0, Phase.STEPS, beat_every=0.5)
        lab.run(300.0, Phase.EVALUATION)
        lab.run(120.0, Phase.CHECKPOINT)
        lab.run(40.0, Phase.STEPS)  # a slow step
        lab.progress()
    assert lab.stalls == []


@pytest.mark.parametrize(("step", "limit"), [(0.01, 60.0), (1.0, 60.0), (5.0, 100.0), (60.0, 1200.0)])
def test_the_limit_is_twenty_steps_and_at_least_a_minute(step: float, limit: float) -> None:
    lab = Lab()
    lab.run(10.0, Phase.STEPS, beat_every=min(step, 1.0))
    lab.step_seconds = step
    lab.progress()
    assert stalled_after(lab, 2 * limit) == pytest.approx(limit, abs=2 * TICK)
    assert lab.stalls[0][1].limit_seconds == limit


@pytest.mark.parametrize("phase", sorted(ALLOWANCES))
def test_each_phase_has_its_own_limit(phase: Phase) -> None:
    lab = Lab()
    lab.step_seconds = 0.1
    lab.run(0.2, phase)
    lab.progress()
    assert stalled_after(lab, 2 * ALLOWANCES[phase]) == pytest.approx(ALLOWANCES[phase], abs=2 * TICK)
    assert phase.words in lab.stalls[0][1].words()


def test_a_stopped_worker_has_the_limit_of_a_step_in_every_phase() -> None:
    lab = Lab()
    lab.step_seconds = 0.1
    lab.run(30.0, Phase.EVALUATION)
    lab.phases = (Phase.STEPS, Phase.STOPPED)  # the other one waits for it
    assert stalled_after(lab, 100.0) == pytest.approx(LEAST_SECONDS, abs=2 * TICK)


def test_time_in_which_a_worker_was_stopped_does_not_count_once_it_continues() -> None:
    lab = Lab()
    lab.step_seconds = 0.1
    lab.run(40.0, Phase.STEPS)
    for _ in range(3):
        lab.run(45.0, Phase.STOPPED)
        lab.run(5.0, Phase.STEPS)
    assert lab.stalls == []  # 55 s of silence while it ran, 135 s while it was stopped
    assert stalled_after(lab, 20.0) == pytest.approx(LEAST_SECONDS - 55.0, abs=4 * TICK)


def test_the_limit_of_a_gang_is_the_longest_of_its_workers() -> None:
    lab = Lab()
    lab.step_seconds = 0.1
    lab.phases = (Phase.CHECKPOINT, Phase.STEPS)
    assert stalled_after(lab, 2000.0) == pytest.approx(ALLOWANCES[Phase.CHECKPOINT], abs=2 * TICK)


def test_a_script_without_the_helper_is_watched_only_if_the_app_file_says_so() -> None:
    lab = Lab()
    lab.phases = (Phase.UNKNOWN,)
    assert stalled_after(lab, 10 * HOUR) is None
    lab = Lab(StallLimits(after=90.0))
    lab.phases, lab.logged = (Phase.UNKNOWN,), False
    assert stalled_after(lab, ALLOWANCES[Phase.FIRST_STEP] - 10.0) is None  # it has logged nothing yet
    lab.logged = True
    lab.progress()
    assert stalled_after(lab, 200.0) == pytest.approx(90.0, abs=2 * TICK)


def test_the_option_stall_after_sets_the_limit_of_steps_and_may_raise_other_limits() -> None:
    limits = StallLimits(after=6.0)
    assert limits.seconds(Phase.STEPS, 0.1) == 6.0
    assert limits.seconds(Phase.EVALUATION, 0.1) == ALLOWANCES[Phase.EVALUATION]
    assert StallLimits(after=9000.0).seconds(Phase.EVALUATION, 0.1) == 9000.0
    assert StallLimits(off=True).seconds(Phase.STEPS, 0.1) is None


def test_a_stall_limit_below_the_step_time_stops_no_healthy_job() -> None:
    limits = StallLimits(after=6.0)
    assert limits.too_short_for(5.0)
    assert not limits.too_short_for(0.5)
    assert not limits.too_short_for(None)
    assert limits.seconds(Phase.STEPS, 5.0) == 15.0
    assert limits.seconds(Phase.UNKNOWN, 5.0) == 15.0


def test_after_a_pause_of_the_launcher_a_worker_has_the_whole_limit_again() -> None:
    lab = Lab()
    lab.step_seconds = 0.1
    lab.run(50.0, Phase.STEPS)
    lab.time.now += 60.0  # the watch was stopped
    assert stalled_after(lab, 200.0) == pytest.approx(60.0, abs=2 * TICK)


def test_silence_counts_from_the_end_of_the_last_pause_of_the_loop() -> None:
    time = Time()
    clock = LoopClock(time)
    time.now += 100.0
    assert clock.silence(0.0) == 0.0  # not ticked yet
    assert clock.tick()
    assert clock.silence(0.0) == 0.0
    time.now += MOST_GAP_SECONDS
    assert not clock.tick()
    assert clock.silence(0.0) == MOST_GAP_SECONDS
    assert clock.silence(time.now - 1.0) == 1.0


Events = list[tuple[Phase, float, bool]]
PHASES = st.sampled_from([Phase.START, Phase.FIRST_STEP, Phase.STEPS, Phase.EVALUATION, Phase.CHECKPOINT])
SPELLS = st.lists(st.tuples(PHASES, st.floats(0.01, 0.95), st.sampled_from([0.2, 1.0, 4.9, 30.0, 4000.0])), max_size=30)


@given(SPELLS, st.floats(0.001, 100.0))
def test_no_history_of_a_healthy_worker_is_reported_as_a_stall(
    spells: list[tuple[Phase, float, float]], step: float
) -> None:
    """Spells shorter than their limits, with gaps of the loop of any length between two looks, are no stalls."""
    lab = Lab()
    lab.step_seconds = step
    for phase, part, gap in spells:
        limit = lab.watch.limits.seconds(phase, step)
        assert limit is not None
        lab.phases = (phase,)
        lab.look()
        for at in _looks(part * limit, gap):
            lab.time.now += at
            lab.look()
        lab.progress()
    assert lab.stalls == []


@given(SPELLS, PHASES, st.floats(0.001, 100.0), st.sampled_from([0.2, 1.0, 4.9]))
def test_every_silence_longer_than_the_limit_is_reported_as_a_stall(
    spells: list[tuple[Phase, float, float]], last: Phase, step: float, gap: float
) -> None:
    """Whatever came before, a job that falls silent is a stall within its limit and two looks."""
    lab = Lab()
    lab.step_seconds = step
    for phase, part, pause in spells:
        lab.phases = (phase,)
        lab.time.now += min(pause, part)
        lab.progress()
    lab.phases = (last,)
    lab.look()
    began, limit = lab.time.now, lab.watch.limits.seconds(last, step)
    assert limit is not None
    while not lab.stalls and lab.time.now < began + limit + 3 * gap:
        lab.time.now += gap
        lab.look()
    assert lab.stalls
    assert limit <= lab.stalls[0][0] - began <= limit + 2 * gap


def _looks(seconds: float, gap: float) -> Iterator[float]:
    """Yield the steps of time that make up a spell."""
    times = [0.0]
    while times[-1] < seconds:
        times.append(min(seconds, times[-1] + gap))
    return (late - early for early, late in pairwise(times))
