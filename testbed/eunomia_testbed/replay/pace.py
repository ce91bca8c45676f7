"""The pace of slots during a run: the CPU time that jobs used over the CPU time that their slots owed them.

A job on a paced slot waits for three reasons: its quota throttles it, which is the intended pace; it waits for a peer
or for input; or it is ready to run within its quota while another process has the core. Only the last is lost pace. In
addition, a calibrating loop measures how fast a core executes, since a host may slow down a virtual machine without any
effect on its processes' counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from eunomia.model.shapes import value

LEAST_PACE: Final = 0.95
"""Least fraction of its pace that every slot must have had for a run to count."""
LEAST_SECONDS: Final = 5.0
"""A slot that was measured for less is ignored, unless all slots were."""
MOST_ASLEEP_SECONDS: Final = 1.0
"""Most seconds for which the machine may have been suspended during a run that counts."""


@value
class Spent:
    """How a job's processes on one slot spent a period.

    Attributes:
        seconds: length of the period.
        used_seconds: CPU time.
        waited_seconds: time in which a thread was ready but did not run, including throttling by its quota.
        throttled_seconds: time in which the quota held threads back.
        cpus: the quota in CPU-seconds per second.
    """

    seconds: float
    used_seconds: float
    waited_seconds: float
    throttled_seconds: float
    cpus: float

    @property
    def lost_seconds(self) -> float:
        """Return the time in which a thread was ready within its quota, while another process had the core."""
        return min(max(self.waited_seconds - self.throttled_seconds, 0.0), self.seconds)

    @property
    def due_seconds(self) -> float:
        """Return the CPU time that the slot could have given in the period.

        Without the lost time, the job is taken to use CPU at the rate of the rest of the period, up to its quota. So a
        wait for which the quota compensates costs nothing, and a job that waits for a peer or for input is due only
        what it used.
        """
        most, free = self.cpus * self.seconds, self.seconds - self.lost_seconds
        wanted = most if self.used_seconds >= self.cpus * free else self.used_seconds * self.seconds / free
        return max(self.used_seconds, min(most, wanted))


@value
class SlotPace:
    """The pace of one slot over a run: the CPU time that its jobs used, and the CPU time that they were due."""

    slot: int
    seconds: float
    """Seconds in which the slot was measured with a job."""
    used_seconds: float
    due_seconds: float

    @property
    def fraction(self) -> float:
        """Return the fraction of its pace that the slot had; 1 if no CPU time was due."""
        return 1.0 if self.due_seconds <= 0.0 else min(1.0, self.used_seconds / self.due_seconds)

    @classmethod
    def of(cls, slot: int, periods: Sequence[Spent]) -> Self:
        """Return the pace of a slot over some periods."""
        return cls(
            slot=slot,
            seconds=sum(each.seconds for each in periods),
            used_seconds=sum(each.used_seconds for each in periods),
            due_seconds=sum(each.due_seconds for each in periods),
        )


@value
class RunPace:
    """The pace of a run's slots.

    Attributes:
        slots: the slots with a quota that had a job; empty: the slots are unpaced, and their pace is not checked.
        speed: speed of the calibrating loop over its reference, at most 1.
        loops: number of calibrating loops.
        loop_seconds: mean CPU time of a calibrating loop; None: there was none.
        asleep_seconds: time in which the whole machine was suspended or frozen.
    """

    slots: tuple[SlotPace, ...] = ()
    speed: float = 1.0
    loops: int = 0
    loop_seconds: float | None = None
    asleep_seconds: float = 0.0

    @property
    def is_paced(self) -> bool:
        """Return whether any measured slot has a quota."""
        return bool(self.slots)

    @property
    def worst(self) -> SlotPace | None:
        """Return the slot that had the least fraction of its pace; None: the slots are unpaced."""
        long = [each for each in self.slots if each.seconds >= LEAST_SECONDS]
        return min(long or self.slots, key=lambda each: each.fraction, default=None)

    @property
    def fraction(self) -> float | None:
        """Return the worst slot's fraction of its pace, times the speed of a core; None: unpaced."""
        return None if self.worst is None else self.worst.fraction * self.speed

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons as text why the run does not count; empty: it counts."""
        found: list[str] = []
        if self.fraction is not None and self.worst is not None and self.fraction < LEAST_PACE:
            found.append(
                f"slot {self.worst.slot} had {self.fraction:.1%} of its pace, but must have {LEAST_PACE:.0%}"
                f" (CPU time {self.worst.fraction:.1%}, speed of a core {self.speed:.1%})"
            )
        if self.asleep_seconds > MOST_ASLEEP_SECONDS:
            found.append(f"the machine stood still for {self.asleep_seconds:.0f} s")
        return tuple(found)

    @property
    def is_valid(self) -> bool:
        """Return whether the run counts; the pace of unpaced slots is not checked."""
        return not self.faults

    def describe(self) -> str:
        """Return one line for reports."""
        if self.faults:
            return f"invalid: {'; '.join(self.faults)}"
        if self.worst is None:
            return "unpaced: no slot had a quota, so its speed depends on its neighbours"
        return f"paced: every slot had at least {self.fraction:.1%} of its pace"

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "slots": [
                {
                    "slot": each.slot,
                    "seconds": each.seconds,
                    "used_seconds": each.used_seconds,
                    "due_seconds": each.due_seconds,
                }
                for each in self.slots
            ],
            "speed": self.speed,
            "loops": self.loops,
            "loop_seconds": self.loop_seconds,
            "asleep_seconds": self.asleep_seconds,
        }

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> Self:
        """Return the pace from a JSON object as ``to_plain`` returns it."""
        return cls(**{**given, "slots": tuple(SlotPace(**each) for each in given["slots"])})
