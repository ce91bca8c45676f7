"""Reads ``--unknown-models``: the speeds assumed for models that the speed source lacks."""

from collections.abc import Mapping, Sequence
from typing import Final

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import builds
from eunomia.words import did_you_mean, shown
from eunomia_testbed.performance import PerformanceModel
from eunomia_testbed.performance.names import nearest, same_name, stand_in
from eunomia_testbed.traces.tables import brief
from eunomia_testbed.workload.adaptation import split_model

EQUAL: Final = "equal"
DROP: Final = "drop"
MOST_LISTED: Final = 20
_FORM: Final = "unknown models must be NAME, equal or drop, or MODEL=NAME with commas between several"


@builds
class UnknownModel:
    """A model of the workloads that the speed source lacks, with its jobs.

    Attributes:
        name: the name in the trace, at the batch size of the jobs; empty: the jobs name no model.
        jobs: number of the model's jobs in all workloads.
        gpu_hours: GPU-hours of these jobs by the trace's times; None: some of them have no time.
        timed: whether every such job has a time in the trace.
    """

    name: str
    jobs: int
    gpu_hours: float | None
    timed: bool


@builds
class Choices:
    """The values of ``--unknown-models``: a default, and exceptions by model name."""

    otherwise: str | None
    by_name: Mapping[str, str]

    def of(self, name: str) -> str | None:
        """Return the choice for a model by its name with or without batch size; None: there is no choice."""
        return self.by_name.get(name, self.by_name.get(split_model(name)[0], self.otherwise))


def choices_of(texts: Sequence[str], known: Sequence[str], place: str) -> Choices:
    """Return the choices given by the texts of ``--unknown-models``.

    Args:
        texts: each ``NAME``, ``equal``, ``drop``, or ``MODEL=NAME|equal|drop`` with commas between several.
        known: names of the speed source, which may contain commas.
        place: name of the flag, for errors.

    Raises:
        InputError: a text has another form, or a model has two values.
    """
    by_name: dict[str, str] = {}
    otherwise: str | None = None
    for text in texts:
        if "=" not in text or text in known:
            if not text.strip() or otherwise not in (None, text.strip()):
                raise InputError(_FORM, value=", ".join(shown(brief(each)) for each in texts), place=place)
            otherwise = text.strip()
            continue
        parts = [text] if text.rpartition("=")[2].strip() in known and text.count("=") == 1 else text.split(",")
        for part in parts:
            name, equals, chosen = (word.strip() for word in part.rpartition("="))
            if not equals or not chosen or by_name.get(name, chosen) != chosen:
                raise InputError(_FORM, value=shown(brief(part)), place=place)
            by_name[name] = chosen
    return Choices(otherwise=otherwise, by_name=by_name)


def assumed_of(
    unknown: Sequence[UnknownModel], choices: Choices, models: PerformanceModel, place: str
) -> tuple[dict[str, str | None], frozenset[str]]:
    """Return by model the name whose speeds it takes (None: equal speeds), and the models to drop.

    Raises:
        InputErrors: models have no choice, choices are not in the speed source, ``equal`` is chosen for jobs without a
            time, or choices are for models that the speed source has; all are reported.
    """
    assumed: dict[str, str | None] = {}
    dropped: list[str] = []
    missing: list[UnknownModel] = []
    errors = _choices_for_nothing(unknown, choices, place)
    for each in unknown:
        chosen = choices.of(each.name)
        if chosen is None:
            missing.append(each)
        elif chosen == DROP:
            dropped.append(each.name)
        elif chosen == EQUAL:
            assumed[each.name] = None
            if not each.timed:
                rule = "a model that is equally fast on all types must have times in the trace (seconds_per_iteration)"
                errors.append(InputError(rule, value=_named(each.name), place=place))
        else:
            assumed[each.name] = chosen
            errors += _not_known(models, chosen, each.name, place)
    if missing:
        errors.append(_missing(missing, models, place))
    if errors:
        raise InputErrors(list({str(error): error for error in errors}.values()))
    return assumed, frozenset(dropped)


def _not_known(models: PerformanceModel, chosen: str, name: str, place: str) -> list[InputError]:
    try:
        stand_in(models, chosen, name, None)
    except InputError as error:
        return [InputError(error.rule, value=error.value, place=place)]
    return []


def _choices_for_nothing(unknown: Sequence[UnknownModel], choices: Choices, place: str) -> list[InputError]:
    """Return an error for each choice for a model that is misspelt, or that the speed source has."""
    names = {each.name for each in unknown} | {split_model(each.name)[0] for each in unknown}
    rule = "a model with a choice of its own must be one of the trace that the speed source lacks"
    return [
        InputError(rule, value=f"{_named(name)}{did_you_mean(name, names)}", place=place)
        for name in choices.by_name
        if name not in names
    ]


def _missing(missing: Sequence[UnknownModel], models: PerformanceModel, place: str) -> InputError:
    """Return the error that lists unknown models by descending GPU-hours, at most ``MOST_LISTED``."""
    worst = sorted(missing, key=lambda each: (-(each.gpu_hours or 0.0), -each.jobs, each.name))
    listed = ", ".join(_listed(each, models.models) for each in worst[:MOST_LISTED])
    listed += f" and {len(worst) - MOST_LISTED} more" if len(worst) > MOST_LISTED else ""
    source = getattr(models, "place", "given in Python")
    rule = (
        f"every model must have speeds in the speed source ({source}); {place} NAME takes that model's speeds for the "
        "others, equal the same speed on all types, drop leaves their jobs out"
    )
    return InputError(rule, value=f"none for {listed}{_as_pairs(worst, models.models, place)}")


def _listed(each: UnknownModel, known: Sequence[str]) -> str:
    near = nearest(known, each.name) if each.name else ""
    jobs = f"{each.jobs:,} job{'s' * (each.jobs != 1)}"
    hours = "" if each.gpu_hours is None else f", {each.gpu_hours:,.3g} GPU hours"
    hint = f"; did you mean {near}?" if near else ""
    return f"{_named(each.name)} ({jobs}{hours}{hint})"


def _as_pairs(missing: Sequence[UnknownModel], known: Sequence[str], place: str) -> str:
    """Return a flag that maps all models, if each matches one known name up to case and punctuation."""
    pairs = [(each.name, same_name(known, each.name)) for each in missing[:MOST_LISTED]]
    if len(missing) > MOST_LISTED or not all(name and other for name, other in pairs):
        return ""
    text = ",".join(f"{name}={other}" for name, other in pairs)
    return f'; as spelt there: {place} "{text}"'


def _named(name: str) -> str:
    return shown(brief(name)) if name else "jobs without a model"
