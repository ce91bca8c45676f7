"""Checks objects against the types of the ``kubernetes`` client: no unknown field, no missing one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes import client


def faults(document: Mapping[str, Any]) -> list[str]:
    """What is wrong with an object, each with its path; an empty list: nothing."""
    version, kind = str(document["apiVersion"]), str(document["kind"])
    name = "".join(part[:1].upper() + part[1:] for part in version.rpartition("/")[2].split(".")) + kind
    model = getattr(client, name, None)
    if model is None:
        return [f"{version} {kind}: no such type"]
    found = list(_object(document, model, kind))
    if not found:
        model.model_validate(document)  # the leaves, as strictly as the client itself checks them
    return found


def _object(given: Any, model: Any, path: str) -> Iterator[str]:
    if not isinstance(given, Mapping):
        yield f"{path}: must be an object, but is {given!r}"
        return
    names = {written: name for name, written in model.attribute_map.items()}
    yield from (f"{path}.{key}: no such field" for key in given if key not in names)
    for name, field in model.model_fields.items():
        if field.is_required() and model.attribute_map.get(name, name) not in given:
            yield f"{path}.{model.attribute_map.get(name, name)}: is missing"
    for key, below in given.items():
        if key in names:
            yield from _typed(below, model.openapi_types[names[key]], f"{path}.{key}")


def _typed(given: Any, kind: str, path: str) -> Iterator[str]:
    if found := re.fullmatch(r"List\[(.+)\]", kind):
        if not isinstance(given, list):
            yield f"{path}: must be a list, but is {given!r}"
            return
        for index, one in enumerate(given):
            yield from _typed(one, found[1], f"{path}[{index}]")
    elif found := re.fullmatch(r"Dict\[str, (.+)\]", kind):
        if not isinstance(given, Mapping):
            yield f"{path}: must be an object, but is {given!r}"
            return
        for key, one in given.items():
            yield from _typed(one, found[1], f"{path}.{key}")
    elif kind in _LEAVES:
        if not isinstance(given, _LEAVES[kind]) or (kind == "int" and isinstance(given, bool)):
            yield f"{path}: must be a {kind}, but is {given!r}"
    else:
        yield from _object(given, getattr(client, kind), path)


_LEAVES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": (str, int, dict)}
