"""How an app's slots are divided among its jobs: pure functions, no clock, no processes.

Running jobs stay where they are. Free slots go to waiting jobs in the tuner's order, a whole gang each, to as many jobs
as possible; the rest widens the jobs that start now, since that costs nothing. Widening a running job costs a restart
and is decided separately (``extra_slots``).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from eunomia.model.shapes import value


@value
class Wish:
    """A job that the tuner wants to run now; wishes come in the tuner's order."""

    job: int
    least: int
    most: int
    runs_on: tuple[int, ...] = ()
    """GPUs on which its gang runs whole; empty: it waits."""


def divide(wishes: Sequence[Wish], free: Mapping[int, str]) -> dict[int, tuple[int, ...]]:
    """Assign GPUs to jobs.

    Args:
        wishes: jobs that the tuner wants to run, in its order.
        free: machine by GPU, of the idle slots.

    Returns:
        GPUs by job, ascending; jobs that get none are left out. No GPU is named twice.
    """
    counts = _counts([wish for wish in wishes if not wish.runs_on], len(free))
    divided = {wish.job: tuple(sorted(wish.runs_on)) for wish in wishes if wish.runs_on}
    left = dict(free)
    for job, count in sorted(counts.items(), key=lambda item: -item[1]):
        divided[job] = _pick(left, count)
        for gpu in divided[job]:
            del left[gpu]
    return divided


def _counts(waiting: Sequence[Wish], free: int) -> dict[int, int]:
    """Returns the number of GPUs by waiting job: the least of as many jobs as fit, then one more each in turn."""
    counts: dict[int, int] = {}
    for wish in waiting:
        if wish.least <= free:
            counts[wish.job] = wish.least
            free -= wish.least
    growing = [wish for wish in waiting if wish.job in counts and counts[wish.job] < wish.most]
    while free and growing:
        for wish in growing[:free]:
            counts[wish.job] += 1
            free -= 1
        growing = [wish for wish in growing if counts[wish.job] < wish.most]
    return counts


def _pick(free: Mapping[int, str], count: int) -> tuple[int, ...]:
    """Return that many free GPUs on as few machines as can be: the fullest that holds all, else the emptiest first."""
    machines: dict[str, list[int]] = defaultdict(list)
    for gpu in sorted(free):
        machines[free[gpu]].append(gpu)
    whole = [gpus for gpus in machines.values() if len(gpus) >= count]
    if whole:
        return tuple(min(whole, key=lambda gpus: (len(gpus), gpus))[:count])
    picked: list[int] = []
    for gpus in sorted(machines.values(), key=lambda gpus: (-len(gpus), gpus)):
        picked += gpus[: count - len(picked)]
    return tuple(sorted(picked))


def unused(free: Iterable[int], divided: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the free GPUs that no job got."""
    taken = {gpu for gpus in divided.values() for gpu in gpus}
    return tuple(sorted(set(free) - taken))


def extra_slots(*, size: int, most: int, free: int, seconds_left: float, restart_seconds: float) -> int:
    """Return by how many slots a running job should be widened, 0 if that does not pay.

    It pays where the time saved, at linear speedup, is more than twice what the restart costs.

    Args:
        size: slots that it runs on.
        most: slots that are of use to it.
        free: slots that no other job can use.
        seconds_left: until it pauses or ends, or its lease does, as it runs now.
        restart_seconds: what saving, stopping and starting again costs.
    """
    extra = min(most - size, free)
    if extra <= 0:
        return 0
    saved = seconds_left * extra / (size + extra)
    return extra if saved > 2.0 * restart_seconds else 0
