"""The best trial of a search: what its app master reported, and the files that it left."""

import contextlib
import json
from pathlib import Path
from typing import Any

from eunomia.model.shapes import value
from eunomia_appmaster.checkpoints import BEST_FOLDER, Checkpoint, CheckpointStore
from eunomia_appmaster.protocol import arbiter_pb2 as pb


@value
class BestJob:
    """The trial whose metric was best at any step, as its app master reported it."""

    job: str
    params: dict[str, Any]
    metric: float | None
    checkpoint: str
    """Path of the checkpoint that was kept for its metric, else of the newest one; empty: there is none."""
    step: int | None = None
    """Step at which the metric was logged; None: not known."""
    checkpoint_step: int | None = None
    checkpoint_metric: float | None = None
    """The metric at ``checkpoint_step``; None: the checkpoint is the newest, not one that was kept for its metric."""

    @property
    def settings(self) -> str:
        """The parameters as text: ``lr 0.0731, width 256``."""
        return ", ".join(f"{name} {setting}" for name, setting in self.params.items())


def best_job(standing: pb.Standing) -> BestJob | None:
    """Return the best trial of a report; None: no trial has logged a finite metric."""
    if not standing.best_job:
        return None
    params: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        params = json.loads(standing.best_params_json or "{}")
    return BestJob(
        job=standing.best_job,
        params=params,
        metric=standing.best if standing.HasField("best") else None,
        checkpoint=standing.best_checkpoint,
        step=standing.best_step if standing.HasField("best_step") else None,
        checkpoint_step=standing.checkpoint_step if standing.HasField("checkpoint_step") else None,
        checkpoint_metric=standing.checkpoint_metric if standing.HasField("checkpoint_metric") else None,
    )


def best_facts(best: BestJob) -> dict[str, Any]:
    """Return the best trial as a JSON object."""
    return {
        "job": best.job,
        "params": best.params,
        "metric": best.metric,
        "step": best.step,
        "checkpoint": best.checkpoint or None,
        "checkpoint_step": best.checkpoint_step,
        "checkpoint_metric": best.checkpoint_metric,
    }


def best_checkpoint(trial: Path) -> Checkpoint | None:
    """Return the good checkpoint that a trial keeps for its metric, else its newest good one; None: there is none.

    Args:
        trial: folder of the trial, ``apps/APP/NUMBER``.
    """
    return CheckpointStore(trial / BEST_FOLDER, keep=1).latest() or CheckpointStore(trial / "checkpoints").latest()
