"""The table ``[rounds]`` of a profile: when a round runs, which GPUs it may reassign, and how long its leases are."""

from collections.abc import Callable, Mapping
from typing import Any

from eunomia.contract.stages import Rounds
from eunomia.errors import InputError
from eunomia.platform.layers import Merged, unknown_keys
from eunomia.units import Cause, Scope, Seconds, parse_duration
from eunomia.words import did_you_mean, exact_duration, list_of, shown

KEYS = (
    "on",
    "every",
    "settle",
    "scope",
    "lease",
    "protected",
    "when_unprotected",
    "bid_deadline",
    "suspend_grace",
    "faults_allowed",
)
CAUSES = tuple(cause.value for cause in Cause if cause not in (Cause.BOUNDARY, Cause.WAKE))
"""Causes of rounds that a profile may name; period boundaries and wake-ups follow from ``every`` and the stages."""
UNLIMITED = "unlimited"
NOTHING = "none"


def read_rounds(merged: Merged, errors: list[InputError]) -> Rounds:
    """Parse ``[rounds]``; errors are appended to ``errors``."""
    table = merged.tree.get("rounds", {})
    if not isinstance(table, Mapping):
        errors.append(InputError("rounds must be a table", value=shown(table), place=merged.place(("rounds",))))
        return Rounds()
    errors += unknown_keys(merged, ("rounds",), KEYS)
    read: dict[str, Any] = {}
    for key in KEYS:
        if key in table:
            try:
                read[key] = _READERS[key](table[key], key, merged.place(("rounds", key)))
            except InputError as error:
                errors.append(error)
    return Rounds(**read)


def written_rounds(rounds: Rounds) -> dict[str, object]:
    """Return ``[rounds]`` as written in a profile, without keys left to the allocation."""
    written: dict[str, object] = {}
    if rounds.on is not None:
        written["on"] = [name for name in CAUSES if Cause(name) in rounds.on]
    for key in ("every", "settle", "protected", "bid_deadline"):
        seconds = getattr(rounds, key)
        if seconds is not None:
            written[key] = exact_duration(seconds)
    if rounds.when_unprotected is not None:
        written["when_unprotected"] = rounds.when_unprotected
    if rounds.scope is not None:
        written["scope"] = rounds.scope.value
    written["lease"] = UNLIMITED if rounds.lease is None else exact_duration(rounds.lease)
    written["suspend_grace"] = exact_duration(rounds.suspend_grace)
    written["faults_allowed"] = rounds.faults_allowed
    return {key: written[key] for key in KEYS if key in written}


def _causes(given: object, key: str, place: str) -> frozenset[Cause]:
    rule = f"{key} must be a list of {', '.join(CAUSES)}"
    if not isinstance(given, list):
        raise InputError(rule, value=shown(given), place=place)
    for name in given:
        if name not in CAUSES:
            raise InputError(rule, value=f"{shown(name)}{did_you_mean(str(name), CAUSES)}", place=place)
    return frozenset(Cause(name) for name in given)


def _duration(given: object, key: str, place: str) -> Seconds | None:
    return None if given == NOTHING else parse_duration(given, name=key, place=place)


def _duration_or_zero(given: object, key: str, place: str) -> Seconds | None:
    return None if given == NOTHING else parse_duration(given, name=key, place=place, zero=True)


def _scope(given: object, key: str, place: str) -> Scope:
    names = [scope.value for scope in Scope]
    if given not in names:
        raise InputError(f"{key} must be {list_of(names)}", value=shown(given), place=place)
    return Scope(given)


def _truth(given: object, key: str, place: str) -> bool:
    if not isinstance(given, bool):
        raise InputError(f"{key} must be true or false", value=shown(given), place=place)
    return given


def _count(given: object, key: str, place: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 1000:
        raise InputError(f"{key} must be a whole number between 1 and 1000", value=shown(given), place=place)
    return given


_READERS: Mapping[str, Callable[[object, str, str], object]] = {
    "on": _causes,
    "every": _duration,
    "settle": _duration_or_zero,
    "scope": _scope,
    "lease": lambda given, key, place: None if given == UNLIMITED else parse_duration(given, name=key, place=place),
    "protected": _duration_or_zero,
    "when_unprotected": _truth,
    "bid_deadline": _duration,
    "suspend_grace": lambda given, key, place: parse_duration(given, name=key, place=place, zero=True),
    "faults_allowed": _count,
}
