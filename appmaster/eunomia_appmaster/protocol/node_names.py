"""Rules for names of nodes, racks and apps, and the name in a node's certificate."""

import hashlib
import re
from typing import Final

from eunomia.errors import InputError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
"""Allowed names of nodes, racks and other things that become part of a path."""


def check_name(name: str, what: str, place: str | None = None) -> None:
    """Check a name against the rule for names.

    Args:
        name: the name of a node, a rack, an app or a container.
        what: kind of the named thing, for the error.
        place: where the name is given, such as an option.

    Raises:
        InputError: the name is too long, or has a character that is not allowed in a path.
    """
    if not NAME.match(name):
        rule = f"{what} must be 1 to 100 letters, digits, '.', '_' and '-', and begin with a letter or digit"
        raise InputError(rule, value=f'"{name[:100]}"', place=place)


def tls_name(node: str, join: int) -> str:
    """Return the DNS name in the certificate of a node's join, since a node's own name may not be a DNS name."""
    return f"{hashlib.sha256(f'{node}|{join}'.encode()).hexdigest()[:32]}.node.eunomia"
