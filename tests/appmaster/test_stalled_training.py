"""Training scripts that hang, with torch: in a backward pass, and a gang whose rank 1 stops in an all-reduce."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.job_output import master_output
from tests.appmaster.serving_lab import activity, eventually, supervisor
from tests.appmaster.test_stalls import QUICK, STALL_AFTER, stacks

from eunomia_appmaster import Client
from eunomia_appmaster.node.supervisor import Supervisor

_floors = serving_lab.floors
SCRIPT = Path(__file__).with_name("hanging_script.py")


def hanging_app(folder: Path, more: str, *, slots: int, retries: int) -> Path:
    shutil.copy(SCRIPT, folder / "train.py")
    file = folder / "hang.toml"
    job = f'slots = {slots}\nmax_iterations = 60\nretries = {retries}\ncheckpoint_every = "1s"\n'
    job += f'stall_after = "{STALL_AFTER}"\n'
    file.write_text(f'[app]\nname = "hang"\n[job]\ncommand = "{sys.executable} train.py {more}"\n{job}')
    return file


def went_on_after(made: Supervisor, arbiter: Client, file: Path) -> tuple[str, str]:
    """Run the app to its end; the stall's words, and the stacks. Prints the seconds for those who measure."""
    app = arbiter.submit(file)
    stalled = eventually(lambda: arbiter.app("hang").standing.last_stall, "the stall")
    seen_at = time.monotonic()
    eventually(lambda: [line["event"] for line in activity(made, "hang")].count("start") == 2, "the next incarnation")
    print(f"{stalled!r}: started again {time.monotonic() - seen_at:.1f} s later")
    assert app.wait("120s").state == "finished"
    return stalled, stacks(made, "hang")


@pytest.mark.slow
def test_a_worker_that_hangs_in_backward_is_killed_with_its_stack_traces(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        file = hanging_app(tmp_path, "--sleep-in-backward 20", slots=1, retries=1)
        stalled, found = went_on_after(made, arbiter, file)
        assert "in a step (limit 5s)" in stalled
        assert "in backward" in found


@pytest.mark.slow  # it mostly waits
def test_a_gang_whose_rank_1_hangs_in_an_all_reduce_is_killed_and_resumes(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path, launcher_options=QUICK) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        file = hanging_app(
            tmp_path, "--stop-rank-1 20", slots=2, retries=0
        )  # a peer's stop is no failure of the script
        stalled, found = went_on_after(made, arbiter, file)
        assert "in a step (limit 5s)" in stalled
        assert found.count("== process") >= 2
        assert "worker 1 was stopped" in master_output(made.state_dir / "apps" / "hang")
        assert (tmp_path / "done-1").read_text() == "60"


@pytest.mark.slow
def test_without_an_option_the_limit_of_a_step_is_a_minute(tmp_path: Path) -> None:
    with (
        supervisor(tmp_path) as made,
        Client(made.address, token_file=made.token_file) as arbiter,
    ):
        file = hanging_app(tmp_path, "--sleep-in-backward 20", slots=1, retries=1)
        file.write_text(file.read_text().replace(f'stall_after = "{STALL_AFTER}"\n', ""))
        began = time.monotonic()
        stalled, _ = went_on_after(made, arbiter, file)
        print(f"{time.monotonic() - began:.1f} s in all")
        assert "(limit 1m)" in stalled
