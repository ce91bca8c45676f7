"""Stores counterexamples as JSON files, which ``eunomia audit`` can read and judge again."""

import json
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_testbed.audit.instances import AuditInstance, Table, instance_from
from eunomia_testbed.audit.violations import Violation, property_of

SCHEMA: Final = "eunomia/counterexample@1"


@value
class Stored:
    """A counterexample as stored in its file: the violation and the profile that violates the property."""

    profile: str
    settings: tuple[str, ...]
    found: Violation


def write(path: Path, stored: Stored) -> None:
    """Write a counterexample as JSON."""
    found = stored.found
    plain = {
        "schema": SCHEMA,
        "profile": stored.profile,
        "settings": list(stored.settings),
        "property": found.kind.value,
        "over_rounds": found.over_rounds,
        "size": found.size,
        "seed": found.seed,
        "instance": found.instance.plain(),
        "users": list(found.users),
        "reports": found.reports,
        "gpus": found.gpus,
        "other": found.other,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Stored:
    """Read a counterexample.

    Raises:
        InputError: the file does not exist, or is no counterexample.
    """
    place = path.name
    plain = _loaded(path)
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise InputError(f'a counterexample must have the schema "{SCHEMA}"', value=_schema(plain), place=place)
    instance = instance_from(plain.get("instance"), place)
    kind = property_of(str(plain.get("property")), place)
    users = _users(plain.get("users"), instance, place)
    reports = _table(plain.get("reports"), instance, "reports", place)
    if kind.by_lying and (reports is None or not users):
        raise InputError("a lie must have users and reports", value="none", place=place)
    settings, seed, size = plain.get("settings", []), plain.get("seed", 0), plain.get("size")
    if not isinstance(seed, int) or not isinstance(size, int | float) or not isinstance(settings, list):
        raise InputError("a counterexample must have a seed, a size and settings", value=repr(seed), place=place)
    found = Violation(
        kind=kind,
        size=float(size),
        instance=instance,
        gpus=_table(plain.get("gpus"), instance, "gpus", place) or (),
        users=users,
        reports=reports,
        other=_table(plain.get("other"), instance, "other", place),
        seed=seed,
        over_rounds=bool(plain.get("over_rounds", False)),
    )
    return Stored(profile=str(plain.get("profile")), settings=tuple(map(str, settings)), found=found)


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        rule = "a counterexample must be a file that can be read"
        raise InputError(rule, value=f"{path}: {error.strerror}", place="--replay") from error
    except ValueError as error:
        raise InputError("a counterexample must be JSON", value=str(error), place=path.name) from error


def _schema(plain: object) -> str:
    return repr(plain.get("schema")) if isinstance(plain, dict) else type(plain).__name__


def _users(plain: object, instance: AuditInstance, place: str) -> tuple[int, ...]:
    known = range(instance.users)
    if not isinstance(plain, list) or any(isinstance(user, bool) or user not in known for user in plain):
        raise InputError(f"users must be numbers from 0 to {instance.users - 1}", value=repr(plain), place=place)
    return tuple(plain)


def _table(plain: object, instance: AuditInstance, key: str, place: str) -> Table | None:
    if plain is None:
        return None
    rule = f"{key} must have a row for each user and a number for each GPU type"
    if not isinstance(plain, list) or len(plain) != instance.users:
        raise InputError(rule, value=repr(plain), place=place)
    for row in plain:
        suits = isinstance(row, list) and len(row) == instance.types
        if not suits or not all(isinstance(item, int | float) and item >= 0 for item in row):
            raise InputError(rule, value=repr(row), place=place)
    return tuple(tuple(map(float, row)) for row in plain)
