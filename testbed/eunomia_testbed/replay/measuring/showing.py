"""Shows measured rates and costs as text."""

from __future__ import annotations

from eunomia_testbed.performance.replay_profiles import Measurements
from eunomia_testbed.replay.measuring.reading import Cost


def measured_lines(measured: Measurements) -> list[str]:
    """Return lines with the rates by program, batch size and slot type, the costs, and the slots' pace."""
    profiles = measured.profiles
    settings = dict.fromkeys((rate.program, rate.batch_size, rate.slot_type) for rate in profiles.rates)
    lines = []
    for program, batch_size, slot_type in settings:
        points = sorted(profiles.points(program, batch_size, slot_type).items())
        rates = ", ".join(f"{rate:.3g} on {slots}" for slots, rate in points)
        lines.append(f"{program}, batch size {batch_size}, {slot_type}: iterations per second {rates}")
    spreads = {each.cost: each for each in measured.spreads if not each.program}
    for cost in Cost:
        found = spreads.get(cost.value)
        if found is not None:
            times = f"median {found.median_seconds:.3g} s, p95 {found.p95_seconds:.3g} s"
            lines.append(f"{cost.value}: {times}, {found.samples} sample{'s' * (found.samples != 1)}")
    start, by_exec = (spreads.get(cost.value) for cost in (Cost.START, Cost.EXEC_START))
    if start is not None and by_exec is not None and start.median_seconds > 0.0:
        lines.append(f"a start by exec takes {by_exec.median_seconds / start.median_seconds:.0f} times as long")
    if measured.pace is not None:
        lines.append(f"every slot had at least {measured.pace:.1%} of its pace")
    return lines
