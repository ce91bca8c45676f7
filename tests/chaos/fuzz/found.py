"""What hostile messages did, and what they cost."""

import resource

import psutil

from eunomia.model.shapes import value


@value
class Found:
    """What a part of the messages did."""

    part: str
    messages: int
    seconds: float
    cpu_seconds: float
    codes: dict[str, int]
    kinds: dict[str, int]
    """How the messages were made, and how many went over a real connection."""
    faults: tuple[str, ...]
    """Unexpected exceptions, and rounds that a plugin failed."""
    witness_changed: int
    rss_mib: tuple[float, ...]
    """Of the process, at the beginning and after each quarter."""
    steps: int


def cpu_seconds() -> float:
    """CPU time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mib() -> float:
    """Memory of this process."""
    return float(psutil.Process().memory_info().rss) / 2**20
