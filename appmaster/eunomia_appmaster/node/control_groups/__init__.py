"""Control groups of the kernel, one for each container: limits on it, and a kill that no process of it escapes."""

from eunomia_appmaster.node.control_groups.choice import KINDS, choose
from eunomia_appmaster.node.control_groups.groups import (
    DEVICES,
    NO_GROUP,
    ControlGroup,
    ControlGroups,
    GroupLimits,
    NoGroup,
    NoGroups,
)
from eunomia_appmaster.node.control_groups.records import of_record, record_of

__all__ = [
    "DEVICES",
    "KINDS",
    "NO_GROUP",
    "ControlGroup",
    "ControlGroups",
    "GroupLimits",
    "NoGroup",
    "NoGroups",
    "choose",
    "of_record",
    "record_of",
]
