"""``python -m eunomia_engines.slurm.head STATE [--job]``: the arbiter of a cluster on Slurm, and its nodes' keeper.

With ``--job`` it runs in its own batch job, one head after another; see ``job_seat``.
"""

import os
import sys
from pathlib import Path

from eunomia_engines.head.head import HeadParts, run_head
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.plan import Times
from eunomia_engines.slurm.engine import SlurmEngine
from eunomia_engines.slurm.job_seat import JobSeat
from eunomia_engines.slurm.request import NAMES, Request


def parts_of(state: Path) -> HeadParts:
    """Return the parts of a state folder's head.

    Raises:
        InputError: the request is invalid.
    """
    request = Request.load(state)
    return HeadParts(
        engine=SlurmEngine(request, state),
        demand=Demand(request.least, request.most, request.wait_seconds, group=request.nodes_per_job),
        times=Times(drain=request.drain_seconds, margin=float(request.signal_seconds), idle=request.idle_seconds),
    )


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit code 2 for bad input."""
    state, in_job = Path(sys.argv[1]), sys.argv[2:] == ["--job"]
    run_head(NAMES, parts_of, state, (lambda: JobSeat(state, os.environ.get("SLURM_JOB_ID", ""))) if in_job else None)


if __name__ == "__main__":
    main()
