"""The best trial of a search, from the app master's report and the trial's files."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.app.checkpoints import Checkpoint
from eunomia_appmaster.app.job_checkpoints import BEST_FOLDER, CHECKPOINTS_FOLDER, JobCheckpoints
from eunomia_appmaster.explaining.failures import failure_facts
from eunomia_appmaster.protocol import arbiter_pb2 as pb


@value
class BestJob:
    """The trial whose metric was best at any step, as its app master reported it."""

    job: str
    params: dict[str, Any]
    metric: float | None
    checkpoint: str
    """Path of the trial's checkpoint kept for its metric, else of its newest one; empty: there is no checkpoint."""
    step: int | None = None
    """Step at which the metric was logged; None: not known."""
    checkpoint_step: int | None = None
    checkpoint_metric: float | None = None
    """The metric at ``checkpoint_step``; None: the checkpoint is the newest, not one that was kept for its metric."""

    @property
    def settings(self) -> str:
        """The parameters as text, with four significant digits: ``lr 0.0731, width 256``."""
        return settings_text(self.params)


def settings_text(params: Mapping[str, Any]) -> str:
    """Return parameters as text, floats with four significant digits: ``lr 0.0731, width 256``."""
    return ", ".join(
        f"{name} {setting:.4g}" if isinstance(setting, float) else f"{name} {setting}"
        for name, setting in params.items()
    )


def best_job(standing: pb.Standing) -> BestJob | None:
    """Return the best trial of an app master's report; None: no trial has logged a finite metric."""
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


def check_metric(app: pb.App) -> None:
    """Check that an app searches by a metric.

    Raises:
        InputError: the app's file names no metric.
    """
    if app.standing.trials and not app.standing.metric:
        rule = "an app must name the metric that its trials are compared by ([tuner].metric of its file)"
        raise InputError(rule, value="none", place=app.app)


def record_of(app: pb.App, best: BestJob | None) -> dict[str, Any]:
    """Return an app's results so far as a JSON object: the fields of ``best`` and of ``submit --wait``.

    Args:
        app: the arbiter's message about the app.
        best: the app's best trial; None: no trial has logged a finite metric.
    """
    return {
        "app": app.app,
        "metric": app.standing.metric or None,
        "state": app.state,
        "why": app.why,
        "jct_seconds": app.jct_seconds if app.HasField("jct_seconds") else None,
        "best": None if best is None else best_facts(best),
        **failure_facts(app),
    }


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


def best_line(best: BestJob, metric: str, folder: Path) -> str:
    """Return the best trial as a line of text.

    Args:
        best: the trial.
        metric: TensorBoard tag of the metric that the app optimises.
        folder: folder of the app.
    """
    at = "" if best.step is None else f" at step {best.step:,}"
    value = "" if best.metric is None else f"   {metric} {best.metric:.4f}{at}"
    settings = f"   {best.settings}" if best.settings else ""
    return f"{best.job}{value}{settings}   {_checkpoint_text(best, folder)}"


def _checkpoint_text(best: BestJob, folder: Path) -> str:
    if not best.checkpoint:
        own = folder / best.job.rpartition("/")[2] / CHECKPOINTS_FOLDER
        return f"no checkpoint of Eunomia's helper; the script's own, if it writes any, are in {own}"
    if best.checkpoint_metric is None:
        return f"newest checkpoint, of step {best.checkpoint_step or 0:,} {best.checkpoint} (none was kept for it)"
    if best.checkpoint_step == best.step:
        return f"checkpoint {best.checkpoint}"
    return f"checkpoint of step {best.checkpoint_step or 0:,}, {best.checkpoint_metric:.4f} {best.checkpoint}"


def best_checkpoint(trial: Path) -> Checkpoint | None:
    """Return the good checkpoint that a trial keeps for its metric, else its newest good one; None: it has none.

    Args:
        trial: folder of the trial, ``apps/APP/NUMBER``.
    """
    return JobCheckpoints(trial / BEST_FOLDER, keep=1).latest() or JobCheckpoints(trial / CHECKPOINTS_FOLDER).latest()
