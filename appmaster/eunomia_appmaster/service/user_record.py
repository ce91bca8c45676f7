"""A user that the operator has added: limits, and the last token's hash; stored as a note in the journal."""

import dataclasses
import hashlib
import hmac
import math
import re
import secrets
from typing import Any, Final, Self

from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia.model.shapes import value
from eunomia_appmaster.protocol import arbiter_pb2 as pb

USER_NOTE: Final = "user"
TOKEN_BEGIN: Final = "eu1."
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
"""Allowed names of users: those that operating systems allow for accounts."""
MOST_WEIGHT: Final = 1e6
MOST_LIVE_APPS: Final = 1000
MOST_LIVE_JOBS: Final = 1_000_000


@value
class UserLimits:
    """Limits on one user's apps."""

    weight: float = 1.0
    """Maximum weight of an app."""
    apps: int = 20
    """Maximum number of live apps at the same time."""
    jobs: int = 1000
    """Maximum number of jobs that have not ended, over all live apps."""
    gpu_hours: float = math.inf
    """Maximum number of slot-hours per day, from midnight to midnight UTC."""
    disk_bytes: float = math.inf
    """Maximum number of bytes in the folders of all apps of the user."""

    def changed(self, given: pb.UserLimits) -> Self:
        """Return these limits with those given in a message replaced.

        Raises:
            InputError: a limit is out of bounds.
        """
        named = {field.name: getattr(given, field.name) for field, _ in given.ListFields()}
        made = dataclasses.replace(self, **named)
        _check(0.0 < made.weight <= MOST_WEIGHT, f"weight must be above 0 and at most {MOST_WEIGHT:,.0f}", made.weight)
        _check(1 <= made.apps <= MOST_LIVE_APPS, f"apps must be from 1 to {MOST_LIVE_APPS}", made.apps)
        _check(1 <= made.jobs <= MOST_LIVE_JOBS, f"jobs must be from 1 to {MOST_LIVE_JOBS}", made.jobs)
        _check(made.gpu_hours > 0.0, "GPU hours a day must be above 0", made.gpu_hours)
        _check(made.disk_bytes >= 1.0, "disk must be at least 1 byte", made.disk_bytes)
        return made

    def message(self) -> pb.UserLimits:
        """Return the limits as a message."""
        return pb.UserLimits(**dataclasses.asdict(self))


def _check(good: bool, rule: str, got: float) -> None:
    if not good:  # also NaN
        raise InputError(f"a user's {rule}", value=str(got))


@dataclasses.dataclass(slots=True, kw_only=True)
class User:
    """A user; its record is never dropped, so that no token number is used twice.

    Attributes:
        tokens: number of its last token.
        token_hash: SHA-256 of the last token, as hexadecimal digits.
        token_ends_at: Unix time in seconds at which the last token expires; None if never.
        login: the account under which the user's processes run; empty for the arbiter's own.
        removed: whether the operator has removed the user.
        day: the day in UTC of ``used_seconds``, such as "2026-11-27".
        used_seconds: slot-seconds of its apps on that day, up to the last count.
        seen: total slot-seconds at that count, by name of the user's live apps.
        held_day: the last day (UTC) on which the user reached the limit on GPU hours; empty if none.
    """

    name: str
    limits: UserLimits = dataclasses.field(default_factory=UserLimits)
    tokens: int = 0
    token_hash: str = ""
    token_ends_at: float | None = None
    login: str = ""
    removed: bool = False
    day: str = ""
    used_seconds: float = 0.0
    seen: dict[str, float] = dataclasses.field(default_factory=dict)
    held_day: str = ""

    def with_token(self, ends_at: float | None) -> tuple["User", str]:
        """Return the user's record with its next token, and the token's text, which is not stored."""
        number = self.tokens + 1
        token = f"{TOKEN_BEGIN}{self.name}.{number}.{secrets.token_hex(24)}"
        made = dataclasses.replace(self, tokens=number, token_hash=_hash(token), token_ends_at=ends_at)
        return made, token

    def owns(self, token: str) -> bool:
        """Return whether a token is this user's last one, even if it has expired or the user was removed."""
        return hmac.compare_digest(_hash(token), self.token_hash)

    def note(self) -> Note:
        """Return the user's note for the journal; infinite limits are left out."""
        plain = dataclasses.asdict(self)
        plain["limits"] = {name: limit for name, limit in plain["limits"].items() if math.isfinite(limit)}
        return Note(kind=USER_NOTE, key=self.name, value=plain)


def named_in(token: str) -> str:
    """Return the user named in a token; empty if it is not a user's token."""
    name, *rest = token.removeprefix(TOKEN_BEGIN).rsplit(".", 2)
    return name if token.startswith(TOKEN_BEGIN) and len(rest) == 2 else ""


def read_user(name: str, values: Any) -> User | None:
    """Read a user from its note; None if the note is malformed."""
    try:
        user = User(**{**values, "limits": UserLimits(**values["limits"])})
        user.limits.changed(pb.UserLimits())
    except (TypeError, KeyError, AttributeError, InputError):
        return None
    texts = all(isinstance(text, str) for text in (user.token_hash, user.day, user.held_day, user.login))
    numbers = isinstance(user.tokens, int) and isinstance(user.used_seconds, int | float)
    ends = user.token_ends_at is None or isinstance(user.token_ends_at, int | float)
    return user if texts and numbers and ends and user.name == name and isinstance(user.seen, dict) else None


def check_name(name: str) -> None:
    """Check that a name is allowed for a user.

    Raises:
        InputError: the name has characters that are not allowed, or too many.
    """
    if not NAME.fullmatch(name):
        rule = "a user's name must be at most 32 letters, digits, '.', '-' and '_', and begin with a letter or '_'"
        raise InputError(rule, value=f'"{name[:100]}"')


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
