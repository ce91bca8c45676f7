"""The launcher's client of the zygote: keeps one zygote alive, decides which commands to fork, and requests forks."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from eunomia_appmaster.launcher.processes import MARK, NODE, identify
from eunomia_appmaster.launcher.stacks import write_stacks
from eunomia_appmaster.launcher.zygote import MARK_BYTES, ZygoteKind
from eunomia_appmaster.node.beats import STACKS
from eunomia_appmaster.node.loop_clock import LoopClock
from eunomia_appmaster.node.stack_signal import STACKS_FOLDER
from eunomia_appmaster.node.stopped_processes import STOPPED, StoppedTime, process_state

log = structlog.get_logger()

MODULE = "eunomia_appmaster.launcher.zygote"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Settings with which libraries start no thread as they are imported: a preloaded scikit-learn imports pyarrow where
that is installed, and its allocator would start one."""
READY_SECONDS = 300.0
"""Seconds in which a zygote must have imported what workers need, before it is replaced."""
STOPPED_WAITS = 3.0
"""A stopped zygote is replaced after this multiple of the wait for an answer."""
_LOOK_SECONDS = 1.0
_STACKS_SECONDS = 15.0
_ENDED_SECONDS = 5.0  # from the end of a zygote that hung to the end of what it had begun
PASSED_ON = ("PATH", "HOME", "LANG", "VIRTUAL_ENV")
"""Variables of the launcher's environment that every container inherits."""
_HARMLESS = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
_AT_START = ("PYTHON", "LD_", "MALLOC_", "KMP_", "GOMP_")  # read when a process starts or torch is imported


def interpreter(name: str, env: Mapping[str, str]) -> str:
    """Return the program for ``argv[0]``.

    "python" means this interpreter, unless ``env`` names another virtual environment that exists here.
    """
    environment = env.get("VIRTUAL_ENV") or sys.prefix
    if name == "python" and not Path(environment).is_dir():
        return sys.executable
    if name in ("python", "python3") and Path(environment).resolve() == Path(sys.prefix).resolve():
        return sys.executable
    return shutil.which(name, path=env.get("PATH")) or name


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a fork can replace ``argv`` (resolved interpreter): our Python, a script or ``-m``, one thread."""
    arguments = list(argv[1:])
    if arguments[:1] == ["-u"]:
        del arguments[0]
    if argv[0] != sys.executable or not arguments:
        return False
    if arguments[0].startswith("-") and not (arguments[0] == "-m" and len(arguments) > 1):
        return False
    if any(env.get(name, "1") != "1" for name in THREADS):
        return False
    startup = {name for name in env if name.startswith(_AT_START)} - _HARMLESS
    return all(env[name] == os.environ.get(name) for name in startup)


def bare_environment() -> dict[str, str]:
    """Return this process's environment reduced to the variables that a start of Python reads and every worker gets."""
    passed = (*PASSED_ON, "CUDA_", *_AT_START)
    return {name: setting for name, setting in os.environ.items() if name.startswith(passed)}


