"""Parses options of trace readers, as given by ``--set trace.KEY=VALUE``."""

from collections.abc import Sequence
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import shown
from eunomia_testbed.spec.settings import filled


@value
class ReaderFlags:
    """Options of trace readers, as for ``read_trace``; lists are comma-separated text."""

    reference_type: str | None = None
    gpu_type: str | None = None
    models: str = ""
    drawn_models: bool = False
    model_seed: int = 0
    by_group: bool = False
    users: str = ""
    first_jobs: int | None = None


def reader_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the keyword arguments of ``read_trace`` given by ``KEY=VALUE`` texts.

    Raises:
        InputErrors: some keys are unknown or values invalid.
    """
    mapped = [text.removeprefix(_COLUMNS) for text in texts if text.startswith(_COLUMNS)]
    flags = filled(ReaderFlags, [text for text in texts if not text.startswith(_COLUMNS)], "--set trace")
    return {
        "reference_type": flags.reference_type,
        "gpu_type": flags.gpu_type,
        "models": _parts(flags.models),
        "drawn_models": flags.drawn_models,
        "seed": flags.model_seed,
        "by_group": flags.by_group,
        "users": _parts(flags.users),
        "first_jobs": flags.first_jobs,
        "columns": _mapping(mapped),
    }


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_COLUMNS: Final = "columns."


def _mapping(texts: Sequence[str]) -> dict[str, str]:
    """Return the column names, with units, by key from ``KEY=NAME`` or ``KEY=NAME:UNIT`` texts."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, name = text.partition("=")
        if not equals or key in found:
            rule = "--set trace.columns must be KEY=NAME or KEY=NAME:UNIT, each key once"
            raise InputError(rule, value=shown(text), place="--set trace")
        found[key] = name
    return found
