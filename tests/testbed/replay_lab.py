"""A trace, profiles and flags for tests of replays."""

import itertools
from pathlib import Path

from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles, ProgramRate
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.measuring.machine import machine_words, present_versions
from eunomia_testbed.workloads.programs import PROGRAMS

HEADER = "job,user,arrival_seconds,most_gpus,iterations,seconds_per_iteration,model,batch_size"
JOBS = tuple(
    f"job{number},u{number % 2},{number * 200},{2 if number in (2, 5) else 1},{600 + 200 * (number % 3)},1.0,A3C,64"
    for number in range(10)
)
"""Ten jobs of 600 to 1,000 seconds, two of them gangs of two, which arrive in half an hour."""


def write_trace(folder: Path, jobs: tuple[str, ...] = JOBS) -> Path:
    """Write a trace in Eunomia's format."""
    path = folder / "trace.csv"
    path.write_text("\n".join([HEADER, *jobs, ""]))
    return path


def measurements(*types: str, rate: float = 10.0, costs: Costs | None = None) -> Measurements:
    """Return rates of every program at usual batch sizes, twice as fast on two slots, the same on each type."""
    sizes = itertools.product(PROGRAMS, (64, 128), (1, 2, 4), types)
    rates = tuple(
        ProgramRate(
            program=program.name,
            batch_size=batch,
            slots=slots,
            slot_type=kind,
            iterations_per_second=rate * (1.0, 1.6, 2.0)[slots // 2],
        )
        for program, batch, slots, kind in sizes
    )
    return Measurements(
        profiles=Profiles(rates=rates, slot_speeds=dict.fromkeys(types, 0.0)),
        costs=costs or Costs(start_seconds=0.5, save_seconds=0.1, restore_seconds=0.1),
        machine=machine_words(),
        versions=present_versions(),
        measured_at="2026-01-02T03:04:05Z",
        program_costs={},
    )


def flags_of(folder: Path, **more: object) -> ReplayFlags:
    """Return flags of a replay of the trace on four slots without a pace, with profiles."""
    profiles = folder / "profiles.toml"
    if not profiles.exists():
        profiles.write_text(measurements("cpu", "cpu-0.2", "fast", "slow").to_toml())
    given: dict[str, object] = {
        "trace": str(folder / "trace.csv"),
        "policies": ["default"],
        "slots": "4x cpu",
        "speed": "100x",
        "budget": "2m",
        "profiles": profiles,
    }
    return ReplayFlags(**given | more)  # type: ignore[arg-type]
