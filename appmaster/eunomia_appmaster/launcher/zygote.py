"""The zygote: a single-threaded process with imports made, which forks shepherds, which fork workers or app masters.

Starting a process and importing torch takes seconds, and the first use of an optimizer imports ``torch._dynamo`` for
seconds more; a fork of a process that has both reaches its first training step within 0.1 s. App masters need no torch,
and are forked from a zygote that has imported theirs. The launcher (``zygote_client.py``) runs it as ``python -m
eunomia_appmaster.launcher.zygote FD KIND MODULE...``: FD is one end of a SOCK_SEQPACKET pair, KIND a
``ZygoteKind``, MODULE an additional module to import if it is installed.

- zygote -> launcher, once: ``{"ready": true, "seconds": 3.1}``, or ``{"error": "..."}`` before it gives up
- launcher -> zygote: ``{"folder": container folder, "mark": ...}`` with one file descriptor for the report

CUDA is never initialised here: neither a context nor the driver's own initialisation survives a fork. The launcher sets
``PYTORCH_NVML_BASED_CUDA_CHECK``, so that imports that ask torch for GPUs do not initialise it.
"""
# Paths are strings, as in the interpreter.
# ruff: noqa: PTH109, PTH120, PTH123, PTH208

import array
import atexit
import contextlib
import ctypes
import enum
import gc
import importlib
import io
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterable
from typing import Any, NoReturn

from eunomia_appmaster.launcher import shepherd
from eunomia_appmaster.node.beats import STACKS
from eunomia_appmaster.node.lenient_output import be_lenient
from eunomia_appmaster.node.process_name import name_process, name_worker
from eunomia_appmaster.node.stack_signal import write_stacks_on_signal

MARK = "EUNOMIA_CONTAINER_ID"
MARK_BYTES = 128  # room kept for a mark in the environment block of the zygote


class ZygoteKind(enum.StrEnum):
    """What a zygote forks."""

    WORKERS = "workers"
    APP_MASTERS = "app masters"


IMPORTS = {
    ZygoteKind.WORKERS: ("torch", "torch._dynamo"),
    ZygoteKind.APP_MASTERS: ("eunomia_appmaster.master.preloaded",),
}
EXTRAS: dict[ZygoteKind, tuple[str, ...]] = {
    ZygoteKind.WORKERS: ("torch.utils.tensorboard", "eunomia_appmaster.training"),  # the helper and what it writes with
    ZygoteKind.APP_MASTERS: (),
}
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve fork requests until the launcher ends; in a forked worker, this function returns as well."""
    control = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # the working folder of the launcher is no part of a worker's path
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    write_stacks_on_signal(os.environ.pop(STACKS, None))
    kind = ZygoteKind(sys.argv[2])
    name_process(f"zygote of {kind}")
    began = time.monotonic()
    trouble = _prepare(IMPORTS[kind], (*EXTRAS[kind], *sys.argv[3:]))
    if trouble is not None:
        control.send(json.dumps({"error": trouble}).encode())
        return
    control.send(json.dumps({"ready": True, "seconds": time.monotonic() - began}).encode())
    start = _serve(control)
    if start is not None:
        run_python(start)


def _prepare(needed: Iterable[str], extras: Iterable[str]) -> str | None:
    """Import the modules that forked processes need, and the extras that are installed; returns an error, or None."""
    try:
        for name in needed:
            importlib.import_module(name)
    except ImportError as error:
        return f"{error}"
    for name in extras:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    threads = _thread_names()
    if len(threads) != 1:
        return f"a process that forks must have one thread, but got {', '.join(threads)}"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shepherds that end are reaped by the kernel
    gc.collect()
    gc.freeze()  # a collection in a worker would touch, and so copy, every page
    return None


def _thread_names() -> list[str]:
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork a shepherd for each request; returns a worker's start.json in the worker, None after the launcher's end."""
    while True:
        message, fds, _flags, _address = socket.recv_fds(control, 65536, 1)
        if not message:
            return None
        request = json.loads(message)
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # the fork failed: the launcher sees the closed report pipe
            if os.fork() == 0:
                control.close()
                mark_environment(request["mark"])
                name_process(f"shepherd of {request['mark']}")
                return shepherd.tend(request["folder"], fds[0])
        os.close(fds[0])


