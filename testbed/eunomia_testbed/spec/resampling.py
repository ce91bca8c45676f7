"""Reads ``--resample``, ``--block`` and ``--budget``: the resamples of a plan's trace."""

import re

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia.words import shown
from eunomia_testbed.evidence.intervals import FEWEST_RESAMPLES
from eunomia_testbed.evidence.resampling import Blocks
from eunomia_testbed.running.resamples import Resampling, resampling_of
from eunomia_testbed.running.windows import Windows, windows_of
from eunomia_testbed.spec.simulation import SimulationSpec
from eunomia_testbed.workload import Workload

MOST_RESAMPLES = 10_000


def resampling(
    spec: SimulationSpec, workloads: dict[int, Workload], loads: tuple[float, ...]
) -> Resampling | Windows | None:
    """Return the resampling or the windows that a spec requests; None: the spec requests neither.

    Raises:
        InputError: the workload is generated, several seeds or loads are given, or the trace is too short.
    """
    if spec.windows is not None:
        return _windows(spec, workloads, loads)
    if spec.resample is None:
        if spec.block is not None:
            raise InputError("--block must stand with --resample", value=shown(spec.block), place=spec.place("block"))
        return None
    place = spec.place("resample")
    if not FEWEST_RESAMPLES <= spec.resample <= MOST_RESAMPLES:
        rule = f"resamples must be {FEWEST_RESAMPLES} to {MOST_RESAMPLES:,}: fewer give no 95 % interval"
        raise InputError(rule, value=str(spec.resample), place=place)
    if isinstance(spec.workload, str) or callable(spec.workload):
        rule = "--resample must stand with a trace: a generated workload has seeds, which show more (--seeds 0-19)"
        raise InputError(rule, value=shown(str(spec.workload)), place=place)
    if len(workloads) > 1:
        rule = "--resample must stand with one seed: intervals over seeds and over resamples are not mixed"
        raise InputError(rule, value=f"{len(workloads)} seeds", place=place)
    if loads != (1.0,):
        rule = "--resample must stand without --load: a resample has the arrivals of the trace"
        raise InputError(rule, value=", ".join(f"{load:g}" for load in loads), place=place)
    ((seed, trace),) = workloads.items()
    return resampling_of(trace, spec.resample, seed=seed, block=_block(spec))


def _windows(spec: SimulationSpec, workloads: dict[int, Workload], loads: tuple[float, ...]) -> Windows:
    place = spec.place("windows")
    given = {"resample": spec.resample, "block": spec.block}
    twice = next((name for name, value in given.items() if value is not None), None)
    if twice is not None:
        rule = f"--windows must stand without --{twice}: parts and resamples of a trace are not mixed"
        raise InputError(rule, value=str(given[twice]), place=place)
    if isinstance(spec.workload, str) or callable(spec.workload):
        rule = "--windows must stand with a trace: a generated workload has seeds, which show more (--seeds 0-19)"
        raise InputError(rule, value=shown(str(spec.workload)), place=place)
    if len(workloads) > 1:
        rule = "--windows must stand with one seed: intervals over seeds and over windows are not mixed"
        raise InputError(rule, value=f"{len(workloads)} seeds", place=place)
    if loads != (1.0,):
        rule = "--windows must stand without --load: a window has the arrivals of the trace"
        raise InputError(rule, value=", ".join(f"{load:g}" for load in loads), place=place)
    (trace,) = workloads.values()
    return windows_of(trace, spec.windows or 0, place=place)


def budget_seconds(spec: SimulationSpec) -> float | None:
    """Return the CPU time in seconds within which resamples are simulated; None: no limit.

    Raises:
        InputError: the budget is not a duration, or there are no resamples.
    """
    if spec.budget is None:
        return None
    if spec.resample is None:
        rule = "--budget must stand with --resample: it limits the number of resamples"
        raise InputError(rule, value=shown(spec.budget), place=spec.place("budget"))
    return parse_duration(spec.budget, name="budget", place=spec.place("budget"))


def _block(spec: SimulationSpec) -> Blocks | None:
    text = spec.block
    if text is None:
        return None
    place = spec.place("block")
    if re.fullmatch(r"\d{1,9}", text):
        if int(text) < 1:
            raise InputError("block must be at least 1 app", value=text, place=place)
        return Blocks(apps=int(text))
    seconds = parse_duration(text, name="block", place=place)
    return Blocks(apps=1, seconds=seconds)
