"""Chooses the control groups that a launcher uses, tests them at its start, and logs the choice in one line."""

import hashlib
import os
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_appmaster.node.control_groups.folders import read
from eunomia_appmaster.node.control_groups.groups import CONTROLLERS, CPU, ControlGroups, GroupLimits, NoGroups
from eunomia_appmaster.node.control_groups.mounts import Trees, find
from eunomia_appmaster.node.control_groups.version1 import Version1Groups
from eunomia_appmaster.node.control_groups.version2 import Version2Groups

KILL: Final = "kill"
"""Kind of groups: version 2, used only to kill a slot's processes together; controllers are not required."""
KINDS: Final = ("auto", "v2", "v1", KILL, "none")
_TRIED = GroupLimits(cpus=0.1, memory_bytes=64 << 20, processes=64)


def choose(state: Path, wanted: str = "auto", *, paced: bool = False, root: Path = Path("/")) -> ControlGroups:
    """Choose the control groups of a state folder's launcher, and test them on a group without processes.

    Args:
        state: Eunomia's state folder; each folder has groups of its own.
        wanted: one of ``KINDS``; "auto" takes the first that works of v2, v1, none.
        paced: whether slots are paced, so that a CPU controller is required.
        root: folder with ``proc`` and ``sys`` (for tests).

    Raises:
        InputError: an unknown kind, one that does not work on this machine, or none that can pace slots.
    """
    groups = _chosen(state, wanted, root)
    if paced and CPU not in groups.controllers:
        rule = f"paced slots need control groups with the controller cpu ({groups.describe()})"
        groups.close()
        raise InputError(rule, value=groups.kind, place="--slot-types")
    return groups


def _chosen(state: Path, wanted: str, root: Path) -> ControlGroups:
    if wanted not in KINDS:
        raise InputError(f"control groups must be one of {', '.join(KINDS)}", value=wanted, place="--control-groups")
    if wanted == "none":
        return NoGroups("--control-groups none")
    trees, name = find(root), f"eunomia-{hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]}"
    refusals = []
    for kind in _candidates(trees) if wanted == "auto" else (wanted,):
        try:
            return _tried(kind, trees, name, limits=wanted == "v2")
        except OSError as error:
            refusals.append(f"{kind}: {error.strerror}: {error.filename}" if error.filename else f"{kind}: {error}")
    why = "; ".join(refusals) or "none is mounted"
    if wanted == "auto":
        return NoGroups(why)
    raise InputError(
        f"control groups must work where they are asked for ({why})", value=wanted, place="--control-groups"
    )


def _candidates(trees: Trees) -> tuple[str, ...]:
    """Return the kinds that are mounted, in the order in which they are tried."""
    unified = trees.unified
    has_v1 = any(controller in trees.own for controller in CONTROLLERS)
    has_v2 = unified is not None and (not has_v1 or _has_controllers(unified))
    return (*(("v2",) if has_v2 else ()), *(("v1",) if has_v1 else ()))


def _has_controllers(unified: Path) -> bool:
    return bool(set((read(unified / "cgroup.controllers") or "").split()) & set(CONTROLLERS))


def _tried(kind: str, trees: Trees, name: str, *, limits: bool) -> ControlGroups:
    """Return control groups after a test that one can be made; ``limits``: a controller is required as well."""
    groups = _of(kind, trees, name)
    try:
        if limits and not groups.controllers:
            raise OSError(
                f"none of {', '.join(CONTROLLERS)} is delegated to the group of this process (systemd: Delegate=yes), "
                f"so no slot has a limit; --control-groups {KILL} accepts that"
            )
        groups.make(f"trial@{os.getpid()}", _TRIED).remove()
    except OSError:
        groups.close()
        raise
    return groups


def _of(kind: str, trees: Trees, name: str) -> ControlGroups:
    if kind in ("v2", KILL):
        if trees.unified is None:
            raise FileNotFoundError(2, "no tree of version 2 is mounted")
        return Version2Groups(trees.unified, name)
    if not any(controller in trees.own for controller in CONTROLLERS):
        raise FileNotFoundError(2, "no tree of version 1 is mounted")
    return Version1Groups(trees.own, name)
