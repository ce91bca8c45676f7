"""Damages drawn for any file of a live run's state folder are harmless, said, or refused with a remedy."""

from pathlib import Path

import pytest
from tests.appmaster import serving_lab

from chaos.damage.__main__ import BAD
from chaos.damage.side_files import run_side_files

_floors = serving_lab.floors


@pytest.mark.slow
def test_random_damage_to_a_state_file_is_always_reported_and_never_a_crash(tmp_path: Path) -> None:
    found = list(run_side_files(tmp_path, 200, 5000, starts=2))
    assert len(found) == 200
    assert [one for one in found if one[2].end in BAD] == []
