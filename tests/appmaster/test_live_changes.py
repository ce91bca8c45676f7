"""Jobs that change their size live: a real launcher and app master, workers that speak the words of live changes."""

from pathlib import Path
from typing import Any

import pytest
from tests.appmaster.master_lab import MasterLab, eventually, master_lab

from eunomia_appmaster.app import app_file

pytestmark = pytest.mark.skipif(not app_file.LIVE_CHANGES, reason="no live changes in this version")
FILE = """
[app]
name = "live"
[job]
command = "python live_script.py {options}"
slots = {{ min = 1, max = 3 }}
max_iterations = 1000000
elastic = "live"
"""


def _submit(lab: MasterLab, options: str = "") -> Path:
    (lab.folder / "live_script.py").write_bytes((Path(__file__).parent / "live_script.py").read_bytes())
    return lab.submit("live", FILE.format(options=options))


def _traces(app_dir: Path) -> dict[str, list[str]]:
    """Lines of each worker's trace, by container."""
    files = sorted((app_dir / "1").glob("trace.*"))
    return {path.name.removeprefix("trace."): path.read_text().splitlines() for path in files}


def _entered(app_dir: Path, container: str, words: str) -> None:
    eventually(lambda: f"entered {words}" in _traces(app_dir).get(container, []), f"{container} enters {words}")


def _starts(lab: MasterLab) -> int:
    return len(lab.activity("live", "start"))


def _sizes(lab: MasterLab) -> list[int]:
    return [len(line["slots"]) for line in lab.activity("live", "resized")]


def _live(lab: MasterLab, container: str) -> Any:
    return lab.status(container, "live").live


def test_a_job_grows_and_shrinks_without_a_new_incarnation(tmp_path: Path) -> None:
    with master_lab(tmp_path) as lab:
        app_dir = _submit(lab)
        lab.arbiter.grant("live", 1, 0, job="live/1")
        eventually(lambda: lab.activity("live", "running"), "first step")
        lab.arbiter.grant("live", 1, 0, 1, job="live/1")
        _entered(app_dir, "live.1.1.1", "1 live.1.1.0 live.1.1.1")
        eventually(lambda: _sizes(lab) == [2], "resized")
        lab.arbiter.revoke("live", 1, 0)
        eventually(lambda: "leaving 2" in _traces(app_dir)["live.1.1.0"], "the old rank 0 leaves")
        _entered(app_dir, "live.1.1.1", "2 live.1.1.1")
        eventually(lambda: _sizes(lab) == [2, 1], "resized")
        lab.arbiter.free(0)
        assert _starts(lab) == 1
        assert not lab.status("live.1.1.0", "live").killed
