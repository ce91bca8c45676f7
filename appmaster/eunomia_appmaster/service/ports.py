"""Checks that an address can be served before anything starts, so that a port in use gives a one-line error."""

import errno
import socket
from pathlib import Path

from eunomia.errors import InputError
from eunomia.journal.journal import Journal


def check_free(state_dir: Path, address: str, metrics: str | None) -> None:
    """Check that the addresses of an arbiter are free.

    Args:
        state_dir: the arbiter's state folder; if another arbiter serves it, the error is about that instead.
        address: host:port.
        metrics: host:port of its metrics; None: metrics are not served.

    Raises:
        InputError: an address is in use, both are the same, or another arbiter serves the state folder.
    """
    journal = state_dir / "journal.sqlite"
    if journal.is_file():
        Journal.open(journal).close()
    _check(address, "--address")
    if metrics is None:
        return
    if metrics == address and not address.endswith(":0"):
        raise InputError("metrics must have an address of their own", value=f'"{metrics}" for both', place="--metrics")
    _check(metrics, "--metrics")


def _check(address: str, place: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in found if port != "0" else ():
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            rule = f"an address must be free to be served ({place} {host}:0 takes any free port)"
            raise InputError(rule, value=f'"{address}", where another program listens', place=place) from error
        if error.errno == errno.EACCES:
            rule = "an address must have a port that this user may serve, from 1024 on"
            raise InputError(rule, value=f'"{address}"', place=place) from error
        # other faults are left to the server, which may be able to serve some of a name's addresses
