"""The text form of a join token: ``ej1.NUMBER.SECRET.CA``, one line of letters, digits, dots, dashes, underscores."""

import base64
import binascii
import hashlib
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from eunomia.errors import InputError

BEGIN: Final = "ej1."
END: Final = "-----END CERTIFICATE-----"
MOST_LETTERS: Final = 20_000
LONGEST_DAYS: Final = 366
"""Longest validity of a join token in days."""
_PARTS: Final = re.compile(r"ej1\.([0-9]{1,9})\.([0-9a-f]{48})\.([A-Za-z0-9_-]*)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinText:
    """A join token in the form that a joining machine gets.

    Attributes:
        number: the token's number.
        secret: the token's secret, as hexadecimal digits.
        authority: CA certificates of the arbiter, PEM; empty if the arbiter is on loopback, without TLS.
    """

    number: int
    secret: str
    authority: bytes

    def text(self) -> str:
        """Return the token as one line."""
        coded = base64.urlsafe_b64encode(self.authority).decode().rstrip("=")
        return f"{BEGIN}{self.number}.{self.secret}.{coded}"

    @classmethod
    def parse(cls, text: str, place: str) -> Self:
        """Parse a join token.

        Raises:
            InputError: the text is not a complete join token; the error does not show the text.
        """
        found = _PARTS.match(text.strip()) if len(text) <= MOST_LETTERS else None
        try:
            if found is None:
                raise ValueError("other parts")
            coded = found[3]
            authority = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))
        except (ValueError, binascii.Error):
            rule = "a join token must be the whole line that `eunomia nodes token` printed"
            raise InputError(rule, value=f"{len(text.strip())} letters of another form", place=place) from None
        return cls(number=int(found[1]), secret=found[2], authority=authority)

    @classmethod
    def read(cls, path: str, standard_input: Path = Path("/dev/stdin")) -> Self:
        """Read a token from a file, or from standard input if the path is ``-``.

        Raises:
            InputError: the file cannot be read, or contains no join token.
        """
        place = "standard input" if path == "-" else path
        try:
            text = (standard_input if path == "-" else Path(path)).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            rule = "a join token must be in a file that can be read, or come from standard input (-)"
            raise InputError(rule, value=str(error.strerror), place=place) from error
        return cls.parse(text, place)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the arbiter's CA, to compare with that on the arbiter's machine; empty: no TLS."""
        return fingerprint(self.authority)


def fingerprint(authority: bytes) -> str:
    """Return the SHA-256 of the first certificate (PEM), as ``openssl x509 -fingerprint`` prints it; empty if none.

    Raises:
        ValueError: the data are not a certificate.
    """
    if not authority:
        return ""
    first = authority.decode("ascii").partition(END)[0] + END
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
