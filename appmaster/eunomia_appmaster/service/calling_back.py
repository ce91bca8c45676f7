"""Test calls from the arbiter to a joining node at the address that the node announces."""

import asyncio
import contextlib
import ssl
from typing import Final

from eunomia.errors import InputError

CALL_SECONDS: Final = 5.0


async def check_reached(address: str, name: str, authority: bytes, *, node: str) -> None:
    """Check that a node's launcher answers at an address, with its own certificate.

    Args:
        address: the announced address, host:port.
        name: the name that the launcher's certificate must have.
        authority: certificate of the nodes' CA, PEM.
        node: name of the node, for errors.

    Raises:
        InputError: no server answers at the address, or one with another certificate.
    """
    context = ssl.create_default_context(cadata=authority.decode())
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(CALL_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        rule = "an announced address must be that of the node itself (--announce)"
        raise InputError(rule, value=f"{address}, where another answers ({error.verify_message})", place=node) from None
    except (OSError, TimeoutError, ValueError) as error:
        why = f"no answer within {CALL_SECONDS:.0f} s" if isinstance(error, TimeoutError) else str(error)
        rule = (
            "the arbiter must reach a node at the address that it announces (--announce, --port-range): "
            "the node reached the arbiter, the arbiter did not reach the node"
        )
        raise InputError(rule, value=f"{address}: {why}", place=node) from None
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
