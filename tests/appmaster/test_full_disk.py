"""A worker whose output and logs the disk refuses trains on; a file-size limit stands for the full disk."""

import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
PRINTS = (
    "import sys, os\n"
    "from eunomia_appmaster.node.lenient_output import be_lenient\n"
    "{lenient}"
    "for number in range(10000): print('line', number); print('careful', number, file=sys.stderr)\n"
    "sys.stdout.flush(); os.mkdir('ended')\n"
)


@pytest.mark.parametrize("flags", [[], ["-u"]])
@pytest.mark.parametrize("lenient", [True, False])
def test_output_that_does_not_fit_on_a_full_disk_is_dropped(tmp_path: Path, flags: list[str], lenient: bool) -> None:
    script = LIMIT + PRINTS.format(lenient="be_lenient()\n" if lenient else "")
    with (tmp_path / "stdout.log").open("w") as out, (tmp_path / "stderr.log").open("w") as errors:
        done = subprocess.run(
            [sys.executable, *flags, "-c", script], stdout=out, stderr=errors, cwd=tmp_path, check=False
        )
    assert (done.returncode == 0) is lenient and (tmp_path / "ended").exists() is lenient
    assert (tmp_path / "stdout.log").read_text().startswith("line 0\nline 1\n")
    assert (tmp_path / "stdout.log").stat().st_size <= 4096


@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_workers_that_share_an_output_file_write_whole_lines(tmp_path: Path, flags: list[str]) -> None:
    script = (
        "import sys\n"
        "from eunomia_appmaster.node.lenient_output import be_lenient\n"
        "be_lenient()\n"
        "for number in range(3000): print('rank', 'at', 'step', number, flush=True)\n"
    )
    with (tmp_path / "stdout.log").open("a") as out:
        workers = [subprocess.Popen([sys.executable, *flags, "-c", script], stdout=out) for _ in range(2)]
        assert [worker.wait(60) for worker in workers] == [0, 0]
    lines = (tmp_path / "stdout.log").read_text().splitlines()
    assert sorted(lines) == sorted(2 * [f"rank at step {number}" for number in range(3000)])


def test_scalars_that_cannot_be_written_do_not_stop_training_and_logging_resumes_later(tmp_path: Path) -> None:
    script = (
        "import resource, time\n"
        "from pathlib import Path\n"
        "from eunomia_appmaster.training import logbook\n"
        "logbook.PAUSE_SECONDS = 0.5\n"
        "book = logbook.Logbook(Path('logs'), suffix='', active=True)\n"
        "book.write({'loss': 0.0}, 0); book.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "for step in range(1, 2000): book.write({'loss': 1.0}, step); book.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "time.sleep(1.0); book.write({'loss': 2.0}, 5000); book.close(); print('trained')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
    )
    assert done.stdout.endswith("trained\n") and "logs.refused" in done.stdout + done.stderr
    from eunomia_appmaster.profiler import LogFolder

    folder = LogFolder(tmp_path / "logs")
    folder.poll()
    steps = folder.series("loss").step.tolist()
    assert steps[0] == 0 and steps[-1] == 5000
