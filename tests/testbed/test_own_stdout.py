"""Standard output holds a command's result alone, whatever plugins and their libraries print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINTING = (
    "import ctypes, os, sys\n"
    "from eunomia import hookimpl\n"
    "from eunomia.contract.allocations import Allocation\n"
    "print('banner of an import')\n"
    "class Printing:\n"
    "    '''Prints in every way, and then fails.'''\n"
    "    name, api = 'printing', 1\n"
    "    @hookimpl\n"
    "    def eunomia_allocation(self, snapshot, menus, offer):\n"
    "        print('banner of Python')\n"
    "        os.write(1, b'banner of a system call\\n')\n"
    "        ctypes.CDLL(None).printf(b'banner of C\\n')\n"
    "        raise ValueError('not today')\n"
)


def eunomia(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = f"import sys; from eunomia.cli import run; sys.exit(run({arguments!r}))"
    return subprocess.run(
        [sys.executable, "-c", script], env=env, cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_a_plugin_prints_goes_to_stderr(processes: str, tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text(PRINTING)
    arguments = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=4", "--cluster", "1x8 V100", "--no-report"]
    arguments += ["--policy", "printing", "--policy", "fifo", "--plugin-path", str(tmp_path / "printing.py")]
    done = eunomia([*arguments, "--tolerate-faults", "--json", "-j", processes], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["policy"] for row in json.loads(done.stdout)["rows"]} == {"printing", "fifo"}
    for banner in ("an import", "Python", "a system call"):
        assert f"banner of {banner}\n" in done.stderr
