"""Encodes events and decisions as plain JSON values and decodes them exactly, for journals, checkpoints and messages.

Plain values are written unchanged; any other value is written as an object with one key that names its type:

====================  =============================================================
``{"is": "Started"}``  a dataclass of the core, with its fields as further keys; defaults are omitted
``{"enum": "A.B"}``    a member of one of the core's enumerations
``{"array": "<i8"}``   a numpy array; ``of``: its items, ``shape`` unless it has one dimension
``{"tuple": [...]}``   a tuple; likewise ``frozenset``, ``dict`` (pairs), ``bytes`` (base64)
``{"runs": [[n, x]]}`` a tuple in run-length encoding: n times x
``{"float": "inf"}``   a float that has no JSON number
====================  =============================================================

Only types of the core can be decoded, so that hostile input cannot create objects of other types.
"""

import dataclasses
import importlib
import itertools
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import numpy as np

from eunomia.errors import EunomiaError, InputError

Json = Any
"""A value that the module ``json`` can write: None, bool, int, float, str, and lists and dicts of these."""

MODULES: Final = (
    "eunomia.units",
    "eunomia.contract.verdicts",
    "eunomia.contract.claims",
    "eunomia.model.forecasts",
    "eunomia.model.adaptations",
    "eunomia.model.kind_profiles",
    "eunomia.contract.bundles",
    "eunomia.contract.valuations",
    "eunomia.contract.offers",
    "eunomia.model.workload",
    "eunomia.model.leases",
    "eunomia.model.cluster",
    "eunomia.contract.explanations",
    "eunomia.contract.decisions",
    "eunomia.contract.events",
)
"""Modules whose types can be encoded; type names must be unique among them."""

RUN_ITEMS, MOST_RUN_ITEMS = 64, 1_000_000
_DTYPES: Final = frozenset({"<i4", "<i8", "<f8", "<f4", "|b1", "|O"})


def encode(value: object) -> Json:
    """Encode a value in a form that ``json.dumps`` accepts.

    A numpy scalar becomes a Python number; a ``NewType`` is written as its base type.

    Raises:
        EunomiaError: the value's type cannot be encoded.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float) and not isinstance(value, Enum):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, Enum):
        return {"enum": f"{_name(type(value))}.{value.name}"}
    if isinstance(value, np.generic):
        return encode(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    raise _unknown(type(value))


def decode(made: Json) -> Any:
    """Decode a value that ``encode`` returned.

    Raises:
        InputError: ``encode`` did not return this value, or a version of Eunomia with other types did.
    """
    if isinstance(made, list):
        return [decode(item) for item in made]
    if not isinstance(made, dict):
        return made
    if "is" in made:
        return _made(made)
    for tag, reader in _READERS.items():
        if tag in made:
            try:
                return reader(made)
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise InputError(f"an encoded {tag} must be readable", value=str(made)[:80]) from error
    raise InputError("an encoded value must name its type", value=str(sorted(made))[:80])


# --- writing -----------------------------------------------------------------------------------------------------


def _array(value: Any) -> Json:
    kind = value.dtype.newbyteorder("<").str
    if kind not in _DTYPES:
        raise EunomiaError("an encoded array must hold numbers, truth values or strings", value=str(value.dtype))
    items = value.ravel().tolist()
    if kind == "|O":
        items = [encode(item) for item in items]
    elif kind in ("<f8", "<f4") and not np.isfinite(value).all():
        items = [item if math.isfinite(item) else repr(item) for item in items]
    made = {"array": kind, "of": items}
    return made if value.ndim == 1 else made | {"shape": list(value.shape)}


def _tuple(value: tuple[Any, ...]) -> Json:
    runs = [list(same) for _, same in itertools.groupby(value, key=id)] if len(value) >= RUN_ITEMS else ()
    few = 0 < 4 * len(runs) <= len(value)
    return {"runs": [[len(same), encode(same[0])] for same in runs]} if few else {"tuple": [*map(encode, value)]}


def _record(value: Any) -> Json:
    made: dict[str, Json] = {"is": _name(type(value))}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if not _is_default(item, field):
            made[field.name] = encode(item)
    return made


def _is_default(item: object, field: "dataclasses.Field[Any]") -> bool:
    """Return whether a field equals its default bit by bit: -0.0 differs from 0.0, and NaN equals NaN."""
    default = field.default
    if default is dataclasses.MISSING or type(item) is not type(default):
        return False
    return item is default or repr(item) == repr(default)


def _name(kind: type) -> str:
    if _known().get(kind.__name__) is not kind:
        raise _unknown(kind)
    return kind.__name__


def _unknown(kind: type) -> EunomiaError:
    rule = "an encoded value must be plain, a numpy array, or of a type of eunomia's core"
    return EunomiaError(rule, value=f"{kind.__module__}.{kind.__qualname__}")


_WRITERS: Final[Mapping[type, Callable[[Any], Json]]] = {
    list: lambda value: [encode(item) for item in value],
    tuple: _tuple,
    frozenset: lambda value: {"frozenset": sorted((encode(item) for item in value), key=str)},
    dict: lambda value: {"dict": [[encode(key), encode(item)] for key, item in value.items()]},
    bytes: lambda value: {"bytes": b64encode(value).decode()},
    np.ndarray: _array,
}


# --- reading -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _known() -> Mapping[str, type]:
    """Return the core's dataclasses and enumerations by name."""
    known: dict[str, type] = {}
    for module in MODULES:
        for name, kind in vars(importlib.import_module(module)).items():
            own = isinstance(kind, type) and kind.__module__ == module
            if own and (dataclasses.is_dataclass(kind) or issubclass(kind, Enum)):
                if name in known:
                    raise EunomiaError("names of encoded types must be unique", value=name, place=module)
                known[name] = kind
    return known


