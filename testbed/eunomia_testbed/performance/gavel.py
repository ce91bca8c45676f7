"""Throughputs in the format of Gavel and Shockwave: steps per second by GPU type, job type, gang and pair.

Source of the format: ``stanford-futuredata/gavel`` (OSDI'20) and ``uw-mad-dash/shockwave`` (NSDI'23), JSON of
``{type: {"('<job type>', <gang>)": {"null": alone, "('<other>', <gang>)": [own, other's]}}}``.
"""

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from eunomia.errors import InputError
from eunomia.units import Locality
from eunomia_testbed.performance.curves import Curve
from eunomia_testbed.performance.reading import number, read_text, unknown, whole
from eunomia_testbed.performance.speeds import Setting
from eunomia_testbed.workload.adaptation import named_model, split_model

_APART: Final = "_unconsolidated"
_JOB_TYPE: Final = re.compile(r"""\((['"])(?P<model>.*)\1, (?P<gang>\d+)\)""")
_Key = tuple[str, str]
"""GPU type as in the file, and job type."""


class GavelThroughputs:
    """Measured steps per second of 26 job types; a step of the whole gang counts once, whatever the gang's size.

    GPU types are case-insensitive. GPUs on several machines run at the ``_unconsolidated`` rates if the file has them.
    Rates between measured gangs are interpolated linearly, and larger gangs run no faster. ``Setting.batch_size``
    selects the job type of that batch size.
    """

    def __init__(
        self,
        alone: Mapping[_Key, Curve],
        pairs: Mapping[tuple[str, str, int, str], float],
        *,
        place: str,
        placement: bool = True,
    ) -> None:
        self.place = place
        self.placement = placement
        """Whether a gang's placement on machines affects its speed; in the papers' published simulations it does
        not."""
        self._alone = dict(alone)
        self._pairs = dict(pairs)
        self._names = {kind.lower(): kind for kind, _ in alone}
        self._models = tuple(dict.fromkeys(model for _, model in alone))
        self._known = frozenset(self._models)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle to the same bytes in every process, so that a resumed run recognizes its throughputs."""
        made = functools.partial(type(self), place=self.place, placement=self.placement)
        return made, (self._alone, self._pairs)

    @classmethod
    def read(cls, path: Path | str, *, placement: bool = True) -> Self:
        """Read a file, gzipped or not.

        Raises:
            InputError: the file is missing, not JSON or of another format, names a job type or GPU type twice, or a
                rate is negative or not a number.
        """
        found = _read_once(str(path), _stamp(Path(path)))
        return cls(found._alone, found._pairs, place=found.place, placement=placement)

    @classmethod
    def from_mapping(cls, content: object, *, place: str, placement: bool = True) -> Self:
        """Check the content of such a file and return its throughputs.

        Raises:
            InputError: see ``read``.
        """
        alone: dict[_Key, dict[int, float]] = {}
        pairs: dict[tuple[str, str, int, str], float] = {}
        for kind, model, gang, rates, where in _entries(content, place):
            of_model = alone.setdefault((kind, model), {})
            if gang in of_model:
                raise InputError("a job type must stand once for a gang and GPU type", value="it twice", place=where)
            of_model[gang] = number(rates.get("null"), name="null", place=where)
            for other, rate in _pair_rates(rates, gang, where):
                pairs[kind, model, gang, other] = rate
        if not alone:
            raise InputError("throughputs must hold at least one job type", value="none", place=place)
        return cls({key: Curve.of(points) for key, points in alone.items()}, pairs, place=place, placement=placement)

    def without_placement(self) -> "GavelThroughputs":
        """Return the same throughputs without the effect of placement, as in the published simulations."""
        return GavelThroughputs(self._alone, self._pairs, place=self.place, placement=False)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the job types, such as ``ResNet-18 (batch size 32)``, in the file's order."""
        return self._models

    def knows(self, model: str, batch_size: float | None) -> bool:
        """Return whether a job type is in the file, at the given batch size or at the one in its name."""
        return _job_type(model, batch_size, self._known) is not None

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Return the GPU types as in the file, without those that end in ``_unconsolidated``."""
        return tuple(name for name in self._names.values() if not name.endswith(_APART))

    def gangs(self, model: str) -> tuple[int, ...]:
        """Return the gang sizes that are measured for a job type on any GPU type."""
        curves = [curve for (_, name), curve in self._alone.items() if name == self._name(model, None)]
        return tuple(sorted({int(gang) for curve in curves for gang in curve.gpus}))

    def rate(self, model: str, setting: Setting) -> float:
        """Return iterations per second of the whole job; 0: the job cannot run in this setting.

        Raises:
            InputError: the file does not have the model or the GPU type.
        """
        kind = self._kind(setting.gpu_type, setting.locality if self.placement else Locality.MACHINE)
        name = self._name(model, setting.batch_size)
        curve = self._curve(kind, name)
        if curve is None:
            return 0.0
        if setting.beside is None:
            return curve.at(setting.gpus)
        return self._pairs.get((kind, name, setting.gpus, self._name(setting.beside, None)), 0.0)

    def measured(self, model: str, gpus: int, gpu_type: str) -> float:
        """Return the measured steps per second of a gang alone on one machine, from which traces compute jobs' work.

        Raises:
            InputError: the model or GPU type is unknown, the gang is not measured, or its rate is 0.
        """
        kind, name = self._kind(gpu_type, Locality.MACHINE), self._name(model, None)
        curve = self._alone.get((kind, name))
        rate = curve.at(gpus) if curve is not None and gpus in curve.gpus else None
        if rate is None or rate == 0.0:
            value = "it is not measured" if rate is None else "0.0"
            rule = f"the throughput of {name} with {gpus} GPUs on {gpu_type} must be above 0"
            raise InputError(rule, value=value, place=self.place)
        return rate

    def is_measured(self, model: str, gpus: int, gpu_type: str) -> bool:
        """Return whether ``measured`` has a rate for these arguments.

        Raises:
            InputError: the model or GPU type is unknown.
        """
        curve = self._alone.get((self._kind(gpu_type, Locality.MACHINE), self._name(model, None)))
        return curve is not None and gpus in curve.gpus and curve.at(gpus) > 0.0

    def _kind(self, gpu_type: str, locality: Locality) -> str:
        name = gpu_type.lower()
        if name not in self._names or name.endswith(_APART):
            raise unknown("GPU type", gpu_type, self.gpu_types, self.place)
        apart = self._names.get(name + _APART) if locality > Locality.MACHINE else None
        return apart or self._names[name]

    def _curve(self, kind: str, name: str) -> Curve | None:
        curve = self._alone.get((kind, name))
        return curve if curve is not None else self._alone.get((kind.removesuffix(_APART), name))

    def _name(self, model: str, batch: float | None) -> str:
        found = _job_type(model, batch, self._known)
        if found is None:
            raise unknown("model", model if batch is None else named_model(model, int(batch)), self.models, self.place)
        return found


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a file's modification time in nanoseconds and its size in bytes; None: they are unknown."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(maxsize=2)
def _read_once(place: str, stamp: tuple[int, int] | None) -> GavelThroughputs:
    """Read each version of a file once; the trace reader and the simulation's true speeds share the result."""
    try:
        content = json.loads(read_text(Path(place)), object_pairs_hook=_once)
    except _TwiceError as error:
        rule = "a name must stand once in a table of throughputs"
        raise InputError(rule, value=f"{error} twice", place=place) from None
    except json.JSONDecodeError as error:
        raise InputError("throughputs must be JSON", value=str(error), place=place) from error
    except RecursionError as error:
        raise InputError(
            "throughputs must be tables in tables", value="thousands in each other", place=place
        ) from error
    return GavelThroughputs.from_mapping(content, place=place)


