"""The jobs of Synergy's evaluation: the authors' static trace, drawn jobs, and a range of Philly's trace."""

import dataclasses
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from eunomia.errors import InputError
from eunomia_testbed.generators import generate_workload
from eunomia_testbed.generators.derived import TASKS
from eunomia_testbed.generators.drawing import picked, stream
from eunomia_testbed.performance import SynergyProfiles
from eunomia_testbed.performance.reading import unknown
from eunomia_testbed.reproduce.files import NeededFile, check_files
from eunomia_testbed.traces import read_trace
from eunomia_testbed.workload import Workload

STATIC = "static_100job_6_3_1100.0"
"""The authors' static trace of 100 jobs, in the folder of their profiles."""
PLACE: Final = "reproduce synergy"
Split = tuple[float, float, float]
"""Fractions of image, language and speech models."""


def profile_files(data: str) -> tuple[NeededFile, ...]:
    """Return the authors' profiles in a folder as needed files."""
    return tuple(_in_folder(data, name) for name in ("profiles.csv", "models.csv"))


def static_files(data: str) -> tuple[NeededFile, ...]:
    """Return the files that a simulation of the static trace reads."""
    return (*profile_files(data), _in_folder(data, STATIC))


def philly_files(trace: str, data: str) -> tuple[NeededFile, ...]:
    """Return the files that a simulation of Philly's trace reads."""
    rule = "trace must be the file of Philly's trace, which Figure 6 needs (--set trace=FILE)"
    return (*profile_files(data), NeededFile(path=trace, rule=rule))


def _in_folder(data: str, name: str) -> NeededFile:
    rule = "data must be the folder with Synergy's profiles and static trace (--set data=FOLDER)"
    return NeededFile(path=str(Path(data) / name), rule=rule, folder=data)


@lru_cache(maxsize=2)
def read_profiles(data: str) -> SynergyProfiles:
    """Read the authors' profiles.

    Raises:
        InputErrors: they are not at the grid's path.
    """
    check_files(profile_files(data), PLACE)
    return SynergyProfiles.read(data)


@lru_cache(maxsize=1)
def static(data: str) -> Workload:
    """Return the jobs of the authors' static trace.

    Raises:
        InputError: the trace is not at the grid's path or has invalid content, or a job's model is not profiled.
    """
    check_files(static_files(data), PLACE)
    path, known = Path(data) / STATIC, read_profiles(data).models
    jobs = read_trace(path, strict=True)
    for model in jobs.models:
        if model not in known:
            raise unknown("model", model, known, str(path))
    return jobs


@lru_cache(maxsize=4)
def drawn(
    data: str, count: int, jobs_per_hour: float, split: Split, gpu_split: tuple[float, ...], times: float, seed: int
) -> Workload:
    """Return ``count`` jobs drawn by the generator ``synergy``; ``times`` is a factor on their durations.

    Raises:
        InputError: the authors' profiles are not at the grid's path, or lack a model.
    """
    read_profiles(data)
    options = {
        "jobs": count,
        "jobs_per_hour": jobs_per_hour,
        "split": split,
        "gpu_split": gpu_split,
        "profiles": data,
    }
    workload = generate_workload("synergy", options, seed)
    if times == 1.0:
        return workload
    iterations = np.maximum(1.0, np.floor(workload.jobs.iterations * times))
    return dataclasses.replace(workload, jobs=dataclasses.replace(workload.jobs, iterations=iterations))


@lru_cache(maxsize=2)
def of_philly(trace: str, data: str, jobs: range, split: Split, seed: int) -> Workload:
    """Return a range of the jobs in Philly's trace, with drawn models; durations are those at proportional shares.

    Raises:
        InputErrors: the trace or the profiles are not at the grid's path, or the trace is shorter than the range.
    """
    check_files(philly_files(trace, data), PLACE)
    whole = read_trace(Path(trace), strict=True).jobs
    if jobs.stop > len(whole.id):
        rule = f"the range must be within the {len(whole.id)} jobs of the trace (--set philly_first, philly_jobs)"
        raise InputError(rule, value=f"up to job {jobs.stop}", place=PLACE)
    rows = slice(jobs.start, jobs.stop)
    models = _models(len(jobs), split, seed)
    profiles = read_profiles(data)
    demands = [profiles.demand(model) for model in models]
    per_step = np.array([demand.seconds_per_iteration for demand in demands])
    seconds = whole.iterations[rows] * whole.seconds_per_iteration[rows]
    return Workload.single_jobs(
        f"philly-{jobs.start}-{jobs.stop}-seed{seed}",
        ids=[name.partition("/")[0] for name in whole.id[rows]],
        arrival_seconds=whole.arrival_seconds[rows] - whole.arrival_seconds[jobs.start],
        gpus=whole.most[rows],
        iterations=np.maximum(1.0, np.floor(seconds / per_step)),
        seconds_per_iteration=per_step,
        models=models,
        batch_size=np.array([demand.batch_size for demand in demands]),
        source="a range of Philly's trace with drawn models",
    )


def _models(count: int, split: Split, seed: int) -> list[str]:
    """Return a model for each job: a task drawn by the split, then one of the task's models, equally likely."""
    task, place = picked(stream(seed, "tasks"), count, split), stream(seed, "models").random(count)
    names = list(TASKS.values())
    return [names[kind][int(part * len(names[kind]))] for kind, part in zip(task, place, strict=True)]
