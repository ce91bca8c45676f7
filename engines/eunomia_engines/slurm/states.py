"""Slurm's states of a job, as an engine's states of a node."""

from typing import Final

from eunomia_engines.engine import EngineNode, NodeState
from eunomia_engines.slurm.programs import SlurmJob

STATES: Final = {
    "PENDING": NodeState.ASKED,
    "CONFIGURING": NodeState.ASKED,
    "REQUEUED": NodeState.ASKED,
    "REQUEUE_HOLD": NodeState.ASKED,
    "REQUEUE_FED": NodeState.ASKED,
    "SPECIAL_EXIT": NodeState.ASKED,
    "RUNNING": NodeState.RUNS,
    "RESIZING": NodeState.RUNS,
    "SIGNALING": NodeState.RUNS,
    "COMPLETING": NodeState.ENDS,
    "STAGE_OUT": NodeState.ENDS,
    "BOOT_FAIL": NodeState.ENDED,
    "CANCELLED": NodeState.ENDED,
    "COMPLETED": NodeState.ENDED,
    "DEADLINE": NodeState.ENDED,
    "FAILED": NodeState.ENDED,
    "NODE_FAIL": NodeState.ENDED,
    "OUT_OF_MEMORY": NodeState.ENDED,
    "PREEMPTED": NodeState.ENDED,
    "REVOKED": NodeState.ENDED,
    "TIMEOUT": NodeState.ENDED,
}
"""Node states by Slurm's job states (20.11 to 24.05), without SUSPENDED and STOPPED, whose processes still exist."""


def node_of(job: SlurmJob) -> EngineNode:
    """Convert a job to a node of the engine; a state that is not in ``STATES`` is ``UNKNOWN``."""
    state = STATES.get(job.state, NodeState.UNKNOWN)
    why = job.reason if state is NodeState.ASKED else "" if state is NodeState.RUNS else job.state
    return EngineNode(
        id=job.id,
        state=state,
        why=why,
        host=job.host,
        asked_at=job.submitted_at,
        began_at=job.began_at if state is not NodeState.ASKED else None,
        ends_at=job.ends_at if state is not NodeState.ASKED else None,
    )
