"""What is sampled of a service: memory, descriptors and threads of its lasting processes, folders, processes."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.storms.targets import of_folder
from eunomia_appmaster.launcher.processes import ProcessId, identify, with_descendants

SAMPLE_SECONDS: Final = 10.0
SAMPLES: Final = 40
"""At least, also of a short run."""
KIB, MIB = 1024, float(1 << 20)
CONTROL_GROUPS = Path("/sys/fs/cgroup")


class Samples:
    """The values of each figure, with their times in seconds."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))

    def add(self, at: float, found: Mapping[str, float]) -> None:
        """Take the values at a time."""
        for name, each in found.items():
            self.by_name[name][0].append(at)
            self.by_name[name][1].append(each)


def of_tree(root: int) -> dict[str, ProcessId]:
    """Return arbiter, launcher and zygote among the descendants of a process."""
    found: dict[str, ProcessId] = {}
    for pid in with_descendants([root]):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        name = next((each for each in ("arbiter", "launcher", "zygote") if title.startswith(f"eunomia: {each}")), None)
        process = identify(pid)
        if name is not None and process is not None:
            found[name] = process
    return found


def of_process(name: str, process: ProcessId) -> dict[str, float]:
    """Return private memory (MiB), descriptors and threads of a process; empty: it has ended."""
    base = Path(f"/proc/{process.pid}")
    try:
        lines = (base / "smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith(("Private_", "Swap:")))
        return {
            f"{name}: memory, MiB": private * KIB / MIB,
            f"{name}: descriptors": len(os.listdir(base / "fd")),  # noqa: PTH208 - names only
            f"{name}: threads": len(os.listdir(base / "task")),  # noqa: PTH208
        }
    except (OSError, ValueError):
        return {}


def of_machine(state: Path) -> dict[str, float]:
    """Return folders of a state folder and control groups, and processes that name the folder."""
    group = f"eunomia-{hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]}"
    return {
        "folders of the state": _folders(state),
        "folders of control groups": sum(map(_folders, _groups(group))),
        "processes": len(of_folder(state)),
    }


def _groups(name: str) -> list[Path]:
    """Return the control groups of a name, in each hierarchy; those that vanish meanwhile are left out."""
    return [Path(at, name) for at, folders, _ in os.walk(CONTROL_GROUPS) if name in folders]


def _folders(top: Path) -> int:
    """Return the number of folders below one; those that vanish meanwhile are left out."""
    return sum(len(folders) for _, folders, _ in os.walk(top))
