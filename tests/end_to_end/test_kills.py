"""A live run in which a worker, an app master and the arbiter are killed with SIGKILL at random moments.

The command for three such runs is `make kills`.
"""

import random
import secrets
from collections import Counter
from pathlib import Path

import pytest

from chaos.kills.__main__ import share_out, spread
from chaos.kills.runs import kill_run
from chaos.kills.victims import KINDS

MORE_RUNS = 3
"""How many runs may follow for kills that came after the end of every app."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_app_finishes_after_any_kill_and_no_slot_has_two_holders(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    luck = random.Random(seed)
    left = kinds = share_out(3, 1, luck)[0]
    killed: list[str] = []
    for number in range(1 + MORE_RUNS):
        done = kill_run(tmp_path / str(number), left, luck)
        # An arbiter, a master or a worker that did not come back would leave an app unfinished.
        assert not done.wrong, done
        assert Counter([*(kill.kind for kill in done.kills), *done.left]) == Counter(left)
        killed += [kill.kind for kill in done.kills]
        left = list(done.left)
        if not left:
            break
    assert sorted(killed) == sorted(kinds) == sorted(KINDS)  # in any order: a kind waits while none of it lives


def test_kills_that_do_not_fit_into_one_run_are_added_to_the_next_runs() -> None:
    assert spread(["a", "b", "c"], [["x"], ["y"]]) == [["x", "a", "c"], ["y", "b"]]
    assert spread(["a", "b"], []) == [["a", "b"]]
    assert spread([], [["x"]]) == [["x"]]
    assert spread([], []) == []


def test_kills_are_divided_evenly_among_runs() -> None:
    runs = share_out(9, 3, random.Random(0))
    assert [sorted(kinds) for kinds in runs] == [sorted(KINDS)] * 3
    assert [len(kinds) for kinds in share_out(4, 2, random.Random(0))] == [2, 2]
