"""Network interfaces of a machine: the one over which a worker reaches its gang's rank 0, and all addresses."""

import array
import fcntl
import socket
import struct

_SIOCGIFCONF = 0x8912
_MOST_BYTES = 64 * 1024
_RECORD_BYTES = 40  # struct ifreq of 64-bit Linux: a name of 16 bytes, then a sockaddr_in


def interface_to(host: str) -> str:
    """Return the name of the interface with the source address of connections to a host; empty: unknown, or IPv6.

    The route to an address of this machine itself leads over ``lo``, but its peers reach it over the interface that has
    the address, so the interface is looked up by address.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # nothing is sent
            own = probe.getsockname()[0]
            return _by_address(probe).get(own, "lo" if own.startswith("127.") else "")
    except OSError:
        return ""


def own_addresses() -> tuple[str, ...]:
    """Return this machine's IPv4 addresses, except those of loopback."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            return tuple(address for address in _by_address(probe) if not address.startswith("127."))
    except OSError:
        return ()


def _by_address(probe: socket.socket) -> dict[str, str]:
    """Return the names of all interfaces that have an IPv4 address, by address."""
    records = array.array("B", bytes(_MOST_BYTES))
    request = struct.pack("iL", _MOST_BYTES, records.buffer_info()[0])
    used = struct.unpack("iL", fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, request))[0]
    found = {}
    for start in range(0, used, _RECORD_BYTES):
        record = records[start : start + _RECORD_BYTES].tobytes()
        name = record[:16].split(b"\0", 1)[0].decode().partition(":")[0]
        found[socket.inet_ntoa(record[20:24])] = name
    return found
