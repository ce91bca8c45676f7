"""Keys of trailing metadata that distinguish a launcher's refusals with the same status code."""

from typing import Final

BUSY_KEY: Final = "eunomia-slot-busy"
"""The slot's previous processes still run; the same status without this key means that the launcher is away."""
LACKS_KEY: Final = "eunomia-node-lacks"
"""The node lacks the program or the working folder; without this key the request is malformed."""
