"""AFS's workloads (NSDI'21, Appendix F): Philly's virtual clusters, with one of nine models drawn for each job.

Any other trace can be used instead of Philly's, and keep its own models.

The model is drawn among those whose throughput still grows at the number of GPUs that the job requests (Table 4). Its
number of iterations is chosen such that the job runs on these GPUs as long as in Philly's trace.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from eunomia.errors import InputError
from eunomia.units import Ints, Reals
from eunomia.words import did_you_mean
from eunomia_testbed.generators.drawing import stream
from eunomia_testbed.generators.options import GeneratorOptions
from eunomia_testbed.performance import AfsScaling
from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload

MOST_GPUS: Final[Mapping[str, int]] = {
    "VggnetModel256": 8,
    "GooglenetModel128": 20,
    "Inception4Model256": 52,
    "Resnet50Model128": 28,
    "DcganModel256": 20,
    "VideopredictionModel64": 28,
    "ChatbotModel256": 4,
    "DeepspeechModel64": 20,
    "TransformerModel256": 44,
}
"""The nine models of Table 4, with the most GPUs that each can use."""

CLUSTERS: Final = (
    *("0e4a51", "6c71a0", "b436b2", "e13805", "6214e9", "7f04ca"),
    *("103959", "ee9e8c", "2869ce", "11cb48", "ed69ec"),
)
"""The eleven virtual clusters of Table 3, in its order."""
ALL: Final = "all"
"""The value of ``cluster`` that selects all jobs of the trace."""


class AfsOptions(GeneratorOptions):
    """Options of ``afs``."""

    trace: Path
    """Philly's trace, or any other, in a format of ``read_trace``."""
    cluster: str = "2869ce"
    """One of the eleven virtual clusters of Table 3, or its number there, 1 to 11. For other traces, the name of a
    user, or ``all`` for all jobs."""
    reference_type: str | None = None
    """The GPU type on which the trace's times were measured, for rows without a type."""
    scaling: Path | None = None
    """The authors' seconds per step by GPUs. Without it, a step takes a second on the GPUs of the trace."""
    told_models: bool = False
    """Whether jobs keep the trace's models, which in Philly's trace the authors drew, instead of newly drawn ones."""
    work: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    """The fraction of each job's iterations that remains; §5.3 uses 0.002 on its testbed, with submissions at 1 %
    (``--load 100``)."""
    elastic: bool = True
    """Whether a job runs on any number of GPUs from 1 to its model's most, instead of the trace's. Needs
    ``scaling``."""


def generate(options: AfsOptions, seed: int) -> Workload:
    """Read one cluster of Philly's trace, or another trace, and draw models for its jobs.

    Raises:
        InputError: the cluster is neither in Table 3 nor a user of the trace, a file cannot be read, no model fits a
            job, or ``scaling`` lacks a model.
    """
    cluster = _cluster(options.cluster)
    scaling = None if options.scaling is None else AfsScaling.read(options.scaling)
    workload = _read(options, cluster)
    if not options.told_models:
        workload = with_drawn_models(workload, seed)
    if scaling is not None:
        workload = with_scaling(workload, scaling, elastic=options.elastic)
    if options.work != 1.0:
        jobs = dataclasses.replace(workload.jobs, iterations=workload.jobs.iterations * options.work)
        workload = dataclasses.replace(workload, jobs=jobs)
    source = "Philly" if cluster in CLUSTERS else workload.source
    models = source if options.told_models and cluster not in CLUSTERS else f"{source} with AFS' models"
    return dataclasses.replace(workload, name=f"afs-{cluster}-seed{seed}", source=models)


def _read(options: AfsOptions, cluster: str) -> Workload:
    """Read the jobs of a cluster, or of the whole trace."""
    trace, users = options.trace, () if cluster == ALL else (cluster,)
    try:
        return read_trace(trace, users=users, drawn_models=options.told_models, reference_type=options.reference_type)
    except InputError as error:
        if "users asked for" not in error.rule:
            raise
        near = did_you_mean(cluster, CLUSTERS)
        rule = f"cluster must be a user of the trace, such as one of Philly's {', '.join(CLUSTERS)}, or {ALL}"
        raise InputError(rule, value=f'"{cluster}"{near}', place=trace.name) from error


def with_drawn_models(workload: Workload, seed: int) -> Workload:
    """Return the workload with a model for each job, drawn among those that can use its gang.

    Raises:
        InputError: a job requests more GPUs than any model can use.
    """
    gpus = workload.jobs.most
    names = np.array(list(MOST_GPUS))
    limits = np.array(list(MOST_GPUS.values()))
    if gpus.size and int(gpus.max()) > int(limits.max()):
        raise InputError(f"a job must ask for at most {limits.max()} GPUs", value=str(gpus.max()), place=workload.name)
    order = np.argsort(-limits, kind="stable")
    fitting = np.searchsorted(-limits[order], -gpus, side="right")
    drawn = order[(stream(seed, "models").random(gpus.size) * fitting).astype(np.int64)]
    jobs = dataclasses.replace(workload.jobs, model=drawn.astype(np.int64))
    return dataclasses.replace(workload, models=tuple(names.tolist()), jobs=jobs)


def with_scaling(workload: Workload, scaling: AfsScaling, *, elastic: bool) -> Workload:
    """Return the workload with work in measured steps instead of seconds, such that run times stay as in the trace.

    Args:
        workload: the workload with durations: iterations times seconds per iteration on the requested GPUs.
        scaling: seconds per step of each model by number of GPUs.
        elastic: whether a job can use any number of GPUs from 1 to its model's maximum.

    Raises:
        InputError: ``scaling`` lacks a model.
    """
    jobs = workload.jobs
    most = _most(workload, scaling) if elastic else jobs.most
    steps = jobs.iterations * jobs.seconds_per_iteration * _rates(workload, scaling, jobs.most)
    return dataclasses.replace(
        workload,
        jobs=dataclasses.replace(
            jobs,
            least=np.ones_like(most) if elastic else jobs.least,
            most=most,
            iterations=steps,
            seconds_per_iteration=1.0 / _rates(workload, scaling, most),
        ),
    )


def _most(workload: Workload, scaling: AfsScaling) -> Ints:
    by_model = np.array([scaling.most(model) for model in workload.models], dtype=np.int64)
    return by_model[workload.jobs.model]


def _rates(workload: Workload, scaling: AfsScaling, gpus: Ints) -> Reals:
    pairs, rows = np.unique(np.stack([workload.jobs.model, gpus]), axis=1, return_inverse=True)
    rates = np.array([scaling.at(workload.models[model], count) for model, count in pairs.T.tolist()])
    found: Reals = rates[rows.reshape(-1)]
    return found


def _cluster(given: str) -> str:
    if given.isdigit() and 1 <= int(given) <= len(CLUSTERS):
        return CLUSTERS[int(given) - 1]
    return given
