"""Reads or generates the workload of a simulation, with the true speeds of its jobs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from eunomia.errors import InputError
from eunomia.model.shapes import builds, value
from eunomia.platform.layers import is_file
from eunomia.platform.profile_resolver import TOP_KEYS
from eunomia.units import Locality
from eunomia.words import closest, shown
from eunomia_testbed.performance.names import ignores_type
from eunomia_testbed.performance.reading import plain
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.results.facts import InputFile, sha256_of
from eunomia_testbed.spec.cluster_file import ClusterFile
from eunomia_testbed.workload import Workload

if TYPE_CHECKING:
    from eunomia_testbed.performance import Links


EQUAL: Final = "equal"
"""The value of ``speeds`` that declares all GPU types equally fast."""


@value
class Request:
    """The values of the flags that select a workload."""

    trace: str | None = None
    workload: str | None = None
    format: str | None = None
    throughputs: str | None = None
    speeds: str | None = None
    options: tuple[str, ...] = ()
    """Options of the reader or the generator, each ``KEY=VALUE``."""
    strict: bool = False
    by_rules: bool = False
    """Whether a peer's round rules apply, in which placement has no effect."""


@builds
class Source:
    """The simulated workloads, with a description as text.

    Attributes:
        workloads: the workloads by seed.
        heading: states the number of jobs that were read or generated.
        notes: changes that a reader made without dropping a row.
    """

    workloads: Mapping[int, Workload]
    models: PerformanceModel | None
    inputs: tuple[InputFile, ...]
    heading: str
    notes: tuple[str, ...] = ()

    @property
    def jobs(self) -> int:
        """Return the largest number of jobs of a workload."""
        return max((workload.size for workload in self.workloads.values()), default=0)


def read_source(request: Request, cluster: ClusterFile, seeds: Sequence[int]) -> Source:
    """Read the trace, or generate a workload with each seed.

    Raises:
        InputError: both a trace and a workload are given or neither is, or the given one is invalid.
    """
    if (request.trace is None) == (request.workload is None):
        rule = "a simulation must have either a trace or --workload"
        raise InputError(rule, value="neither" if request.trace is None else "both")
    if request.trace is not None:
        return _read(request, cluster, seeds)
    return _generate(request, cluster, seeds)


def source_of(
    workload: Workload | Callable[[int], Workload], request: Request, cluster: ClusterFile, seeds: Sequence[int]
) -> Source:
    """Return the source of a script's workload or generator.

    Raises:
        InputError: a trace is also given, or the speeds are invalid.
    """
    if request.trace is not None:
        raise InputError("a simulation must have either a trace or --workload", value="both")
    made = {seed: workload(seed) if callable(workload) else workload for seed in seeds}
    sizes = ", ".join(dict.fromkeys(f"{each.size} jobs" for each in made.values()))
    return Source(workloads=made, models=_models(request, cluster), inputs=_inputs(request.speeds), heading=sizes)


def check_owner(settings: Sequence[str], workload: str | None) -> None:
    """Check that no setting lacks the prefix of the reader or the generator (``jobs=4`` instead of ``gavel.jobs=4``).

    Args:
        settings: settings for the profiles, ``KEY=VALUE``.
        workload: the generator's name; None: the jobs come from a trace.

    Raises:
        InputError: a key is close to an option of the reader or generator, and to no key of a profile.
    """
    for text in settings:
        key = text.partition("=")[0].strip()
        meant = closest(key, _options_of(workload)) if "." not in key and key not in TOP_KEYS else None
        if meant is not None:
            owner = workload or "trace"
            rule = f"a setting of the {'trace reader' if workload is None else 'generator'} must begin with {owner}."
            hint = f'{shown(key)}; did you mean "{owner}.{meant}"?'
            raise InputError(rule, value=hint, place=f"--set {key}")


def _options_of(workload: str | None) -> Sequence[str]:
    if workload is None:
        from eunomia_testbed.spec.reading import ReaderFlags

        return [field.name for field in dataclasses.fields(ReaderFlags)]
    from eunomia_testbed.generators import describe_generator

    return list(describe_generator(workload))


def _read(request: Request, cluster: ClusterFile, seeds: Sequence[int]) -> Source:
    from eunomia_testbed.spec.extent import extent_of
    from eunomia_testbed.spec.reading import reader_options
    from eunomia_testbed.traces import read_trace

    path = request.trace or "-"
    more = reader_options(request.options)
    workload = read_trace(path, format=request.format, throughputs=request.throughputs, strict=request.strict, **more)
    models = _models(request, cluster, workload)
    _check_speeds(workload, models)
    dropped = len({(each.file, each.line) for each in workload.dropped})
    heading = f"{workload.name}: {workload.size} jobs read, {dropped} dropped ({workload.source} format)"
    extent = extent_of(workload)
    return Source(
        workloads=dict.fromkeys(seeds, workload),
        models=models,
        inputs=_inputs(path, request.throughputs, request.speeds),
        heading=heading,
        notes=workload.notes if extent is None else (extent, *workload.notes),
    )