def mark_environment(mark: str) -> None:
    """Write the container's mark into the environment block that ``/proc/<pid>/environ`` shows.

    That block was set at the zygote's start; later changes of ``os.environ`` do not reach it. The launcher reserved
    ``MARK_BYTES`` in it under the name ``MARK``; forked children inherit the mark.
    """
    with open("/proc/self/environ", "rb") as file:
        block = file.read()
    place = (b"\0" + block).find(f"\0{MARK}=".encode())
    if place < 0:
        return
    value_at = place + len(MARK) + 1
    room = block.index(b"\0", value_at) - value_at
    value = mark.encode()[:room].ljust(room, b"\0")
    ctypes.memmove(_environment_address() + value_at, array.array("B", value).tobytes(), room)


def _environment_address() -> int:
    with open("/proc/self/stat", "rb") as file:
        text = file.read()
    return int(text[text.rindex(b")") + 2 :].split()[47])  # field 50: env_start


def run_python(start: dict[str, Any]) -> NoReturn:
    """Run ``python [-u] SCRIPT ARGS`` or ``python [-u] -m MODULE ARGS`` in this process, as a new interpreter would."""
    os.environ.clear()
    os.environ.update(start["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _reseed()
    arguments = start["argv"][1:]
    sys.argv = arguments
    name_worker()
    write_stacks_on_signal(os.environ.get("EUNOMIA_CONTAINER_DIR"))
    if arguments[0] == "-u":
        arguments = arguments[1:]
        _unbuffer()
    elif os.environ.get("PYTHONUNBUFFERED"):
        _unbuffer()
    be_lenient()
    try:
        if arguments[0] == "-m":
            _run_module(arguments[1:])
        else:
            _run_script(arguments)
        code: object = 0
    except SystemExit as request:
        code = request.code
    except BaseException as error:
        _show(error)
        code = 1
    _leave(code)


def _unbuffer() -> None:
    """Make stdout and stderr unbuffered, as ``python -u`` does."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        raw = io.FileIO(number, "w", closefd=False)
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _leave(code: object) -> NoReturn:
    """Exit as the interpreter does (threads, exit handlers, files), but without destroying torch's objects one by one.

    That would take 0.3 s in a worker, which shares these objects with the zygote, and can deadlock if a DDP wrapper
    outlives its process group.
    """
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # They are older than the worker and frozen with the zygote's objects, so gc does not list them.
        with contextlib.suppress(Exception):  # closed, or none
            stream.flush()  # type: ignore[union-attr]
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
        for file in [known for known in gc.get_objects() if issubclass(type(known), kind)]:
            with contextlib.suppress(Exception):  # closed, or read only
                file.flush()
    os._exit((code or 0) & 0xFF)


def _reseed() -> None:
    """Seed the generators that are seeded from the system: otherwise forked siblings would draw the same numbers."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def _run_module(arguments: list[str]) -> None:
    sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *arguments[1:]]
    _new_main()
    runpy._run_module_as_main(arguments[0])  # type: ignore[attr-defined] # what `python -m` itself calls


def _run_script(arguments: list[str]) -> None:
    path = arguments[0]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    sys.argv = list(arguments)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(f"error: a script must be readable: {error}\n")
        sys.exit(2)  # as python does
    module = _new_main()
    module.__file__ = path
    # Not runpy.run_path: that clears the globals at the end, which atexit handlers and threads of a script still need.
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def _new_main() -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=sys.modules["builtins"], __spec__=None, __annotations__={})
    sys.modules["__main__"] = module
    return module


def _show(error: BaseException) -> None:
    """Print an exception's traceback without the frames of this file and of runpy, and keep it as python does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    main()
