"""The assumptions of a simulation on speeds that were not given, as numbers and as sentences for every output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from eunomia.model.shapes import value
from eunomia.words import shown

MOST_NAMED = 4
"""Largest number of models named in a sentence."""


@value
class SpeedAssumption:
    """The assumption on the speed of a workload's jobs for which the performance model has none.

    Attributes:
        seeds: the seeds of this workload; empty: all runs, including those of resamples and windows.
        kind: ``equal``: equally fast on all GPU types; ``as``: as fast as ``model``; ``drop``: left out.
        model: the model whose speeds are used; empty unless ``kind`` is ``as``.
        names: the models of these jobs, as in the trace; an empty name: jobs without a model.
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
        """Return the assumption from a JSON object of ``run.json``."""
        return cls(**{**tree, "seeds": tuple(tree["seeds"]), "names": tuple(tree["names"])})


@value
class AssumedShare:
    """The number of jobs with assumed speeds, and these jobs' fraction of the GPU-hours (None: unknown)."""

    jobs: int
    gpu_hours_share: float | None


def share_of(assumptions: Iterable[SpeedAssumption], seed: int) -> AssumedShare:
    """Return the share of jobs with assumed speeds in a seed's workload; left-out jobs do not count."""
    mine = [each for each in assumptions if (seed in each.seeds or not each.seeds) and each.kind != "drop"]
    return AssumedShare(jobs=sum(each.jobs for each in mine), gpu_hours_share=_hours_share(mine) if mine else 0.0)


def assumption_sentences(assumptions: Sequence[SpeedAssumption]) -> list[str]:
    """Return a sentence for each assumption, with a warning that results depend on them; empty: none was made.

    The jobs of several workloads (one for each seed) are added up.
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
    """Return assumptions in order: equal speeds first, as the strongest assumption, and left-out jobs last."""
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
