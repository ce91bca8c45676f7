"""Counts the modules and functions of Eunomia that the median round enters, under FIFO and under Themis.

``python tests/benchmarks/round_trace.py`` simulates generated jobs with the code of this checkout, traces every call
within a step of the arbiter (``sys.setprofile``) and prints, for the rounds that start, stop or resize a job, the
median number of modules and of functions entered. A generator expression or comprehension counts with the function
around it.
"""

import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from eunomia.cli import run
from eunomia.contract.decisions import Decision
from eunomia.contract.events import Event
from eunomia.round.arbiter import Arbiter
from eunomia.units import Seconds

ROOT: Final = Path(__file__).resolve().parents[2]
FLOORS: Final = tuple(str(ROOT / floor) for floor in ("core", "plugins", "appmaster", "hpo_adapters", "testbed"))
RUNS: Final = {
    "fifo": "--workload gavel --set gavel.jobs=300 --set gavel.interarrival=200s --cluster 8x8V100",
    "themis": "--workload themis1 --set themis1.apps=8 --cluster 6x4V100",
}


def entered(step: Any, arbiter: Arbiter, now: Seconds, events: Iterable[Event]) -> tuple[Decision, set[CodeType]]:
    """Makes a step; returns its decision and the code of every function of Eunomia that was entered."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        decision = step(arbiter, now, events)
    finally:
        sys.setprofile(None)
    return decision, {code for code in seen if code.co_filename.startswith(FLOORS) and code.co_name[0] != "<"}


def traced(policy: str, arguments: str) -> tuple[int, float, float]:
    """Simulates; returns how many rounds changed a lease, and the median modules and functions entered in one."""
    modules: list[int] = []
    functions: list[int] = []
    step = Arbiter.step

    def watched(self: Arbiter, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        decision, codes = entered(step, self, now, events)
        if decision.transitions:
            functions.append(len(codes))
            modules.append(len({code.co_filename for code in codes}))
        return decision

    Arbiter.step = watched  # type: ignore[method-assign]
    words = [word.replace("V100", " V100") for word in arguments.split()]
    try:
        with tempfile.TemporaryDirectory() as folder:
            out = ["--out", f"{folder}/out", "--no-report", "--no-progress", "-q", "-j", "1"]
            if run(["simulate", *words, "--policy", policy, *out]) != 0:
                raise SystemExit(f"the simulation of {policy} failed")
    finally:
        Arbiter.step = step  # type: ignore[method-assign]
    return len(functions), statistics.median(modules), statistics.median(functions)


if __name__ == "__main__":
    for name, command in RUNS.items():
        rounds, files, called = traced(name, command)
        sys.stdout.write(
            f"{name:8}{rounds:7} rounds: the median round enters {files:g} modules, {called:g} functions\n"
        )
