"""The file of measured profiles and costs: it reads back what it wrote, and refuses what is no measurement."""

from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_testbed.performance.replay_profiles import Costs, Measurements, Profiles, ProgramRate, read_measured


def measured() -> Measurements:
    rates = tuple(
        ProgramRate(program="mlp", batch_size=64, slots=slots, slot_type="cpu-0.35", iterations_per_second=rate)
        for slots, rate in ((1, 20.0), (2, 32.0), (4, 40.0))
    )
    return Measurements(
        profiles=Profiles(rates=rates, slot_speeds={"cpu-0.35": 0.35}),
        costs=Costs(start_seconds=0.4, save_seconds=0.05, restore_seconds=0.2),
        machine='paced "slots"',
        versions={"python": "3.12", "eunomia": "0.1"},
        measured_at="2026-01-02T03:04:05Z",
        program_costs={"mlp": Costs(start_seconds=0.3)},
    )


def test_a_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(measured().to_toml())
    assert read_measured(path) == measured()


def test_a_file_from_before_live_changes_has_none_of_their_costs(tmp_path: Path) -> None:
    lines = measured().to_toml().splitlines()
    kept = [line for line in lines if not line.startswith(("pause_seconds", "join_seconds"))]
    assert len(kept) == len(lines) - 4
    path = tmp_path / "profiles.toml"
    path.write_text("\n".join(kept))
    found = read_measured(path).costs
    assert (found.pause_seconds, found.join_seconds) == (0.0, 0.0)


def test_a_rate_lies_between_measured_numbers_of_slots_and_never_beyond() -> None:
    profiles = measured().profiles
    assert profiles.rate("mlp", 64, 2, "cpu-0.35") == 32.0
    assert profiles.rate("mlp", 64, 3, "cpu-0.35") == 36.0
    assert profiles.rate("mlp", 64, 8, "cpu-0.35") == 40.0
    with pytest.raises(InputError, match="none of mlp with batch size 32 on 1 x cpu"):
        profiles.rate("mlp", 32, 1, "cpu-0.35")


def test_costs_of_a_program_are_its_own_or_those_of_all() -> None:
    assert measured().costs_of("mlp").start_seconds == 0.3
    assert measured().costs_of("lstm") == measured().costs


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("replay-profiles@1", "replay-profiles@9", "schema = "),
        ("iterations_per_second = 20.0", "iterations_per_second = -1", "iterations_per_second must be above 0"),
        ("slots = 2,", "slots = 1,", "a setting must have one rate"),
        ("save_seconds = 0.05", "save_second = 0.05", "keys must be among"),
        ('"cpu-0.35" = 0.35', "gpu = 0.35", "slot_speeds must have the pace"),
        ("batch_size = 64", "batch_size = 1.5", "batch_size must be a whole number"),
        ("rates = [", "rates = 3 #", "must be"),
    ],
)
def test_a_file_with_a_mistake_is_refused(old: str, new: str, error: str, tmp_path: Path) -> None:
    text = measured().to_toml()
    assert old in text
    path = tmp_path / "profiles.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=error):
        read_measured(path)
