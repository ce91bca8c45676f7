"""Names of nodes and racks, and the name under which a node's certificate is checked."""

import hashlib
import re
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
"""Of a node or a rack."""


def tls_name(node: str, join: int) -> str:
    """Return the DNS name in the certificate of a node's join; a node's own name may be no DNS name."""
    return f"{hashlib.sha256(f'{node}|{join}'.encode()).hexdigest()[:32]}.node.eunomia"