def _closed(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ZygoteClient:
    """Keeps a zygote ready, started in the background and restarted when it dies.

    Args:
        state: folder for the zygote's log.
        enabled: whether to start a zygote; else every worker starts by exec.
        kind: what it forks, which decides what it imports.
        preload: modules that the zygote imports in addition, where installed.
        login: account that its workers change to; its zygote gets no other data of this process; empty: no account.
        node: name of the launcher's node, which distinguishes its processes from those of other nodes on this machine.
    """

    def __init__(
        self,
        state: Path,
        *,
        enabled: bool = True,
        kind: ZygoteKind = ZygoteKind.WORKERS,
        preload: Sequence[str] = (),
        login: str = "",
        node: str = "",
    ) -> None:
        self._state = state
        self._kind = kind
        self._login = login
        self._node = node
        self._enabled = enabled
        self._preload = tuple(preload)
        self._ready = asyncio.Event()
        self._unavailable = not enabled
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process ID of the zygote, once it is ready."""
        return self._process.pid if self._process is not None and self._ready.is_set() else None

    @property
    def process_ids(self) -> set[int]:
        """Return the ids of child processes that this client started and waits for."""
        return set() if self._process is None else {self._process.pid}

    def start(self) -> None:
        """Start the zygote in the background, if it is enabled; see ``ready``."""
        if self._enabled:
            self._keeper = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the zygote; processes that it forked keep running."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper

    async def ready(self, wait_seconds: float) -> bool:
        """Wait for the zygote; returns False if none can be started, or none was ready in time."""
        if self._unavailable:
            return False
        try:
            await asyncio.wait_for(self._ready.wait(), wait_seconds)
        except TimeoutError:
            return False
        return not self._unavailable

    def fork(self, folder: Path, mark: str, report_fd: int) -> bool:
        """Request a shepherd in ``folder`` that reports to ``report_fd``; returns False if the zygote has just died."""
        if self._control is None:
            return False
        message = json.dumps({"folder": str(folder), "mark": mark}).encode()
        try:
            socket.send_fds(self._control, [message], [report_fd])
        except OSError:
            return False
        return True

    async def answer(self, report: Coroutine[Any, Any, bytes], wait_seconds: float) -> None:
        """Wait for a requested report; a zygote that does not answer is killed, which cancels the request.

        Args:
            report: reads the report to its end.
            wait_seconds: time for the answer, not counting time for which the zygote is stopped.
        """
        reading = asyncio.create_task(report)
        clock = LoopClock()
        stops, asked = StoppedTime(clock), clock.now()
        while not (await asyncio.wait({reading}, timeout=min(wait_seconds, _LOOK_SECONDS)))[0]:
            clock.tick()
            stops.look("" if self._process is None else process_state(self._process.pid))
            if stops.overdue(asked, wait_seconds, STOPPED_WAITS * wait_seconds) is not None:
                break
        if not reading.done():
            await self.end_hung(f"it did not answer for {wait_seconds:g} s")
            await asyncio.wait({reading}, timeout=_ENDED_SECONDS)
            reading.cancel()
            await asyncio.wait({reading})

    async def end_hung(self, why: str) -> None:
        """Kill a zygote that does not answer; the next one is started. Unless it is stopped, its stacks are saved."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        state, known = process_state(process.pid), identify(process.pid)
        log.warning("zygote.hung", pid=process.pid, state=state, why=why)
        if known is not None and state not in STOPPED:
            folder = self._state / STACKS_FOLDER
            path = folder / f"zygote-{process.pid}.txt"
            with contextlib.suppress(OSError, TimeoutError):
                writing = asyncio.to_thread(write_stacks, path, folder, [known], f"zygote: {why}")
                await asyncio.wait_for(writing, _STACKS_SECONDS)
        process.kill()

    async def _end_late(self) -> None:
        """End a zygote that is not ready in time."""
        await asyncio.sleep(READY_SECONDS)
        await self.end_hung(f"it was not ready after {READY_SECONDS:g} s")

    async def _keep(self) -> None:
        pause = 0.1
        while not self._unavailable:
            began = asyncio.get_running_loop().time()
            try:
                await self._one_life()
            finally:
                self._end()
            if asyncio.get_running_loop().time() - began > 60:
                pause = 0.1
            await asyncio.sleep(pause)
            pause = min(2 * pause, 30.0)

    async def _one_life(self) -> None:
        """Start a zygote, read its messages, and return when it has ended."""
        (self._state / STACKS_FOLDER).mkdir(exist_ok=True, mode=0o700)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        ours.setblocking(False)
        log_file = self._state / self._log_name()
        with theirs, open(log_file, "ab", opener=_closed) as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno()), self._kind, *self._preload],
                env={
                    **(os.environ if self._kind is ZygoteKind.WORKERS and not self._login else bare_environment()),
                    **dict.fromkeys(THREADS, "1"),
                    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else asking whether there is a GPU starts CUDA
                    **ONE_THREAD,
                    MARK: "-" * MARK_BYTES,
                    NODE: self._node,
                    STACKS: str(self._state / STACKS_FOLDER),
                },
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        late = asyncio.create_task(self._end_late())
        try:
            while message := await loop.sock_recv(ours, 65536):
                late.cancel()
                self._heard(json.loads(message))
        except ConnectionResetError:  # it ended with a request that it had not read
            pass
        finally:
            late.cancel()

    def _log_name(self) -> str:
        if self._kind is not ZygoteKind.WORKERS:
            return f"zygote-{self._kind.replace(' ', '-')}.log"
        return f"zygote-{self._login}.log" if self._login else "zygote.log"

    def _heard(self, message: dict[str, Any]) -> None:
        if "error" in message:
            log.warning("zygote.unusable", error=message["error"], effect=f"{self._kind} start by exec, which is slow")
            self._unavailable = True
        else:
            log.info("zygote.ready", forks=self._kind, seconds=round(message["seconds"], 2))
        self._ready.set()  # in both cases waiting starts go on

    def _end(self) -> None:
        if not self._unavailable:
            self._ready.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
