"""A storm of thirty actions on a live run: each kind of process killed, ended, stopped, alone and together."""

import secrets
from pathlib import Path

import pytest

from chaos.storms.plan import LONG_STOP_SECONDS, SHEPHERD, WORKER, Action, Scope, Way, plan
from chaos.storms.runs import storm_run


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_after_thirty_disruptions_all_apps_finish_and_no_slot_has_two_holders(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    done = storm_run(tmp_path / "run", list(plan(30, seed)), busy=False, seed=seed, tell=print)
    assert (done.wrong, done.findings) == ([], [])
    assert set(done.states.values()) == {"finished"}
    assert len({hit.action for hit in done.hits}) >= 25  # an action whose processes do not live may hit none


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "ended"), [(WORKER, 1), (SHEPHERD, 0)])
def test_a_worker_stopped_for_90_seconds_is_restarted_and_a_shepherd_is_not(
    tmp_path: Path, kind: str, ended: int
) -> None:
    action = Action(
        number=1, scope=Scope.ONE, kinds=(kind,), ways=(Way.LONG_STOP,), seconds=LONG_STOP_SECONDS, pause=1.0
    )
    done = storm_run(tmp_path / "run", [action], busy=False, seed=3, policy="fifo", tell=print)
    assert (done.wrong, done.findings) == ([], [])
    assert set(done.states.values()) == {"finished"}, "its retries are for its script's own failures"
    assert [hit.kind for hit in done.hits] == [kind]
    assert done.stalls == {"worker": ended, "app master": 0, "launcher": 0}
