"""Reads several traces of one cluster as independent draws, which are numbered from 0 like seeds."""

import dataclasses
from collections.abc import Sequence

from eunomia.errors import InputError
from eunomia_testbed.spec.cluster_file import ClusterFile
from eunomia_testbed.spec.simulation import SimulationSpec
from eunomia_testbed.spec.source import Request, Source, read_source, source_of
from eunomia_testbed.workload import Workload


def traces_of(spec: SimulationSpec) -> Sequence[str | Workload] | None:
    """Return the traces of a spec with several traces; None: it has one trace, or a generator.

    Raises:
        InputError: there is no trace, a trace is given twice, or a flag contradicts several traces.
    """
    given: Sequence[str | Workload]
    if isinstance(spec.trace, tuple):
        given, place = spec.trace, "trace"
        if spec.workload is not None:
            raise InputError("a simulation must have either a trace or --workload", value="both")
    elif isinstance(spec.workload, list | tuple):
        given, place = spec.workload, spec.place("workload")
    else:
        return None
    if not given:
        raise InputError("a simulation must have at least one trace", value="none", place=place)
    twice = [each for number, each in enumerate(given) if any(each is one or each == one for one in given[:number])]
    if twice:
        name = twice[0] if isinstance(twice[0], str) else twice[0].name
        rule = "several traces must be different ones: they count as independent draws"
        raise InputError(rule, value=f'"{name}" twice', place=place)
    for field in ("seeds", "resample", "windows"):
        if getattr(spec, field) is not None:
            rule = f"{spec.place(field)} must stand with one trace: several traces are the draws themselves"
            raise InputError(rule, value=f"{len(given)} traces", place=spec.place(field))
    return given


def read_several(traces: Sequence[str | Workload], request: Request, where: ClusterFile) -> Source:
    """Return the source of several traces, whose workloads have the traces' numbers as seeds.

    Raises:
        InputError: a trace is invalid.
    """
    found = [
        read_source(dataclasses.replace(request, trace=trace), where, (number,))
        if isinstance(trace, str)
        else source_of(trace, dataclasses.replace(request, trace=None), where, (number,))
        for number, trace in enumerate(traces)
    ]
    notes = [note if note in found[0].notes else f"{_name(each)}: {note}" for each in found for note in each.notes]
    return Source(
        workloads={number: workload for each in found for number, workload in each.workloads.items()},
        models=found[0].models,
        inputs=tuple(dict.fromkeys(file for each in found for file in each.inputs)),
        heading="; ".join(each.heading for each in found),
        notes=tuple(dict.fromkeys(notes)),
    )


def _name(source: Source) -> str:
    return next(iter(source.workloads.values())).name
