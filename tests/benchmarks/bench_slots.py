"""Shares of paced slots and half cores, what a neighbour loses, and daemons that outlive their slot, by kind of groups.

    python tests/benchmarks/bench_slots.py [--seconds 5] [--repeats 3] [--daemons 20]

Shares are CPU seconds over wall seconds of busy processes in control groups with a quota, two slots at a time. A
neighbour is a busy slot measured alone and beside a slot that runs eight busy processes at the same quota, in turns. On
a machine that others use at the same time the wall clock is theirs too: `--own-cores` raises the priority of what is
measured. Daemons kill their shepherd, leave its session and empty their environment, as many as asked for, on real
launchers; counted are those that still run when their slot is reported as free.
"""

import argparse
import contextlib
import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia_appmaster.node.control_groups import ControlGroup, ControlGroups, GroupLimits, choose

APPMASTER = Path(__file__).parent.parent / "appmaster"
BUSY = "while True: pass"
PACES = ((1.0, 0.5), (0.5, 0.5), (0.35, 0.25), (0.25, 0.1))
KINDS = ("v2", "kill", "v1", "none")


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--seconds", type=float, default=5.0, help="of one measurement")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--daemons", type=int, default=20)
    options.add_argument("--own-cores", action="store_true", help="raise the priority of what is measured")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        groups = choose(Path(folder))
        print(groups.describe())
        try:
            if "cpu" in groups.controllers:
                _shares(groups, given)
                _neighbours(groups, given)
        finally:
            groups.close()
    for kind in KINDS:
        _daemons(kind, given.daemons)


def _shares(groups: ControlGroups, given: argparse.Namespace) -> None:
    for paces in PACES:
        got: list[list[float]] = [[] for _ in paces]
        for _ in range(given.repeats):
            with _busy(groups, [(pace, 1) for pace in paces], own=given.own_cores) as slots:
                for number, share in enumerate(_measured(slots, given.seconds)):
                    got[number].append(share)
        for pace, shares in zip(paces, got, strict=True):
            middle = statistics.median(shares)
            print(
                f"pace {pace:4.2f} beside {sum(paces) - pace:4.2f}: share {middle:.4f}, off by {middle / pace - 1:+.1%}"
            )


def _neighbours(groups: ControlGroups, given: argparse.Namespace) -> None:
    for pace in (0.5, 0.25):
        losses = []
        for _ in range(given.repeats):
            with _busy(groups, [(pace, 1)], own=given.own_cores) as slots:
                alone = _measured(slots, given.seconds)[0]
            with _busy(groups, [(pace, 1), (pace, 8)], own=given.own_cores) as slots:
                beside, hog = _measured(slots, given.seconds)
            losses.append(1 - beside / alone)
        middle = statistics.median(losses)
        print(f"pace {pace:4.2f} beside eight busy processes at the same pace ({hog:.3f}): loses {middle:.1%}")


@contextlib.contextmanager
def _busy(groups: ControlGroups, slots: list[tuple[float, int]], *, own: bool) -> Iterator[list[ControlGroup]]:
    """Run so many busy processes in a group of each pace."""
    made, processes = [], []
    try:
        for number, (pace, count) in enumerate(slots):
            group = groups.make(f"slot@{number}", GroupLimits(cpus=pace))
            made.append(group)
            join = "".join(f"echo 0 > '{file}'; " for file in group.join_files)
            command = f"{join} exec {sys.executable} -c '{BUSY}'"
            processes += [subprocess.Popen(["/bin/sh", "-c", command]) for _ in range(count)]
        if own:
            for process in processes:
                os.setpriority(os.PRIO_PROCESS, process.pid, -15)
        time.sleep(1.0)
        yield made
    finally:
        for group in made:
            group.kill()
        for process in processes:
            process.wait()
        for group in made:
            group.remove()


def _measured(slots: list[ControlGroup], seconds: float) -> list[float]:
    began, before = time.monotonic(), [_cpu_seconds(group) for group in slots]
    time.sleep(seconds)
    after, elapsed = [_cpu_seconds(group) for group in slots], time.monotonic() - began
    return [(late - early) / elapsed for early, late in zip(before, after, strict=True)]


def _cpu_seconds(group: ControlGroup) -> float:
    """Return the CPU seconds of the group's processes, to the nanosecond."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in group.processes()) / 1e9


def _daemons(kind: str, count: int) -> None:
    sys.path.insert(0, str(APPMASTER))
    lab, enforced = _module("launcher_lab"), _module("test_slot_enforced")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            choose(folder / "state", kind).close()
        except InputError as error:
            print(f"{kind}: {error}")
            return
        left = 0
        with lab.lab(folder, "--control-groups", kind) as made:
            for number in range(1, count + 1):
                (folder / "pid").unlink(missing_ok=True)
                made.runtime().start(made.gang(1, script=enforced.SHEPHERD_KILLER, epoch=number, job=number))
                lab.eventually((folder / "pid").exists)
                made.completed(f"ana-{number}.r1.1")
                daemon = int((folder / "pid").read_text())
                left += lab.alive(daemon)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(daemon, signal.SIGKILL)
        print(f"{kind}: {left} of {count} daemons outlived their slot")


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, APPMASTER / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    made = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(made)
    return made


if __name__ == "__main__":
    main()
