"""Threads of a lasting process allocate from one arena of the C library."""

import ctypes
import subprocess
import sys

import pytest

THREADS = """
import ctypes, sys, threading, time
from eunomia_appmaster.node.memory_arenas import share_one_arena
if sys.argv[1] == "shared":
    share_one_arena()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
ready = threading.Barrier(6)
def allocate():
    for size in range(1000, 9000, 1000):
        libc.malloc(size)
    ready.wait()
threads = [threading.Thread(target=allocate) for _ in range(5)]
for thread in threads:
    thread.start()
ready.wait()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library is not glibc")
@pytest.mark.parametrize(("how", "is_one"), [("shared", True), ("as it is", False)])
def test_the_threads_of_a_process_share_one_memory_arena(how: str, is_one: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", THREADS, how], capture_output=True, text=True, timeout=60, check=True)
    arenas = ran.stdout.count("<heap nr=")
    assert (arenas == 1) == is_one, f"{arenas} arenas"
