"""A launcher's access to the arbiter: its address, and the token of each call."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.kept_files import DamagedTokenError, read_token
from eunomia_appmaster.protocol.connecting import ADDRESS_FILE, CA_VARIABLE, Address
from eunomia_appmaster.protocol.join_text import BEGIN as JOIN_BEGIN

log = structlog.get_logger()

_ROLE: Final = re.compile(r"([a-z]+:|eu1\.)")
_ROLES: Final = {"eu1.": "user"}


class ArbiterAccess(Protocol):
    """Protocol for access to the arbiter: its address, and the metadata (token) of calls to it."""

    @property
    def address(self) -> Address:
        """The arbiter's address."""
        ...

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call, read again for each, since tokens change."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the additional variables with which an app master on this node reaches the arbiter."""
        ...


class TokenFileAccess:
    """The access of a launcher on the arbiter's own machine, or with a copy of the arbiter's token file.

    Args:
        arbiter: host:port.
        token_file: the arbiter's token for launchers.
    """

    def __init__(self, arbiter: str, token_file: Path) -> None:
        self._arbiter, self._token_file = arbiter, token_file

    @property
    def address(self) -> Address:
        """The arbiter's address, with the CA whose file is in the folder of the token."""
        return Address.given(self._arbiter, beside=self._token_file.with_name(ADDRESS_FILE))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the token as metadata; empty while its file is missing or damaged, before the arbiter repairs it."""
        try:
            return (("authorization", f"Bearer {read_token(self._token_file)}"),)
        except DamagedTokenError as error:
            log.error("token.damaged", why=str(error))
            return ()

    def environment(self) -> Mapping[str, str]:
        """Return the variable with the path of the arbiter's CA, whose file is in the folder of the token."""
        return ca_environment(self.address)


def check_token_file(path: Path) -> None:
    """Check that a file holds the arbiter's token for launchers; a damaged file passes, since the arbiter repairs it.

    Raises:
        InputError: the file cannot be read, or holds a token of another kind.
    """
    rule = "--token-file must be the arbiter's token for launchers, run/launcher.token in its state folder"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(rule, value=str(error.strerror), place=str(path)) from error
    if text.startswith(JOIN_BEGIN):
        raise InputError(f"{rule}; a join token is given by --join", value="a join token", place=str(path))
    found = _ROLE.match(text)
    role = "launcher" if found is None else _ROLES.get(found[1], found[1].rstrip(":"))
    if role != "launcher":
        raise InputError(rule, value=f"a token of role {role}", place=str(path))


def ca_environment(address: Address) -> Mapping[str, str]:
    """Return the environment variable with the path of the arbiter's CA on this machine; empty without a CA."""
    return {} if address.ca_file is None else {CA_VARIABLE: str(address.ca_file)}
