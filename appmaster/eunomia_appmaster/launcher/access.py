"""How a launcher reaches the arbiter: its address, and the token of each call."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import structlog

from eunomia_appmaster.node.kept_files import DamagedTokenError, read_token
from eunomia_appmaster.protocol.connecting import ADDRESS_FILE, CA_VARIABLE, Address

log = structlog.get_logger()


class ArbiterAccess(Protocol):
    """The address of the arbiter, and the metadata of a call to it."""

    @property
    def address(self) -> Address:
        """Where the arbiter is reached."""
        ...

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call, read again for each, since tokens change."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return what an app master needs in addition to reach the arbiter from here."""
        ...


class TokenFileAccess:
    """The access of a launcher on the arbiter's own machine, or with a copy of its folder.

    Args:
        arbiter: host:port.
        token_file: the arbiter's token for launchers.
    """

    def __init__(self, arbiter: str, token_file: Path) -> None:
        self._arbiter, self._token_file = arbiter, token_file

    @property
    def address(self) -> Address:
        """Where the arbiter is reached, with the CA that stands beside the token."""
        return Address.given(self._arbiter, beside=self._token_file.with_name(ADDRESS_FILE))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the token; empty while its file is gone or damaged: the arbiter writes it again."""
        try:
            return (("authorization", f"Bearer {read_token(self._token_file)}"),)
        except DamagedTokenError as error:
            log.error("token.damaged", why=str(error))
            return ()

    def environment(self) -> Mapping[str, str]:
        """Return the variable that names the arbiter's CA, which stands beside the token."""
        return ca_environment(self.address)


def ca_environment(address: Address) -> Mapping[str, str]:
    """Return the variable that names the arbiter's CA on this machine."""
    return {} if address.ca_file is None else {CA_VARIABLE: str(address.ca_file)}
