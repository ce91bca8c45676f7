"""The store of one job that changes its size live: a torch ``TCPStore`` in a process of its own, on no slot.

The workers of each generation find each other here, under a prefix of their own. Run as ``python -m
eunomia_appmaster.launcher.store_process HOST PORT``; it listens on HOST alone, until it is killed. An order to leave is
ignored: the launcher ends it after the last worker.
"""

import importlib
import os
import signal
import socket
import sys

from eunomia_appmaster.node.process_name import name_process

BACKLOG = 1024
"""Connections that may wait: each worker makes a few at a change."""


def main(arguments: list[str]) -> None:
    """Serve until killed."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if job := os.environ.get("EUNOMIA_JOB"):
        name_process(f"store of {job}")
    host, port = arguments[0], int(arguments[1])
    make_store = importlib.import_module("torch.distributed").TCPStore

    # Without a socket, torch listens on all addresses.
    store = make_store(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listen(host, port).detach())
    while store is not None:  # keeps it alive
        signal.pause()


def listen(host: str, port: int) -> socket.socket:
    """Listen on one address, at a port that the launcher has reserved.

    Raises:
        OSError: the host has no address of this machine, or another process listens there.
    """
    kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(kind, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(BACKLOG)
    return listener


if __name__ == "__main__":
    main(sys.argv[1:])
