"""Runtimes: how an app master starts, stops, orders and watches its workers on machines."""

from eunomia_appmaster.runtimes.local import LocalRuntime
from eunomia_appmaster.runtimes.runtime import (
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Exit,
    GangSpec,
    LeaseOverError,
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
    "LeaseOverError",
    "LocalRuntime",
    "RefusedError",
    "Runtime",
    "RuntimeAwayError",
    "SlotBusyError",
    "Watch",
    "WatchPosition",
]
