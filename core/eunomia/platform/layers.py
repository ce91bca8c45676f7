"""Merge the layers of a profile (presets, files, settings) key by key, and record the origin of each value."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.platform.toml_bounds import SMALL, Bounds, check_size, parse_toml
from eunomia.words import did_you_mean, shown

Path_ = tuple[str, ...]


@value
class Merged:
    """The merged tables of a profile, with the file or flag that each value came from."""

    tree: Mapping[str, Any]
    origins: Mapping[Path_, str]

    def place(self, path: Path_) -> str:
        """Return the file and key of a value, such as ``mixed.toml, [rounds].lease``; for a setting, the flag."""
        origin = self.origin(path)
        if origin.startswith("--"):
            return origin
        table, key = ".".join(path[:-1]), path[-1]
        return f"{origin}, [{table}].{key}" if table else f"{origin}, {key}"

    def table_place(self, path: Path_) -> str:
        """Return the file and table of a path, such as ``mixed.toml, [stages]``."""
        return f"{self.origin(path)}, [{'.'.join(path)}]"

    def origin(self, path: Path_) -> str:
        """Return the file or flag of the value at a path; for a table, the last layer that set a key in it."""
        if path in self.origins:
            return self.origins[path]
        below = [origin for key, origin in self.origins.items() if key[: len(path)] == path]
        if below:
            return below[-1]
        return self.origin(path[:-1]) if path else "profile"


NOTHING = Merged(tree={}, origins={})


def merge(base: Merged, layer: Mapping[str, Any], origin: str) -> Merged:
    """Return the result of merging a layer: tables are merged key by key, all other values are replaced."""
    origins = dict(base.origins)
    tree = _merged(base.tree, layer, (), origins, origin)
    return Merged(tree=tree, origins=origins)


def _merged(
    base: Mapping[str, Any], layer: Mapping[str, Any], path: Path_, origins: dict[Path_, str], origin: str
) -> dict[str, Any]:
    tree = dict(base)
    for key, item in layer.items():
        here = (*path, key)
        if isinstance(item, Mapping):
            below = tree.get(key)
            origins.pop(here, None)
            tree[key] = _merged(below if isinstance(below, Mapping) else {}, item, here, origins, origin)
            if not item:
                origins[here] = origin
            continue
        for old in [old for old in origins if old[: len(here)] == here]:
            del origins[old]
        tree[key] = item
        origins[here] = origin
    return tree


def read_text(path: Path, what: str = "a profile", bounds: Bounds = SMALL) -> str:
    """Return the text of a file.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is too large.
    """
    try:
        check_size(path.stat().st_size, what, place=path.name, bounds=bounds)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("a file must be readable text", value=str(error), place=path.name) from error


def is_file(path: Path) -> bool:
    """Return whether a file exists; a path that is invalid on this system counts as missing."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_toml(text: str, *, place: str) -> dict[str, Any]:
    """Parse TOML text.

    Raises:
        InputError: the text is not TOML (the error gives line and column), or is too large or too deeply nested.
    """
    return parse_toml(text, "a profile", place=place)


def read_setting(path: str, given: object) -> dict[str, Any]:
    """Convert the value of a dotted key such as ``plugins.themis.fairness_knob`` to nested tables.

    Raises:
        InputError: the path is not a dotted key.
    """
    try:
        nested = parse_toml(f"{path} = 0", "a setting", place="--set")
    except InputError as error:
        raise InputError("a setting must be a dotted key", value=shown(path), place="--set") from error
    at = nested
    while True:
        (key,) = at
        if not isinstance(at[key], dict):
            at[key] = given
            return nested
        at = at[key]


def parse_setting(text: str) -> tuple[str, object]:
    """Parse ``KEY=VALUE``, as given to ``--set``; the value is TOML, or an unquoted word read as a string.

    Raises:
        InputError: the text contains no ``=``.
    """
    path, equals, given = text.partition("=")
    if not equals or not path.strip():
        raise InputError("a setting must be written KEY=VALUE", value=shown(text), place="--set")
    try:
        return path.strip(), parse_toml(f"it = {given}", "a setting", place="--set")["it"]
    except InputError:
        return path.strip(), given.strip()


def layers_of(
    given: Mapping[str, Any], origin: str, folder: Path | None, find: Callable[[str], Path | None]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the profiles that a profile extends, base first, then the profile itself, each with its origin.

    Args:
        given: the parsed profile.
        origin: file of the profile.
        folder: folder for relative paths in the profile; None: the profile can extend presets only.
        find: returns the file of a preset by name; None: there is no such preset.

    Raises:
        InputError: an extended profile does not exist, or profiles extend each other in a cycle.
    """
    chain = [({key: item for key, item in given.items() if key != "extends"}, origin)]
    seen: list[Path] = []
    while (parent := given.get("extends")) is not None:
        where = f"{origin}, extends"
        if not isinstance(parent, str):
            raise InputError("extends must name a preset or a file", value=shown(parent), place=where)
        file = _parent(parent, folder, find)
        if file is None or not file.is_file():
            raise InputError("extends must name a preset or a file", value=shown(parent), place=where)
        if file.resolve() in seen:
            raise InputError("extends must come to an end", value=f"{shown(parent)} again", place=where)
        seen.append(file.resolve())
        given, origin, folder = read_toml(read_text(file), place=file.name), file.name, file.parent
        chain.append(({key: item for key, item in given.items() if key != "extends"}, origin))
    yield from reversed(chain)


def _parent(parent: str, folder: Path | None, find: Callable[[str], Path | None]) -> Path | None:
    if parent.endswith(".toml") or "/" in parent:
        return None if folder is None else folder / parent
    return find(parent)


def unknown_keys(merged: Merged, path: Path_, known: tuple[str, ...]) -> list[InputError]:
    """Return an error for each unknown key of a table, with the most similar known key."""
    table: Any = merged.tree
    for key in path:
        table = table.get(key, {})
    where = f"[{'.'.join(path)}]" if path else "the top of a profile"
    return [
        InputError(
            f"{where} must hold {', '.join(known)}",
            value=f'"{key}"{did_you_mean(key, known)}',
            place=merged.place((*path, key)),
        )
        for key in (table if isinstance(table, Mapping) else ())
        if key not in known
    ]
