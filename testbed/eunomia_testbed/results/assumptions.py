"""The assumptions of a simulation on speeds that were not given, in numbers and in the sentences of every output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from eunomia.model.shapes import value
from eunomia.words import shown

MOST_NAMED = 4
"""Largest number of models that a sentence names."""


@value
class SpeedAssumption:
    """Jobs of a workload whose speed the performance model does not have, and the speed assumed for them.

    Attributes:
        seeds: the seeds that run this workload; empty: all runs, including those of resamples or windows.
        kind: ``equal``: equally fast on all GPU types; ``as``: as fast as ``model``; ``drop``: left out.
        model: the name whose speeds are taken; empty unless ``kind`` is ``as``.
        names: the models of these jobs, as in the trace; an empty name: the job has none.
        jobs: number of these jobs.
        of_jobs: number of jobs in the trace.
        gpu_hours: GPU-hours of these jobs by the trace's times; None: the trace has no times.
        of_gpu_hours: GPU-hours of all jobs in the trace.
    """

    seeds: tuple[int, ...]
    kind: Literal["equal", "as", "drop"]
    names: tuple[str, ...]
    jobs: int
    of_jobs: int
    gpu_hours: float | None = None
    of_gpu_hours: float | None = None
    model: str = ""

    @classmethod
    def from_mapping(cls, tree: Mapping[str, Any]) -> SpeedAssumption:
        """Return the assumption from a JSON object, as ``run.json`` stores it."""
        return cls(**{**tree, "seeds": tuple(tree["seeds"]), "names": tuple(tree["names"])})


@value
class AssumedShare:
    """The number of jobs with assumed speeds, and their fraction of the GPU-hours; None: the trace has no times."""

    jobs: int
    gpu_hours_share: float | None


def share_of(assumptions: Iterable[SpeedAssumption], seed: int) -> AssumedShare:
    """Return the jobs of a seed's workload that have assumed speeds; jobs that were left out do not count."""
    mine = [each for each in assumptions if (seed in each.seeds or not each.seeds) and each.kind != "drop"]
    return AssumedShare(jobs=sum(each.jobs for each in mine), gpu_hours_share=_hours_share(mine) if mine else 0.0)


def assumption_sentences(assumptions: Sequence[SpeedAssumption]) -> list[str]:
    """Return a sentence for each assumption, and one that the results depend on them; empty: nothing was assumed.

    If there are several workloads (one for each seed), their jobs are added up.
    """
    lines, last = [], -1
    for kind, model in dict.fromkeys((each.kind, each.model) for each in _in_order(assumptions)):
        mine = [each for each in assumptions if (each.kind, each.model) == (kind, model)]
        last += kind != "drop"
        lines.append(f"{_what(kind, model, mine)}: {_how_many(mine)}.")
    if last >= 0:
        lines[last] += " What follows hangs on that."
    return lines


def _in_order(assumptions: Iterable[SpeedAssumption]) -> list[SpeedAssumption]:
    """Sort assumptions: equal speeds first, as the strongest assumption, and jobs that were left out last."""
    return sorted(assumptions, key=lambda each: ("equal", "as", "drop").index(each.kind))


def _what(kind: str, model: str, mine: Sequence[SpeedAssumption]) -> str:
    if kind == "equal":
        return "Speeds assumed equal on all types"
    names = list(dict.fromkeys(name for each in mine for name in each.names))
    named = ", ".join(shown(name) if name else "jobs without a model" for name in names[:MOST_NAMED])
    named += f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    if kind == "drop":
        return f"Left out, without known speeds ({named})"
    return f"Speeds of {shown(model)} taken for {named}"


def _how_many(mine: Sequence[SpeedAssumption]) -> str:
    workloads = {each.seeds: each for each in mine}.values()
    jobs = f"{sum(each.jobs for each in mine):,} of {sum(each.of_jobs for each in workloads):,} jobs"
    share = _hours_share(mine)
    return jobs if share is None else f"{jobs}, {share:.0%}".replace("%", " %") + " of the GPU hours"


def _hours_share(mine: Sequence[SpeedAssumption]) -> float | None:
    workloads = {each.seeds: each for each in mine}.values()
    parts = [each.gpu_hours for each in mine if each.gpu_hours is not None]
    wholes = [each.of_gpu_hours for each in workloads if each.of_gpu_hours is not None]
    known = len(parts) == len(mine) and len(wholes) == len(workloads) and sum(wholes) > 0.0
    return round(sum(parts) / sum(wholes), 9) if known else None
