"""Control groups of the kernel, one per container: they limit it, and a kill of one reaches all of its processes."""

from eunomia_appmaster.node.control_groups.choice import KINDS, choose
from eunomia_appmaster.node.control_groups.groups import (
    BESIDE_PACED_WEIGHT,
    DEVICES,
    NO_GROUP,
    PACED_WEIGHT,
    ControlGroup,
    ControlGroups,
    CpuQuota,
    GroupLimits,
    NoGroup,
    NoGroups,
    Throttled,
)
from eunomia_appmaster.node.control_groups.records import of_record, record_of

__all__ = [
    "BESIDE_PACED_WEIGHT",
    "DEVICES",
    "KINDS",
    "NO_GROUP",
    "PACED_WEIGHT",
    "ControlGroup",
    "ControlGroups",
    "CpuQuota",
    "GroupLimits",
    "NoGroup",
    "NoGroups",
    "Throttled",
    "choose",
    "of_record",
    "record_of",
]
