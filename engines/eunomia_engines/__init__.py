"""Engines: clusters of others on which the arbiter's launchers run as jobs, such as Slurm."""

from eunomia_engines.engine import (
    AllocationKind,
    Engine,
    EngineFinding,
    EngineKind,
    EngineNode,
    EngineRefusedError,
    EngineSilentError,
    NodeState,
    each_once,
)

__all__ = [
    "AllocationKind",
    "Engine",
    "EngineFinding",
    "EngineKind",
    "EngineNode",
    "EngineRefusedError",
    "EngineSilentError",
    "NodeState",
    "each_once",
]
