"""Reads a peer's memory on the same machine by Linux' ``process_vm_readv``: one copy, without a connection.

A state that crosses a loopback connection is copied twice, through the kernel's buffers. The reader finds out by a
cookie whether a process with the given id runs on its machine and may be read; otherwise, the state is sent.
"""

import contextlib
import ctypes
import functools
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import torch

from eunomia.model.shapes import value

COOKIE_BYTES: Final = 16
MOST_PIECES: Final = 512
"""Pieces of memory per call; Linux allows 1,024."""
MOST_BYTES: Final = 1 << 30
"""Bytes per call; Linux copies at most 2 GiB."""
READERS: Final = 2
"""Threads that copy at the same time; the sender waits meanwhile."""
LEAST_BYTES: Final = 1 << 22
"""Bytes per thread below which one thread copies all."""
_PR_SET_PTRACER: Final = 0x59616D61
_ANY_READER: Final = ctypes.c_ulong(-1)


@value
class Memory:
    """Host tensors in the memory of a process."""

    process: int
    """Process id; 0: the process runs on a system without ``process_vm_readv``."""
    cookie_at: int
    """Address of the cookie."""
    cookie: bytes
    """Random bytes by which a reader recognises the process."""
    pieces: tuple[tuple[int, int], ...]
    """Address and number of bytes of each tensor."""


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@functools.cache
def _libc() -> Any:
    """Return the C library with ``process_vm_readv``; None: the system lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        return None
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    libc.process_vm_readv.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_Vector),
        ctypes.c_ulong,
        ctypes.POINTER(_Vector),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )
    return libc


@functools.cache
def _cookie(_process: int) -> Any:
    return ctypes.create_string_buffer(secrets.token_bytes(COOKIE_BYTES), COOKIE_BYTES)


def memory_of(tensors: Sequence[torch.Tensor]) -> Memory:
    """Return where contiguous host tensors are in this process's memory; they must live while they are read."""
    if _libc() is None:
        return Memory(process=0, cookie_at=0, cookie=b"", pieces=())
    cookie = _cookie(os.getpid())  # a forked process has a cookie of its own
    pieces = tuple((tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors)
    return Memory(process=os.getpid(), cookie_at=ctypes.addressof(cookie), cookie=cookie.raw, pieces=pieces)


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Let processes of this account read this process's memory within the block, where Linux' Yama module forbids it.

    Without Yama, or with its ``ptrace_scope`` 0, they always can.
    """
    libc = _libc()
    if libc is not None:
        libc.prctl(_PR_SET_PTRACER, _ANY_READER, 0, 0, 0)
    try:
        yield
    finally:
        if libc is not None:
            libc.prctl(_PR_SET_PTRACER, 0, 0, 0, 0)


def read(memory: Memory, tensors: Sequence[torch.Tensor]) -> bool:
    """Copy a peer's tensors into contiguous host tensors of the same sizes; returns whether all were copied.

    False: the peer is gone, runs on another machine, or may not be read; the tensors may have been changed in part.
    """
    libc = _libc()
    if libc is None or not memory.process:
        return False
    found = ctypes.create_string_buffer(COOKIE_BYTES)
    at = ctypes.addressof(found)
    if not _copied(libc, memory.process, [(memory.cookie_at, at, COOKIE_BYTES)]) or found.raw != memory.cookie:
        return False
    parts = list(_parts(memory, tensors))
    with ThreadPoolExecutor(READERS) as readers:
        return all(readers.map(lambda part: _copied(libc, memory.process, part), parts))


def _parts(memory: Memory, tensors: Sequence[torch.Tensor]) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the copies of each call: address there, address here, bytes."""
    share = -(-sum(length for _, length in memory.pieces) // READERS)
    most = min(max(share, LEAST_BYTES), MOST_BYTES)
    part: list[tuple[int, int, int]] = []
    left = most
    for (there, length), tensor in zip(memory.pieces, tensors, strict=True):
        begin = 0
        while begin < length:
            size = min(length - begin, left)
            part.append((there + begin, tensor.data_ptr() + begin, size))
            begin, left = begin + size, left - size
            if not left or len(part) == MOST_PIECES:
                yield part
                part, left = [], most
    if part:
        yield part


def _copied(libc: Any, process: int, part: Sequence[tuple[int, int, int]]) -> bool:
    there = (_Vector * len(part))(*(_Vector(begin, size) for begin, _, size in part))
    here = (_Vector * len(part))(*(_Vector(begin, size) for _, begin, size in part))
    wanted = sum(size for _, _, size in part)
    return bool(libc.process_vm_readv(process, here, len(part), there, len(part), 0) == wanted)
