"""Periodic checkpoints: whatever a step and a writing take, a kill costs at most the interval."""

from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_appmaster.training.commands import CheckpointClock, Commands
from strength import examples


def lost_at_most(every: float, step: float, writing: float, seconds: float = 20.0) -> list[float]:
    """By checkpoint: seconds from the state that the one before it holds to the moment at which it was on the disk."""
    now, covered, spans = 0.0, 0.0, []
    clock = CheckpointClock(every, now)
    clock.ask(now)
    while now < seconds:
        now += step
        if clock.ask(now):
            captured, now = now, now + writing
            spans.append(now - covered)
            covered = captured
            clock.saved(captured, now)
    return spans


@settings(deadline=None, max_examples=examples(50))
@given(step=st.floats(0.01, 0.25), writing=st.floats(0.0, 0.3))
def test_a_kill_costs_at_most_the_checkpoint_interval(step: float, writing: float) -> None:
    spans = lost_at_most(2.0, step, writing)
    assert max(spans) <= 2.0  # the first write, too, although its duration is unknown
    assert min(spans) >= 1.0


@settings(deadline=None, max_examples=examples(20))
@given(step=st.floats(1.0, 5.0))
def test_a_long_checkpoint_interval_is_shortened_only_a_little(step: float) -> None:
    _, *others = lost_at_most(600.0, step, 2.0, seconds=3000.0)
    assert 585.0 <= min(others) <= max(others) <= 600.0


def test_after_a_long_step_checkpoints_begin_earlier_for_a_while() -> None:
    def asked_until(stalled: bool) -> CheckpointClock:
        clock = CheckpointClock(10.0, 0.0)
        clock.ask(0.0)
        clock.saved(0.0, 0.0)
        for tenths in range(65):
            if not (stalled and 30 <= tenths < 49):  # two seconds without a step
                assert not clock.ask(tenths / 10.0)
        return clock

    assert not asked_until(False).ask(7.0)
    assert asked_until(True).ask(7.0)  # with another such stall it would be 9


def test_checkpoints_take_at_most_half_of_the_time_even_with_a_slow_writer() -> None:
    clock = CheckpointClock(2.0, 0.0)
    clock.ask(0.0)
    clock.saved(0.0, 30.0)
    assert not clock.ask(30.0 - 29.1)
    assert clock.ask(30.0 + 1.0)


def test_unsaved_work_is_counted_from_the_state_that_was_saved() -> None:
    now = 0.0
    commands = Commands(None, stop_at=None, every_seconds=2.0, clock=lambda: now)
    commands.collect()
    commands.saved(captured_at=-0.5)
    now = 0.3
    assert not commands.collect().checkpoint
    now = 0.8
    assert commands.collect().checkpoint  # 1.3 s since that state, and a step of 0.5 s may follow
    commands.saved(captured_at=0.8)
    assert not commands.collect().checkpoint


def test_an_evaluation_that_is_not_in_a_checkpoint_counts_as_unsaved_work() -> None:
    """An evaluation is done again after a kill: the first step after it is saved at once."""
    now = 0.0
    commands = Commands(None, stop_at=None, every_seconds=2.0, clock=lambda: now)
    commands.collect()
    commands.saved(captured_at=0.0)
    for tenths in range(1, 40):
        now = tenths / 10.0
        if commands.collect().checkpoint:
            commands.saved(captured_at=None)  # the boundary before the evaluation is on the disk already
    assert commands.collect().checkpoint
