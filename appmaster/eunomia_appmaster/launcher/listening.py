"""The address on which a launcher's service listens, and the address that it announces."""

import re
import socket
from collections.abc import Sequence
from typing import Final, Self

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.launcher.joining import OwnJoin
from eunomia_appmaster.protocol.connecting import LOOPBACK, host_of

_RANGE: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})\Z")
_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%a-z]*\]?)\Z")
ANY: Final = ("0.0.0.0", "[::]", "::")


@value
class ListenAddress:
    """Listening and announced host, ports, and the join whose certificate the service uses for TLS."""

    host: str
    ports: tuple[int, ...]
    """Ports in the order in which they are tried; 0: any free port."""
    announced: str
    joined: OwnJoin | None = None

    @classmethod
    def chosen(cls, arbiter: str, *, listen: str | None, announce: str, ports: str, joined: OwnJoin | None) -> Self:
        """Derive the addresses from the options.

        Args:
            arbiter: host:port; the route to it determines the address of this machine.
            listen: host:port; None: the announced host, or loopback if the node has not joined.
            announce: host; empty: the listening one, or this machine's on the route to the arbiter.
            ports: such as "7800-7899"; empty: any free port.
            joined: the node's join; None: the launcher serves without TLS.

        Raises:
            InputError: an address beyond loopback without TLS, one that names no machine, a malformed range or host.
        """
        if announce:
            _check_announced(announce)
        here = "127.0.0.1" if joined is None else route_to(host_of(arbiter))
        host, _, port = (listen or f"{announce or here}:0").rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InputError("an address to listen on must be HOST:PORT", value=str(listen), place="--listen")
        if joined is None and host not in LOOPBACK:
            local = ", ".join(LOOPBACK)
            rule = f"a launcher must listen on a loopback address ({local}) unless its node has joined (--join)"
            raise InputError(rule, value=str(listen or host), place="--listen")
        announced = announce or (here if host in ANY else host)
        if announced in ANY:
            raise InputError("an announced address must be of one machine", value=announced, place="--announce")
        if ports and port != "0":
            raise InputError("a port must be given by --listen or by --port-range", value="both", place="--port-range")
        return cls(host=host, ports=ports_of(ports) if ports else (int(port),), announced=announced, joined=joined)

    def addresses(self, last: str | None) -> Sequence[str]:
        """Return the host:port pairs to try, in order: first the port of ``last``, the previous launcher's address."""
        tried = [f"{self.host}:{port}" for port in self.ports]
        port = int(last.rpartition(":")[2]) if last and last.rpartition(":")[2].isdecimal() else 0
        if port and (port in self.ports or self.ports == (0,)):
            return [f"{self.host}:{port}", *(address for address in tried if address != f"{self.host}:{port}")]
        return tried


def _check_announced(host: str) -> None:
    """Check the form of an announced host.

    Raises:
        InputError: it has a scheme, a port, a path or a space.
    """
    if not _HOST.match(host):
        rule = "an announced address must be the name or the IP address of this machine, without a scheme or a port"
        raise InputError(rule, value=f'"{host[:100]}"', place="--announce")


def ports_of(text: str) -> tuple[int, ...]:
    """Return the ports of a range such as ``7800-7899``.

    Raises:
        InputError: it is not a range of ports.
    """
    found = _RANGE.match(text)
    if found is None or not 0 < int(found[1]) <= int(found[2]) <= 65535:
        rule = "a range of ports must be two from 1 to 65535, such as 7800-7899"
        raise InputError(rule, value=f'"{text}"', place="--port-range")
    return tuple(range(int(found[1]), int(found[2]) + 1))


def not_bound(listening: ListenAddress) -> InputError:
    """Return the error if no address is free: the host is unknown or another machine's, or all ports are in use."""
    host, place = listening.host, "--announce" if listening.host == listening.announced else "--listen"
    try:
        family, kind, _, _, target = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(target)
    except socket.gaierror as error:
        rule = "an address to listen on must be a name or address that this machine knows"
        return InputError(rule, value=f'"{host}": {error.strerror}', place=place)
    except OSError as error:
        rule = "an address to listen on must be one of this machine"
        return InputError(rule, value=f"{host}: {error.strerror}", place=place)
    ports = f"ports {listening.ports[0]} to {listening.ports[-1]}" if listening.ports != (0,) else "no port"
    return InputError("a launcher must find a free port", value=f"none at {host}, {ports}", place="--port-range")


def route_to(host: str) -> str:
    """Return this machine's address on the route to a host; no packet is sent.

    Raises:
        InputError: there is no route.
    """
    try:
        family, kind, _, _, target = socket.getaddrinfo(host.strip("[]"), 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            found = str(probe.getsockname()[0])
    except socket.gaierror as error:
        rule = "the arbiter's host must be one that this machine knows by name or address (--arbiter)"
        raise InputError(rule, value=f'"{host}": {error.strerror}') from error
    except OSError as error:
        rule = "the arbiter must be on a route from this machine (or give --announce)"
        raise InputError(rule, value=str(error.strerror or error), place=host) from error
    return f"[{found}]" if ":" in found else found
