"""Periodic checkpoints: whatever a step and a writing take, a kill costs at most the interval."""

from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_appmaster.training.commands import CheckpointClock, Commands


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


@settings(deadline=None, max_examples=50)
@given(step=st.floats(0.01, 0.3), writing=st.floats(0.0, 0.35))
def test_a_kill_costs_at_most_the_interval(step: float, writing: float) -> None:
    first, *others = lost_at_most(2.0, step, writing)
    assert max(others) <= 2.0
    assert first <= 2.0 + writing  # how long a writing takes is not known before the first
    assert min(others) >= 1.0


def test_a_slow_writer_leaves_half_of_the_time_to_the_training() -> None:
    clock = CheckpointClock(2.0, 0.0)
    clock.ask(0.0)
    clock.saved(0.0, 30.0)
    assert not clock.ask(30.0 - 29.1)
    assert clock.ask(30.0 + 1.0)


def test_work_counts_from_the_state_that_was_saved() -> None:
    now = 0.0
    commands = Commands(None, stop_at=None, every_seconds=2.0, clock=lambda: now)
    now = 1.0
    commands.saved(captured_at=0.5)
    now = 2.45
    assert commands.collect().checkpoint  # 1.95 s since that state, and a step of 1.45 s may follow
    commands.saved()
    assert not commands.collect().checkpoint
