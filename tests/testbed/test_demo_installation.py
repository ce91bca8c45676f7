"""The demo's scripts run in the installation of the command, not in the environment that the shell has activated."""

import os
import shutil
import sys
from pathlib import Path

from eunomia_testbed.live_runs.this_machine import run_in_this_installation


def test_demo_scripts_run_with_the_python_of_the_command_despite_another_environment(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    env = {"PATH": str(other.parent), "VIRTUAL_ENV": str(tmp_path)}
    run_in_this_installation(env)
    found = shutil.which("python", path=env["PATH"])
    assert found is not None
    assert Path(found).parent == Path(sys.executable).parent
    assert env["PATH"].split(os.pathsep)[-1] == str(other.parent)
    assert env.get("VIRTUAL_ENV") == (None if sys.prefix == sys.base_prefix else sys.prefix)
