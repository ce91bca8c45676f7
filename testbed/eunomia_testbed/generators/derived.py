"""Draws Gavel's and Synergy's derived traces: durations of 10^x minutes, Poisson arrivals, random models and gangs."""

from typing import Final

import numpy as np
from pydantic import Field

from eunomia.units import Ints, Reals, Seconds
from eunomia_testbed.generators.drawing import derived_minutes, picked, poisson_arrivals, stream
from eunomia_testbed.generators.job_types import GAVEL, JobType
from eunomia_testbed.generators.options import Chances4, Chances5, Count, Duration, GeneratorOptions, Path
from eunomia_testbed.performance import GavelThroughputs, SynergyProfiles
from eunomia_testbed.workload import Workload
from eunomia_testbed.workload.adaptation import passes_of

GANGS: Final = np.array([1, 2, 4, 8, 16], dtype=np.int64)

TASKS: Final = {
    "image": ("shufflenet", "alexnet", "res18", "mobilenet", "res50"),
    "language": ("gnmt", "lstm", "transformer"),
    "speech": ("m5", "deepspeech"),
}
"""Models by task (Synergy, Table 4), under the names that its profiles use."""


class GavelOptions(GeneratorOptions):
    """Options of ``gavel``."""

    jobs: Count = 100
    """Number of jobs."""
    interarrival: Duration = Seconds(1200.0)
    """Mean time between arrivals; ``0s``: all jobs arrive at once (a static trace)."""
    gpu_split: Chances4 = (0.70, 0.10, 0.15, 0.05)
    """Probabilities of 1, 2, 4 and 8 GPUs, as in the authors' generator."""
    throughputs: Path | None = None
    """Measured throughputs in Gavel's format, by which a job's steps are its duration times its rate. Without them, a
    step takes a second."""
    gpu_type: str = "v100"
    """GPU type to which the durations apply."""


class SynergyOptions(GeneratorOptions):
    """Options of ``synergy``."""

    jobs: Count = 1000
    """Number of jobs; the paper measures 1000."""
    jobs_per_hour: float = Field(default=6.0, ge=0.0, le=1e6, allow_inf_nan=False)
    """The load as mean arrivals per hour; 0: all jobs arrive at once (a static trace)."""
    split: tuple[float, float, float] = (0.20, 0.70, 0.10)
    """Fractions of image, language and speech models."""
    gpu_split: Chances5 = (0.83, 0.03, 0.03, 0.10, 0.01)
    """Probabilities of 1, 2, 4, 8 and 16 GPUs, as in the authors' simulator; ``[1]``: every job has one GPU."""
    profiles: Path | None = None
    """A folder with Synergy's profiles, by which a job's iterations are its duration over its model's iteration time at
    the GPU-proportional share. Without it, an iteration takes a second."""


def generate_gavel(options: GavelOptions, seed: int) -> Workload:
    """Draw a trace like Gavel's (OSDI'20); a job on several GPUs gets a model that supports distributed training.

    Raises:
        InputError: the throughputs cannot be read, or lack every job type for a drawn gang size.
    """
    count = options.jobs
    rates = None if options.throughputs is None else GavelThroughputs.read(options.throughputs)
    gpus = GANGS[picked(stream(seed, "gpus"), count, options.gpu_split)]
    kinds = _kinds(gpus, stream(seed, "models").random(count), rates, options.gpu_type)
    seconds = derived_minutes(stream(seed, "durations"), count) * 60.0
    models = [kind.model for kind in kinds]
    per_step = np.ones(count)
    if rates is not None:
        known = {
            (model, int(gang)): 1.0 / rates.measured(model, int(gang), options.gpu_type)
            for model, gang in set(zip(models, gpus.tolist(), strict=True))
        }
        per_step = np.array([known[pair] for pair in zip(models, gpus.tolist(), strict=True)])
    return _single(
        f"gavel-{count}-seed{seed}",
        poisson_arrivals(stream(seed, "arrivals"), count, options.interarrival),
        gpus,
        seconds,
        per_step,
        models,
        batch_size=np.array([float(kind.batch_size or np.nan) for kind in kinds]),
        **({} if rates is None else _passes(models, _steps(seconds, per_step))),
        reference_type=None if rates is None else options.gpu_type,
        source="generated as Gavel's derived traces",
    )


