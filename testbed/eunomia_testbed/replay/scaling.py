"""Scales a trace and policies down to this machine: times, gangs and the cluster, each by a recorded factor."""

import math
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.units import format_duration, parse_duration

KEPT: Final = frozenset({"rounds.settle", "rounds.bid_deadline", "rounds.suspend_grace"})
"""Times of a profile that limit messages and processes of the real run, and so are not scaled."""
SOLVER_TIME: Final = "seconds"
"""Name of options that limit a solver's computing time, which is not scaled."""
SERVICE: Final = "queues"
"""Name of options that are lists of GPU seconds."""
LEAST_SECONDS: Final = 0.5
"""Shortest lease or round to which a time of a profile is scaled."""


@value
class Factors:
    """The ratios of a trace to its replay in time, gang size and cluster size."""

    time: float
    """Seconds of the trace per second of the replay; arrivals, lengths, leases and rounds are divided by this."""
    gangs: int = 1
    """Number of the trace's GPUs that one slot of a gang represents; gangs are rounded up."""
    cluster: float | None = None
    """GPUs of the trace's cluster for each slot; None: the trace's cluster is not given."""

    def seconds(self, of_trace: float) -> float:
        """Return the replay's time in seconds for a time of the trace."""
        return of_trace / self.time

    def gang(self, of_trace: int) -> int:
        """Return the replay's gang size in slots for a gang size of the trace in GPUs."""
        return max(1, math.ceil(of_trace / self.gangs))

    def words(self) -> str:
        """Return the factors as text."""
        parts = [f"time 1:{self.time:g}", f"gangs 1:{self.gangs}"]
        return ", ".join(parts + ([] if self.cluster is None else [f"cluster 1:{self.cluster:g}"]))


@value
class ScaledProfile:
    """A profile with scaled times, and its changes as text."""

    profile: Profile
    changes: tuple[str, ...]


def speed_of(text: str, *, place: str = "--speed") -> float:
    """Return the factor of a speed such as ``200x``.

    Raises:
        InputError: the text is not a number of at least 1 followed by an x.
    """
    number = text.strip().removesuffix("x")
    try:
        speed = float(number) if text.strip().endswith("x") else math.nan
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed >= 1.0):
        raise InputError("speed must be a number of at least 1 and an x, such as 200x", value=f'"{text}"', place=place)
    return speed


def scaled_profile(profile: Profile, factors: Factors) -> ScaledProfile:
    """Return a profile with its times divided by the factor of time.

    All durations of ``[rounds]`` and of plugins, and GPU-seconds of service, are divided; times that limit messages,
    processes and solvers are not.

    Raises:
        InputErrors: a plugin rejects its scaled options.
    """
    settings = _scaled_settings(profile, factors)
    changes = tuple(f"{key} {_shown(_at(profile, key))} -> {_shown(scaled)}" for key, scaled in settings.items())
    return ScaledProfile(profile=profile.replace(settings=settings), changes=changes)


def unscaled_profile(profile: Profile, factors: Factors) -> ScaledProfile:
    """Return the profile of an arbiter that runs, whose times stay, with the times that would be scaled as text."""
    settings = {} if factors.time == 1.0 else _scaled_settings(profile, factors)
    stay = (f"{key} stays {_shown(_at(profile, key))} (scaled: {_shown(scaled)})" for key, scaled in settings.items())
    return ScaledProfile(profile=profile, changes=tuple(stay))


def _scaled_settings(profile: Profile, factors: Factors) -> dict[str, object]:
    """Return the keys whose values differ if they are scaled, with the scaled values."""
    settings: dict[str, object] = {}
    for key, given in _leaves(tomllib.loads(profile.resolved())):
        scaled = _scaled(key, given, factors)
        if scaled is not None and scaled != given:
            settings[key] = scaled
    return settings


def _scaled(key: str, given: object, factors: Factors) -> object | None:
    """Return the scaled value of a key; None: the key is not to be scaled."""
    name = key.rpartition(".")[2]
    if key in KEPT or name == SOLVER_TIME or not key.startswith(("rounds.", "plugins.")):
        return None
    if name == SERVICE and isinstance(given, list):
        return [float(each) / factors.time for each in given]
    seconds = _seconds(given)
    if seconds is None or seconds == 0.0:
        return None
    return f"{max(LEAST_SECONDS, factors.seconds(seconds)) * 1000:.0f}ms"


def _seconds(given: object) -> float | None:
    if not isinstance(given, str):
        return None
    try:
        return parse_duration(given, name="time", zero=True)
    except InputError:
        return None


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    for key, item in tree.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, f"{path}{key}.")
        else:
            yield f"{path}{key}", item


def _at(profile: Profile, key: str) -> object:
    return dict(_leaves(tomllib.loads(profile.resolved())))[key]


def _shown(given: object) -> str:
    seconds = _seconds(given)
    return str(given) if seconds is None else format_duration(seconds)
