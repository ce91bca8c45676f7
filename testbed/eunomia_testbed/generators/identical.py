"""Generates identical apps that arrive together, for experiments in which apps must not differ.

Themis's experiment on truth-telling (§6.3) uses eight apps with equal preferences on one machine of 8 GPUs and 28
machines of 2; the paper does not state the number and length of their jobs.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from eunomia.errors import InputError
from eunomia.units import Seconds
from eunomia_testbed.generators.options import Count, Duration, GeneratorOptions
from eunomia_testbed.workload import AppColumns, JobColumns, UserColumns, Workload


class IdenticalOptions(GeneratorOptions):
    """Options of ``identical``."""

    apps: Count = 8
    """Number of apps."""
    jobs: Count = 1
    """Number of jobs of each app."""
    gpus: Annotated[int, Field(ge=1, le=100_000)] = 8
    """The most GPUs that a job can use."""
    least: Annotated[int, Field(ge=1, le=100_000)] = 1
    """The fewest GPUs that a job runs on."""
    time: Duration = Seconds(36_000.0)
    """Run time of a job on its most GPUs, on one machine."""
    iterations: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    """Iterations of a job."""
    model: str = "VGG16"
    """Model of the jobs, by its name in ``themis_speeds`` or another performance model."""


def generate(options: IdenticalOptions, seed: int) -> Workload:
    """Generate identical apps; the seed has no effect.

    Raises:
        InputError: ``time`` is not positive.
    """
    if options.time <= 0.0:
        raise InputError("time must be positive", value=str(options.time), place="--set identical.time")
    count = options.apps * options.jobs
    ids = [f"app{row:0{len(str(options.apps - 1))}d}" for row in range(options.apps)]
    most = np.full(count, options.gpus, dtype=np.int64)
    return Workload(
        name=f"identical-{options.apps}",
        users=UserColumns(id=ids, weight=np.ones(options.apps)),
        apps=AppColumns(
            id=ids,
            user=np.arange(options.apps),
            weight=np.ones(options.apps),
            arrival_seconds=np.zeros(options.apps),
        ),
        jobs=JobColumns(
            id=[f"{app}/{job}" for app in ids for job in range(options.jobs)],
            app=np.repeat(np.arange(options.apps), options.jobs),
            arrival_seconds=np.zeros(count),
            least=np.full(count, min(options.least, options.gpus), dtype=np.int64),
            most=most,
            iterations=np.full(count, float(options.iterations)),
            seconds_per_iteration=np.full(count, options.time / options.iterations),
            model=np.zeros(count, dtype=np.int64),
        ),
        models=(options.model,),
        source="generated as identical apps",
    )
