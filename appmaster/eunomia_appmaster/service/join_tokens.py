"""Join tokens: each lets one machine, or several until it expires, become a node of this arbiter.

The journal has only the hash of a token. The text of a token contains its number, its secret and the CA of the arbiter,
so that a joining machine can verify the arbiter at its first connection.
"""

import dataclasses
import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog

from eunomia.errors import InputError
from eunomia.journal.values import Note
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol.join_text import JoinText

log = structlog.get_logger()

JOIN_NOTE: Final = "join_token"
DEFAULT_LIFE_SECONDS: Final = 3600.0
"""Default validity of a token in seconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """A join token.

    Attributes:
        number: unique, from 1.
        token_hash: SHA-256 of its secret, as hexadecimal digits.
        ends_at: Unix time in seconds at which it expires.
        reusable: whether several machines may use it.
        used_by: nodes that joined with it and whose launchers were accepted, in order.
        revoked: whether the operator has revoked it.
    """

    number: int
    token_hash: str
    ends_at: float
    reusable: bool = False
    used_by: tuple[str, ...] = ()
    revoked: bool = False

    def note(self) -> Note:
        """Return the token's note for the journal."""
        return Note(
            kind=JOIN_NOTE, key=str(self.number), value={**dataclasses.asdict(self), "used_by": [*self.used_by]}
        )

    def used(self, node: str) -> "JoinToken":
        """Return the token with an accepted node added to ``used_by``."""
        return dataclasses.replace(self, used_by=(*self.used_by, node))

    def refusal(self, now: float) -> str:
        """Return why no machine can join with the token; empty if one can."""
        if self.revoked:
            return "the operator has revoked it"
        if now >= self.ends_at:
            return "it has ended"
        return self.taken

    @property
    def taken(self) -> str:
        """Text that names the node that has used up this single-use token; empty if none has."""
        return f"node {self.used_by[0]} has used it" if self.used_by and not self.reusable else ""


class JoinTokens:
    """The join tokens of an arbiter.

    Args:
        notes: an earlier arbiter's notes, by key.
        system: the machine's clocks.
    """

    def __init__(self, notes: Mapping[str, Any], *, system: System = MACHINE) -> None:
        self._system = system
        self._tokens: dict[int, JoinToken] = {}
        for key, content in notes.items():
            token = _read(content)
            if token is None:
                log.error("join_token.note_unreadable", number=key)
            else:
                self._tokens[token.number] = token

    def __iter__(self) -> Iterator[JoinToken]:
        return iter(self._tokens.values())

    def made(self, *, life_seconds: float, reusable: bool, authority: bytes) -> tuple[JoinToken, str]:
        """Create the next token and its text, which is not stored; call ``keep`` once it is journaled.

        Args:
            life_seconds: validity in seconds.
            reusable: whether several machines may use it.
            authority: CA certificates, PEM, with which machines verify the arbiter; empty: no TLS.
        """
        number = max(self._tokens, default=0) + 1
        secret = secrets.token_hex(24)
        token = JoinToken(
            number=number,
            token_hash=_hash(secret),
            ends_at=self._system.unix_time() + life_seconds,
            reusable=reusable,
        )
        return token, JoinText(number=number, secret=secret, authority=authority).text()

    def keep(self, token: JoinToken) -> None:
        """Add a new or changed token in memory; the caller journals its note."""
        self._tokens[token.number] = token

    def get(self, number: int) -> JoinToken | None:
        """Return a token by its number; None if there is none, since its note was lost."""
        return self._tokens.get(number)

    def named(self, number: int) -> JoinToken:
        """Return a token by its number.

        Raises:
            InputError: no token has this number.
        """
        token = self._tokens.get(number)
        if token is None:
            known = ", ".join(map(str, self._tokens)) or "none"
            raise InputError(f"a join token must have been made; there are: {known}", value=str(number))
        return token

    def valid(self, given: JoinText) -> JoinToken:
        """Return the token that a machine presents for a join.

        Raises:
            InputError: the token is not of this arbiter, or can no longer be used.
        """
        token = self._tokens.get(given.number)
        if token is None or not hmac.compare_digest(_hash(given.secret), token.token_hash):
            raise InputError("a join token must be one of this arbiter", value=f"number {given.number} of another one")
        if why := token.refusal(self._system.unix_time()):
            rule = "a join token must be valid (`eunomia nodes token` makes another)"
            raise InputError(rule, value=f"number {token.number}: {why}")
        return token


def _read(content: Any) -> JoinToken | None:
    try:
        token = JoinToken(**{**content, "used_by": tuple(content["used_by"])})
    except (TypeError, KeyError):
        return None
    good = isinstance(token.number, int) and isinstance(token.token_hash, str)
    return token if good and isinstance(token.ends_at, int | float) else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
