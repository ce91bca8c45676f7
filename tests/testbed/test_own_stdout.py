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
def test_output_printed_by_a_plugin_goes_to_stderr(processes: str, tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text(PRINTING)
    arguments = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=4", "--cluster", "1x8 V100", "--no-report"]
    arguments += ["--policy", "printing", "--policy", "fifo", "--plugin-path", str(tmp_path / "printing.py")]
    done = eunomia([*arguments, "--tolerate-faults", "--json", "-j", processes], tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["policy"] for row in json.loads(done.stdout)["rows"]} == {"printing", "fifo"}
    for banner in ("an import", "Python", "a system call"):
        assert f"banner of {banner}\n" in done.stderr


CHANGES = {
    "import ctypes": "from eunomia_plugins.allocations.ordered import Ordered\nimport ctypes",
    "class Printing:": "class Printing(Ordered):",
    "menus, offer):": "menus, offer, valuations):",
    "raise ValueError('not today')": "return super().eunomia_allocation(snapshot, menus, offer, valuations)",
}
ORDERED = PRINTING
for old, new in CHANGES.items():
    ORDERED = ORDERED.replace(old, new)
JOBS = "".join(f"j{row},{row},1,10,1\n" for row in range(5))


@pytest.mark.parametrize(
    "arguments",
    [
        ["advise", "own.csv", "--cluster", "1x8 V100", "--policy", "printing", "--policy", "fifo", "--out", "advice"],
        ["audit", "printing", "--instances", "2"],
        ["plugins"],
        ["compare", "run:printing", "run:fifo"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_with_json_each_command_prints_only_its_result_on_stdout(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "printing.py").write_text(ORDERED)
    (tmp_path / "own.csv").write_text("job,arrival_seconds,most_gpus,iterations,seconds_per_iteration\n" + JOBS)
    flags = ["--plugin-path", "printing.py", "--json"]
    if arguments[0] == "compare":
        given = ["simulate", "own.csv", "--cluster", "1x8 V100", "--policy", "printing", "--policy", "fifo"]
        assert eunomia([*given, *flags, "--seeds", "0-1", "--out", "run"], tmp_path).returncode == 0
    done = eunomia([*arguments, *flags], tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert ("banner of an import" in done.stderr) == (arguments[0] != "compare")  # which reads and runs nothing
