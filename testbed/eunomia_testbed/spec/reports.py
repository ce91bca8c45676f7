"""Reads ``--know``, ``--error`` and ``--lie``: the knowledge of app masters, and the errors in their reports."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from eunomia.errors import InputError
from eunomia.words import did_you_mean, shown
from eunomia_testbed.simulator import Reports
from eunomia_testbed.simulator.options import ERRORS, FACTS, Fact, Knowledge
from eunomia_testbed.spec.settings import factors
from eunomia_testbed.spec.simulation import SimulationSpec

KNOWLEDGE: Final[Mapping[str, Knowledge]] = {name: name for name in get_args(Knowledge)}
_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_ERROR_RULE: Final = f"error must be a number, or KEY=NUMBER with one of {', '.join(ERRORS)}"


def reports_of(spec: SimulationSpec, apps: Iterable[str], gpu_types: Sequence[str]) -> Reports:
    """Return the options on the knowledge and reports of app masters.

    Args:
        spec: spec with ``know``, ``error`` and ``lie``.
        apps: ids of all apps of the workloads.
        gpu_types: GPU types of the cluster.

    Raises:
        InputError: a fact or quantity is unknown, or a misreport names an unknown app or GPU type.
    """
    error, errors = _errors(spec.error, spec.place("error"))
    of_work, of_types = _lies(factors(spec.lie, spec.place("lie")), apps, gpu_types, spec.place("lie"))
    return Reports(know=_known(spec), error=error, errors=errors, lies=of_work, type_lies=of_types)


def _known(spec: SimulationSpec) -> Knowledge | tuple[Fact, ...]:
    text = spec.know or ("declared" if spec.rules is None else "oracle")  # peers' policies know all rates
    if text in KNOWLEDGE:
        return KNOWLEDGE[text]
    words, place = [word.strip() for word in text.split(",")], spec.place("know")
    for word in words:
        if word in KNOWLEDGE:
            raise InputError("declared, measured and oracle must stand alone", value=shown(text), place=place)
        if word not in FACTS:
            rule = f"know must be declared, measured or oracle, or a list of {', '.join(FACTS)}"
            value = f"{shown(word)}{did_you_mean(word, (*KNOWLEDGE, *FACTS))}"
            raise InputError(rule, value=value, place=place)
    return tuple(fact for fact in FACTS if fact in words)


def _errors(given: float | tuple[str, ...], place: str) -> tuple[float, dict[str, float]]:
    """Return the relative error of work and rates, and the relative errors by quantity."""
    if isinstance(given, float | int):
        return given, {}
    plain: float | None = None
    errors: dict[str, float] = {}
    for part in (part.strip() for text in given for part in text.split(",")):
        key, equals, word = part.rpartition("=")
        if not _NUMBER.fullmatch(word) or (equals and key not in ERRORS):
            raise InputError(_ERROR_RULE, value=f"{shown(part)}{did_you_mean(key, ERRORS)}", place=place)
        if key in errors or (not key and plain is not None):
            raise InputError(f"error{' of ' if key else ''}{key} must be given once", value=shown(part), place=place)
        if key:
            errors[key] = float(word)
        else:
            plain = float(word)
    if plain is not None and {"work", "rates"} & set(errors):
        rule = "an error of work or rates must stand without a bare number, which is on both"
        raise InputError(rule, value=", ".join(given), place=place)
    return plain or 0.0, errors


def _lies(
    given: Mapping[str, float], apps: Iterable[str], gpu_types: Sequence[str], place: str
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return factors on work by app, and on rates by app and GPU type; app names may contain dots."""
    of_work: dict[str, float] = {}
    of_types: dict[str, dict[str, float]] = {}
    known = set(apps) if given else set()
    for name, factor in given.items():
        app, dot, kind = name.rpartition(".")
        if name in known:
            of_work[name] = factor
        elif dot and app in known and kind in gpu_types:
            of_types.setdefault(app, {})[kind] = factor
        elif dot and app in known:
            value = f"{shown(kind)}{did_you_mean(kind, gpu_types)}"
            raise InputError(f"a GPU type of a lie must be one of {', '.join(gpu_types)}", value=value, place=place)
        else:
            value = f"{shown(name)}{did_you_mean(name, known)}"
            raise InputError("a lie must be of an app of the workload", value=value, place=place)
    return of_work, of_types
