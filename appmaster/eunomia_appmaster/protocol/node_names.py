"""The name under which a node's certificate is checked."""

import hashlib


def tls_name(node: str, join: int) -> str:
    """Return the DNS name in the certificate of a node's join; a node's own name may be no DNS name."""
    return f"{hashlib.sha256(f'{node}|{join}'.encode()).hexdigest()[:32]}.node.eunomia"
