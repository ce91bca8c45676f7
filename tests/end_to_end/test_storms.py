"""A storm of thirty actions on a live run: each kind of process killed, ended, stopped, alone and together."""

import secrets
from pathlib import Path

import pytest

from chaos.storms.plan import plan
from chaos.storms.runs import storm_run


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thirty_actions_lose_no_app_hold_no_slot_twice_and_leave_no_process(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    done = storm_run(tmp_path / "run", list(plan(30, seed)), busy=False, seed=seed, tell=print)
    assert (done.wrong, done.findings) == ([], [])
    assert set(done.states.values()) == {"finished"}
    assert len({hit.action for hit in done.hits}) >= 25  # an action whose processes do not live may hit none