class _TwiceError(Exception):
    """A JSON object has the same key twice, of which Python's reader would silently keep the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


@functools.lru_cache(maxsize=4096)
def _job_type(model: str, batch: float | None, known: frozenset[str]) -> str | None:
    """Return the file's name for a model at a batch size, or its plain name if the file has no batch sizes."""
    family, own = split_model(model)
    size = own if batch is None else int(batch)
    return next((name for name in (named_model(family, size), family) if name in known), None)


def _entries(content: object, place: str) -> Iterator[tuple[str, str, int, Mapping[str, Any], str]]:
    kinds = [kind.lower() for kind in _mapping(content, place)]
    if len(set(kinds)) < len(kinds):
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        raise InputError(
            "a GPU type must stand once, whatever its case", value=f"{', '.join(twice)} twice", place=place
        )
    for kind, job_types in _mapping(content, place).items():
        for text, rates in _mapping(job_types, f"{place}, {kind}").items():
            where = f"{place}, {kind}, {text}"
            model, gang = _parse(text, where)
            yield kind, model, gang, _mapping(rates, where), where


def _pair_rates(rates: Mapping[str, Any], gang: int, place: str) -> Iterator[tuple[str, float]]:
    for text, both in rates.items():
        if text == "null":
            continue
        other, others_gang = _parse(text, place)
        if not isinstance(both, Sequence) or len(both) != 2:
            raise InputError("a pair must have two rates", value=repr(both), place=f"{place}, {text}")
        if others_gang != gang:
            continue
        own = both[0]
        if type(own) is not float or not 0.0 <= own < math.inf:  # fast path: tens of thousands of pairs
            own = number(own, name="a pair's own rate", place=f"{place}, {text}")
        yield other, own


def _parse(text: str, place: str) -> tuple[str, int]:
    found = _parsed(text)
    if found is None:
        raise InputError("a job type must be written ('<model>', <GPUs>)", value=f'"{text}"', place=place)
    model, gang = found
    return model, gang if isinstance(gang, int) else whole(gang, name="GPUs", place=place)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[str, int | str] | None:
    """Return job type and number of GPUs, which stays text if it is 0 or has over 8 digits; None: another format."""
    match = _JOB_TYPE.fullmatch(text)
    if match is None:
        return None
    plain = len(match["gang"]) < 9 and int(match["gang"]) > 0
    return match["model"], int(match["gang"]) if plain else match["gang"]


def _mapping(content: object, place: str) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise InputError("throughputs must be tables in tables", value=type(content).__name__, place=place)
    return content
