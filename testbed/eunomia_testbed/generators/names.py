"""The generators by name; each generates a workload from its options."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from eunomia.contract.options import describe, make_options
from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import value
from eunomia.words import did_you_mean
from eunomia_testbed.generators import afs, derived, identical, oef, shockwave, themis
from eunomia_testbed.generators.options import GeneratorOptions
from eunomia_testbed.generators.themis_facts import themis_speeds
from eunomia_testbed.performance import PerformanceModel, read_performance
from eunomia_testbed.workload import Workload


@value
class Generator:
    """A named generator of workloads."""

    summary: str
    options_type: type[GeneratorOptions]
    generate: Callable[[Any, int], Workload]
    """Generates the workload from options of ``options_type`` and a seed."""
    speeds: Callable[[Any], PerformanceModel | None]
    """Returns the workload's performance model from options of ``options_type``; None: the workload's own times are
    used."""


GENERATORS: Final[Mapping[str, Generator]] = {
    "themis1": Generator(
        summary="Themis' workload 1: many jobs per app, few GPUs per job",
        options_type=themis.ThemisOptions,
        generate=themis.generate_themis1,
        speeds=lambda _: themis_speeds(),
    ),
    "themis2": Generator(
        summary="Themis' workload 2: successive halving, more GPUs per job",
        options_type=themis.Themis2Options,
        generate=themis.generate_themis2,
        speeds=lambda _: themis_speeds(),
    ),
    "gavel": Generator(
        summary="Gavel's derived traces: 10^x minutes, Poisson arrivals, measured models",
        options_type=derived.GavelOptions,
        generate=derived.generate_gavel,
        speeds=lambda options: _read(options.throughputs),
    ),
    "synergy": Generator(
        summary="Synergy's derived traces: the same durations, models by task",
        options_type=derived.SynergyOptions,
        generate=derived.generate_synergy,
        speeds=lambda options: _read(options.profiles),
    ),
    "shockwave": Generator(
        summary="Shockwave's traces: jobs that change their batch size, same draws as the published generator",
        options_type=shockwave.ShockwaveOptions,
        generate=shockwave.generate,
        speeds=lambda options: _read(options.throughputs),
    ),
    "afs": Generator(
        summary="AFS' workloads: one of Philly's clusters with nine models",
        options_type=afs.AfsOptions,
        generate=afs.generate,
        speeds=lambda options: _read(options.scaling),
    ),
    "oef": Generator(
        summary="OEF's tenants: many jobs of one type each, speed-ups of their own",
        options_type=oef.OefOptions,
        generate=oef.generate,
        speeds=lambda _: oef.oef_speeds(),
    ),
    "identical": Generator(
        summary="Identical apps that arrive at once, as in Themis' experiment on truth-telling",
        options_type=identical.IdenticalOptions,
        generate=identical.generate,
        speeds=lambda _: themis_speeds(),
    ),
}
"""The generators by name."""


def generate_workload(name: str, settings: Mapping[str, object] | None = None, seed: int = 0) -> Workload:
    """Draw a workload; equal names, settings and seeds give equal workloads.

    Args:
        name: a key of ``GENERATORS``.
        settings: options by name, as text or as values.
        seed: at least 0.

    Raises:
        InputError: the generator or an option is unknown, an option is out of bounds, a file cannot be read, or the
            seed is negative; all invalid options are reported together.
    """
    options = generator_options(name, settings)
    if seed < 0:
        raise InputError("seed must not be negative", value=str(seed), place="--seed")
    return generator_named(name).generate(options, seed)


def generated_speeds(name: str, settings: Mapping[str, object] | None = None) -> PerformanceModel | None:
    """Return the performance model for a generated workload; None: the workload's own times are used.

    Args:
        name: a key of ``GENERATORS``.
        settings: the same as for the workload.

    Raises:
        InputError: see ``generate_workload``.
    """
    return generator_named(name).speeds(generator_options(name, settings))


def generator_options(name: str, settings: Mapping[str, object] | None = None) -> GeneratorOptions:
    """Check settings, and return the options that they define.

    Raises:
        InputErrors: settings are unknown or out of bounds; all are reported.
        InputError: no generator has this name.
    """
    kind = generator_named(name).options_type
    try:
        options = make_options(
            kind, settings or {}, place=lambda path: f"--set {'.'.join((name, *path))}", numbers_are_seconds=True
        )
    except InputErrors as found:
        raise InputErrors([_of_generator(error) for error in found.errors]) from found
    if not isinstance(options, GeneratorOptions):
        raise TypeError(f"options of {name} are no GeneratorOptions")
    return options


def generator_named(name: str) -> Generator:
    """Return the generator with this name.

    Raises:
        InputError: no generator has this name.
    """
    if name not in GENERATORS:
        rule = f"a generator must be one of {', '.join(GENERATORS)}"
        raise InputError(rule, value=f'"{name}"{did_you_mean(name, list(GENERATORS))}', place="--workload")
    return GENERATORS[name]


def _of_generator(error: InputError) -> InputError:
    rule = error.rule.replace("that the plugin has", "that the generator has")
    return InputError(rule, value=error.value, place=error.place)


def _read(path: Path | None) -> PerformanceModel | None:
    return None if path is None else read_performance(path)


def describe_generator(name: str) -> dict[str, dict[str, object]]:
    """Return a generator's options with type, bounds, default and description.

    Raises:
        InputError: no generator has this name.
    """
    return describe(generator_named(name).options_type)
