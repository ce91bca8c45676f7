"""How clients reach the arbiter: the address file, and channels to the arbiter, with TLS beyond loopback.

The address file is in the token's folder: ``host:port``, and with TLS a second line with the CA file that signed the
arbiter's certificate, relative to the address file. So a client needs only a copy of the folder.
"""

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import grpc

from eunomia.errors import InputError, UnreachableError
from eunomia.model.shapes import value
from eunomia_appmaster.protocol.certificate_names import certificates_in, names_of

ADDRESS_FILE: Final = "address"
CA_VARIABLE: Final = "EUNOMIA_CA_FILE"
"""Environment variable with the CA file, used if no address file names one."""
WAITS: Final = "the arbiter waits for its machines"
"""Status text (unavailable) of an arbiter between its start and the reports of its nodes."""
LOOK_SECONDS: Final = 3.0
"""Time limit in seconds for reading a server's certificate again, for an error message."""
MOST_NAMES: Final = 20
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1", "[::1]")

_DISTRUSTED: Final = ("certificate_verify_failed", "certificate verify failed", "bad_signature")

Options = Sequence[tuple[str, int | str]]


@value
class Address:
    """The address of an arbiter or a launcher, with the means to check its certificate."""

    target: str
    """Address of the server, host:port."""
    ca_file: Path | None = None
    """PEM file with the CA of the server's TLS certificate. None: no TLS, unless ``authority`` is given."""
    authority: bytes = b""
    """PEM content of a CA file, in place of ``ca_file``."""
    joins: bool = False
    """Whether calls use a join token, whose CA is in ``authority``."""
    name: str = ""
    """The name that the certificate must have; empty: the host in ``target``."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read an address file; None if there is none."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError):  # ValueError: damaged, not UTF-8; its arbiter rewrites it
            return None
        ca = lines[1].strip() if len(lines) > 1 else ""
        return cls(target=lines[0].strip(), ca_file=path.parent / ca if ca else None)

    @classmethod
    def given(cls, target: str, beside: Path | None = None) -> Self:
        """Return an explicit address; its CA is from ``EUNOMIA_CA_FILE``, else from the address file ``beside``."""
        named = os.environ.get(CA_VARIABLE)
        if named:
            return cls(target=target, ca_file=Path(named))
        found = None if beside is None else cls.read(beside)
        return cls(target=target, ca_file=None if found is None else found.ca_file)

    def text(self) -> str:
        """Return the content of an address file."""
        return self.target if self.ca_file is None else f"{self.target}\n{self.ca_file}\n"

    def channel(self, options: Options = ()) -> grpc.Channel:
        """Return a blocking gRPC channel.

        Raises:
            InputError: the address is beyond loopback and has no CA, or the CA file cannot be read.
        """
        if self._plain():
            return grpc.insecure_channel(self.target, options=list(options))
        return grpc.secure_channel(self.target, self._credentials(), options=[*options, *self._named()])

    def aio_channel(self, options: Options = ()) -> grpc.aio.Channel:
        """Return an asyncio gRPC channel; see ``channel``."""
        if self._plain():
            return grpc.aio.insecure_channel(self.target, options=list(options))
        return grpc.aio.secure_channel(self.target, self._credentials(), options=[*options, *self._named()])

    def _named(self) -> Options:
        return (("grpc.ssl_target_name_override", self.name),) if self.name else ()

    def _plain(self) -> bool:
        if self.ca_file is not None or self.authority:
            return False
        if host_of(self.target) not in LOOPBACK and self.joins:
            rule = (
                "a join token for an arbiter beyond loopback must carry its CA (`eunomia nodes token` there makes one)"
            )
            raise InputError(rule, value="one without a CA", place=self.target)
        if host_of(self.target) not in LOOPBACK:
            rule = (
                f"an arbiter beyond loopback must be called under TLS, with its CA in the address file or {CA_VARIABLE}"
            )
            raise InputError(rule, value="no CA", place=self.target)
        return True

    def _credentials(self) -> grpc.ChannelCredentials:
        if self.authority:
            return grpc.ssl_channel_credentials(self.authority)
        try:
            return grpc.ssl_channel_credentials(None if self.ca_file is None else self.ca_file.read_bytes())
        except OSError as error:
            rule = "the CA file of the arbiter must be readable"
            raise InputError(rule, value=str(error.strerror), place=str(self.ca_file)) from error


def check_target(target: str, place: str, *, least_port: int = 1) -> None:
    """Check the form of an address.

    Args:
        target: the address.
        place: flag or variable with the address, for the error.
        least_port: lowest allowed port; 0 if port 0 means any free one.

    Raises:
        InputError: the address is not of the form ``host:port``.
    """
    host, _, port = target.rpartition(":")
    if "/" in target:
        rule = 'an address must be HOST:PORT without a scheme or a path, such as "127.0.0.1:7720"'
        raise InputError(rule, value=f'"{target}"', place=place)
    if not host or not port.isdecimal() or not least_port <= int(port) <= 65535:
        raise InputError('an address must be HOST:PORT, such as "127.0.0.1:7720"', value=f'"{target}"', place=place)


def _names_shown(target: str) -> list[str]:
    """Return the names in a server's certificate, for an error message; empty if it cannot be read."""
    host, _, port = target.rpartition(":")
    try:
        shown = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=LOOK_SECONDS)
        names = names_of(certificates_in(shown.encode())[0])
    except (OSError, ValueError, IndexError):
        return []
    return [ascii(name)[1:-1] for name in names[:MOST_NAMES]]


def host_of(target: str) -> str:
    """Return the host of ``host:port``."""
    return target.rpartition(":")[0]


def tls_error(address: Address, details: str) -> UnreachableError | None:
    """Return the error of a failed TLS handshake as one of Eunomia's own; None if the failure has another cause.

    Args:
        address: the arbiter's address.
        details: the details of gRPC's error.
    """
    words = details.lower()
    authority = "in the join token" if address.authority else f"in {address.ca_file}"
    if any(sign in words for sign in _DISTRUSTED):
        rule = f"the arbiter's certificate must be signed by the CA {authority}"
        return UnreachableError(rule, value="one that is not, or has expired", place=address.target)
    if "hostname verification" in words or "peer name" in words:
        host = host_of(address.target).strip("[]")
        remedy = f"call it by a name that it has, or make one with eunomia certificates DIR --name {host}"
        rule = f"the arbiter's certificate must name {host} ({remedy})"
        names = ", ".join(_names_shown(address.target)) or "other names"
        return UnreachableError(rule, value=f"one for {names}", place=address.target)
    if "wrong_version_number" in words:
        rule = f"an arbiter must speak TLS where a CA is given ({authority})"
        return UnreachableError(rule, value="one that does not", place=address.target)
    return None
