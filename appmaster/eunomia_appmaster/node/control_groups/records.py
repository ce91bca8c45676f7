"""Stores a container's group in its record, so that a later launcher finds the group even if its own kind differs."""

from pathlib import Path
from typing import Any

from eunomia_appmaster.node.control_groups.groups import NO_GROUP, ControlGroup
from eunomia_appmaster.node.control_groups.mounts import UNIFIED
from eunomia_appmaster.node.control_groups.version1 import Version1Group
from eunomia_appmaster.node.control_groups.version2 import Version2Group


def record_of(group: ControlGroup) -> dict[str, Any] | None:
    """Return a group as plain values for JSON; None: the container has no group."""
    if not group.folders:
        return None
    return {"kind": group.kind, "folders": {tree: str(folder) for tree, folder in group.folders.items()}}


def of_record(record: dict[str, Any] | None) -> ControlGroup:
    """Return the group of a record; a group without effect if the record has no readable group."""
    try:
        folders = {str(tree): Path(folder) for tree, folder in (record or {})["folders"].items()}
        return Version2Group(folders[UNIFIED]) if (record or {})["kind"] == "v2" else Version1Group(folders)
    except (KeyError, TypeError, AttributeError):
        return NO_GROUP
