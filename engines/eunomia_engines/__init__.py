"""Engines: cluster managers such as Slurm, Ray and Kubernetes, which provide nodes for the arbiter's launchers."""

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
    one_of_each,
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
    "one_of_each",
]