def _check_speeds(workload: Workload, models: PerformanceModel | None) -> None:
    """Check that some job of a trace has a speed, since otherwise no policy could run any."""
    jobs = workload.jobs
    if workload.regimes or not bool(np.isnan(jobs.seconds_per_iteration).all()):
        return
    if models is None:
        rule = "a trace must have the column seconds_per_iteration, or --speeds must give the speeds of its models"
        raise InputError(rule, value="neither", place=workload.name)
    if bool((jobs.model < 0).all()):
        rule = "a trace must have the column model, whose speeds --speeds gives, or seconds_per_iteration"
        raise InputError(rule, value="neither", place=workload.name)


def _generate(request: Request, cluster: ClusterFile, seeds: Sequence[int]) -> Source:
    from eunomia_testbed.generators import describe_generator, generate_workload, generated_speeds

    name = request.workload or ""
    settings: dict[str, object] = dict(parted(text) for text in request.options)
    if request.throughputs is not None and "throughputs" in describe_generator(name):
        settings.setdefault("throughputs", request.throughputs)
    workloads = {seed: generate_workload(name, settings, seed) for seed in seeds}
    sizes = sorted({workload.size for workload in workloads.values()})
    jobs = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    apps = {len(workload.apps.id) for workload in workloads.values()}
    of_apps = f" of {min(apps)} apps" if apps.isdisjoint(sizes) and len(apps) == 1 else ""
    with_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"a workload for each of {len(seeds)} seeds"
    return Source(
        workloads=workloads,
        models=_generated_speeds(request, cluster, generated_speeds(name, settings)),
        inputs=_inputs(request.throughputs, request.speeds),
        heading=f"{name}: {jobs} jobs{of_apps} generated, {with_seeds}",
        notes=tuple(dict.fromkeys(note for workload in workloads.values() for note in workload.notes)),
    )


def _generated_speeds(request: Request, cluster: ClusterFile, own: PerformanceModel | None) -> PerformanceModel | None:
    """Return the requested speeds, or else the generator's own, which may already be equal on all types."""
    alike = own is not None and all(ignores_type(own, model) for model in own.models)
    if request.speeds is None or (request.speeds == EQUAL and alike):
        return own
    return _models(request, cluster)


def parted(text: str) -> tuple[str, object]:
    """Split a ``KEY=VALUE`` text; the value stays text."""
    key, equals, word = text.partition("=")
    if not equals or not key.strip():
        raise InputError("--set must be KEY=VALUE", value=f'"{text}"', place="--set")
    return key.strip(), word.strip()


def _models(request: Request, cluster: ClusterFile, trace: Workload | None = None) -> PerformanceModel | None:
    """Return the performance model of the jobs: the requested one, or else the throughputs if needed, or else None.

    Throughputs are needed if GPU types differ, if times refer to a type that the cluster lacks, or under a peer's
    rules.
    """
    if request.speeds == EQUAL:
        return None
    if request.speeds == "analytic":
        from eunomia_testbed.performance import AnalyticModel

        return AnalyticModel(links=_links(cluster))
    if request.speeds is not None:
        from eunomia_testbed.performance import read_performance

        return read_performance(request.speeds)
    types = {plain(name) for name in cluster.cluster.gpu_types}
    if trace is not None and trace.reference_type is not None:
        types.add(plain(trace.reference_type))
    if request.throughputs is not None and (request.by_rules or len(types) > 1):
        from eunomia_testbed.performance import GavelThroughputs

        return GavelThroughputs.read(request.throughputs, placement=not request.by_rules)
    return None


def _links(cluster: ClusterFile) -> "Links":
    """Return the network of the cluster's GPUs: from its file, or else as the analytic model assumes."""
    from eunomia_testbed.performance import Links

    assumed = Links()
    given = {level: gib * 1.024**3 for level, gib in cluster.bandwidth_gib.items()}
    speeds = [given.get(level, assumed.gb_per_second[level]) for level in Locality]
    return Links(gb_per_second=(speeds[0], speeds[1], speeds[2], speeds[3]))


def _inputs(*paths: str | None) -> tuple[InputFile, ...]:
    files = [Path(path) for path in paths if path is not None and path not in ("-", "analytic", EQUAL)]
    return tuple(sha256_of(path) for path in files if is_file(path))