def _made(made: dict[str, Json]) -> Any:
    kind = _known().get(str(made["is"]))
    if kind is None or issubclass(kind, Enum):
        raise InputError("an encoded value must be of a type of eunomia's core", value=f'"{made["is"]}"')
    fields = {name: decode(item) for name, item in made.items() if name != "is"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise InputError(f"an encoded {made['is']} must have the fields of one", value=str(error)) from error


def _member(made: dict[str, Json]) -> Enum:
    kind, _, member = str(made["enum"]).partition(".")
    found = _known().get(kind)
    if found is None or not issubclass(found, Enum):
        raise InputError("an encoded member must be of an enumeration of eunomia's core", value=f'"{kind}"')
    return found[member]


def _runs(made: dict[str, Json]) -> tuple[Any, ...]:
    if sum(count for count, _ in made["runs"]) > MOST_RUN_ITEMS:
        raise ValueError("too many items")
    return tuple(item for count, one in made["runs"] for item in [decode(one)] * count)


def _numbers(made: dict[str, Json]) -> Any:
    kind, items = made["array"], made["of"]
    if kind not in _DTYPES:
        raise InputError("an encoded array must be of a known type", value=f'"{kind}"')
    if kind == "|O":
        array = np.empty(len(items), dtype=object)
        array[:] = [decode(item) for item in items]
    else:
        array = np.array(items, dtype=kind)
    return array.reshape(made["shape"]) if "shape" in made else array


_READERS: Final[Mapping[str, Callable[[dict[str, Json]], Any]]] = {
    "array": _numbers,
    "tuple": lambda made: tuple(decode(item) for item in made["tuple"]),
    "runs": _runs,
    "enum": _member,
    "float": lambda made: float(made["float"]),
    "frozenset": lambda made: frozenset(decode(item) for item in made["frozenset"]),
    "dict": lambda made: {decode(key): decode(item) for key, item in made["dict"]},
    "bytes": lambda made: b64decode(made["bytes"], validate=True),
}
