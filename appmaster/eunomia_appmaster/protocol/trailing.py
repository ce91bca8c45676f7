"""Keys of the trailing metadata by which a launcher's refusals differ that have one status."""

from typing import Final

BUSY_KEY: Final = "eunomia-slot-busy"
"""A slot's last process group is still there; without it the launcher is away."""
LACKS_KEY: Final = "eunomia-node-lacks"
"""The node has no such program or working folder; without it the request is malformed."""
