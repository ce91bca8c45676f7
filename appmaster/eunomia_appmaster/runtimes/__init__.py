"""Runtimes: interfaces by which an app master starts, stops, orders and watches its workers on machines."""

from eunomia_appmaster.runtimes.local import LauncherRuntime, LocalRuntime
from eunomia_appmaster.runtimes.nodes import NodeAccess, NodeRuntimes
from eunomia_appmaster.runtimes.runtime import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Exit,
    GangSpec,
    LacksError,
    LeaseOverError,
    Prepared,
    RefusedError,
    Runtime,
    RuntimeAwayError,
    SlotBusyError,
    Watch,
    WatchPosition,
)

__all__ = [
    "ContainerSpec",
    "ContainerState",
    "ContainerStatus",
    "Exit",
    "GangSpec",
    "LacksError",
    "LauncherRuntime",
    "LeaseOverError",
    "LocalRuntime",
    "NodeAccess",
    "NodeRuntimes",
    "Prepared",
    "RefusedError",
    "Runtime",
    "RuntimeAwayError",
    "SlotBusyError",
    "Watch",
    "WatchPosition",
]
