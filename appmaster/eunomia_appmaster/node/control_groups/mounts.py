"""Finds where the hierarchies of control groups are mounted, and this process's group in each."""

import re
from dataclasses import dataclass
from pathlib import Path

from eunomia_appmaster.node.control_groups.folders import read

UNIFIED = "unified"


@dataclass(frozen=True, slots=True)
class Trees:
    """Folders of this process's group in each hierarchy, by controller (version 1) or ``UNIFIED`` (version 2)."""

    own: dict[str, Path]

    @property
    def unified(self) -> Path | None:
        """The folder in the unified hierarchy; None: it is not mounted, or lacks this process's group."""
        return self.own.get(UNIFIED)


def find(root: Path = Path("/")) -> Trees:
    """Read the mounted hierarchies.

    Args:
        root: folder with ``proc``, below which mount points are looked up (for tests).
    """
    own: dict[str, Path] = {}
    mounted = _mounted(read(root / "proc/self/mountinfo") or "")
    for line in (read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else [UNIFIED]:
            if name in mounted and (folder := _inside(mounted[name], path)) is not None:
                own.setdefault(name, root / folder.lstrip("/"))
    return Trees(own)


@dataclass(frozen=True, slots=True)
class _Mount:
    top: str
    point: str


def _mounted(mountinfo: str) -> dict[str, _Mount]:
    """Return the mounts by controller; see proc_pid_mountinfo(5)."""
    found: dict[str, _Mount] = {}
    for line in mountinfo.splitlines():
        fields, _, rest = (part.split() for part in line.partition(" - "))
        if len(fields) < 5 or len(rest) < 3:
            continue
        mount = _Mount(_unescaped(fields[3]), _unescaped(fields[4]))
        if rest[0] == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif rest[0] == "cgroup":
            for option in rest[2].split(","):
                found.setdefault(option, mount)
    return found


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _inside(mount: _Mount, path: str) -> str | None:
    """Return the folder of a group in a mount; None: the mount shows another part of the hierarchy."""
    top = mount.top.rstrip("/")
    if path == mount.top or path.startswith(f"{top}/"):
        return f"{mount.point}/{path[len(top) :].lstrip('/')}".rstrip("/")
    return None
