"""The live system: protocol, arbiter service, app masters, launcher, profiler, checkpoints, training helper."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eunomia_appmaster.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that a worker that imports the training helper needs no gRPC."""
    if name == "Client":
        from eunomia_appmaster.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
