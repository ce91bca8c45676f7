"""``python -m eunomia_engines.ray.head STATE``: the arbiter of a Ray cluster, and the keeper of its nodes."""

import sys
from pathlib import Path
from typing import Final

from eunomia_engines.head.head import HeadParts, run_head
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.plan import Times
from eunomia_engines.ray.ending import end_alone
from eunomia_engines.ray.engine import RayEngine
from eunomia_engines.ray.request import NAMES, RayRequest

LOOK_SECONDS: Final = 5.0
"""Seconds between two queries of Ray, whose head answers from memory, so that it can be queried often."""
DRAIN_SECONDS: Final = 600.0
"""Seconds before the known end of a node from which its leases end; few nodes of Ray have a known end."""


def parts_of(state: Path) -> HeadParts:
    """Return the parts of a state folder's head.

    Raises:
        InputError: the request is invalid.
    """
    request = RayRequest.load(state)
    engine = RayEngine(request, state)
    return HeadParts(
        engine=engine,
        demand=Demand(request.least, request.most, request.wait_seconds),
        times=Times(drain=DRAIN_SECONDS, margin=request.stop_seconds, idle=request.idle_seconds),
        look_seconds=LOOK_SECONDS,
        close=engine.close,
        end_alone=lambda: end_alone(state),
    )


if __name__ == "__main__":
    run_head(NAMES, parts_of, Path(sys.argv[1]))
