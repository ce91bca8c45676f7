"""Engines: clusters of others on which the arbiter's launchers run as jobs, such as Slurm."""

from eunomia_engines.engine import (
    Engine,
    EngineFinding,
    EngineNode,
    EngineRefusedError,
    EngineSilentError,
    NodeState,
)

__all__ = [
    "Engine",
    "EngineFinding",
    "EngineNode",
    "EngineRefusedError",
    "EngineSilentError",
    "NodeState",
]