def generate_synergy(options: SynergyOptions, seed: int) -> Workload:
    """Draw a production-derived trace like Synergy's (OSDI'22, §5.1), with Poisson arrivals instead of Philly's.

    Raises:
        InputError: the profiles cannot be read, or lack a model.
    """
    count = options.jobs
    task = picked(stream(seed, "tasks"), count, options.split)
    place = stream(seed, "models").random(count)
    names = list(TASKS.values())
    models = [names[kind][int(part * len(names[kind]))] for kind, part in zip(task, place, strict=True)]
    profiles = None if options.profiles is None else SynergyProfiles.read(options.profiles)
    demands = {model: profiles.demand(model) for model in sorted(set(models))} if profiles is not None else {}
    per_step = np.array([demands[model].seconds_per_iteration if demands else 1.0 for model in models])
    mean = 3600.0 / options.jobs_per_hour if options.jobs_per_hour > 0.0 else 0.0
    return _single(
        f"synergy-{count}-seed{seed}",
        poisson_arrivals(stream(seed, "arrivals"), count, mean),
        GANGS[picked(stream(seed, "gpus"), count, options.gpu_split)],
        derived_minutes(stream(seed, "durations"), count) * 60.0,
        per_step,
        models,
        batch_size=np.array([demands[model].batch_size for model in models]) if demands else None,
        reference_type=None if profiles is None else profiles.gpu_types[0],
        source="generated as Synergy's derived traces",
    )


def _kinds(gpus: Ints, place: Reals, rates: GavelThroughputs | None, gpu_type: str) -> list[JobType]:
    eligible = {int(gang): _eligible(int(gang), rates, gpu_type) for gang in np.unique(gpus)}
    return [
        eligible[gang][int(part * len(eligible[gang]))]
        for gang, part in zip(gpus.tolist(), place.tolist(), strict=True)
    ]


def _eligible(gang: int, rates: GavelThroughputs | None, gpu_type: str) -> list[JobType]:
    """Return the job types that can run on ``gang`` GPUs; raise InputError if none of them has a rate."""
    kinds = [kind for kind in GAVEL if gang == 1 or kind.distributed]
    if rates is None:
        return kinds
    known = [kind for kind in kinds if kind.model in rates.models and rates.is_measured(kind.model, gang, gpu_type)]
    if not known:
        rates.measured(kinds[0].model, gang, gpu_type)
    return known


def _steps(seconds: Reals, per_step: Reals) -> Reals:
    """Return [job] work as a whole number of steps, from durations and seconds per step."""
    return np.maximum(1.0, np.floor(seconds / per_step))


def _passes(models: list[str], steps: Reals) -> dict[str, Reals]:
    """Return the columns of epochs and samples per epoch; NaN if the size of a model's data set is unknown."""
    passes = np.array([passes_of(model, work) for model, work in zip(models, steps.tolist(), strict=True)])
    return {"epochs": passes[:, 0], "samples_per_epoch": passes[:, 1]}


def _single(
    name: str, arrivals: Reals, gpus: Ints, seconds: Reals, per_step: Reals, models: list[str], **more: object
) -> Workload:
    return Workload.single_jobs(
        name,
        ids=[f"{row:0{len(str(gpus.size - 1))}d}" for row in range(gpus.size)],
        arrival_seconds=arrivals,
        gpus=gpus,
        iterations=_steps(seconds, per_step),
        seconds_per_iteration=per_step,
        models=models,
        **more,  # type: ignore[arg-type]
    )
