"""A live run in which a worker, an app master and the arbiter are killed with SIGKILL at random moments.

The command for three such runs is `make kills`.
"""

import random
import secrets
from pathlib import Path

import pytest

from eunomia_testbed.kills.__main__ import share_out
from eunomia_testbed.kills.outcome import BETWEEN
from eunomia_testbed.kills.runs import kill_run
from eunomia_testbed.kills.victims import KINDS


@pytest.mark.timeout(400)
def test_whoever_is_killed_every_app_finishes_and_no_slot_has_two_holders(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    luck = random.Random(seed)
    kinds = share_out(3, 1, luck)[0]
    done = kill_run(tmp_path / "run", kinds, luck)
    assert not done.wrong, done
    assert [kill.kind for kill in done.kills] == kinds
    assert sorted(kinds) == sorted(KINDS)
    assert done.restarts >= 1  # the arbiter's
    assert sum(kill.moment != BETWEEN for kill in done.kills) >= 1


def test_kills_are_shared_out_evenly() -> None:
    runs = share_out(9, 3, random.Random(0))
    assert [sorted(kinds) for kinds in runs] == [sorted(KINDS)] * 3
    assert [len(kinds) for kinds in share_out(4, 2, random.Random(0))] == [2, 2]
