"""Writes the stacks of all threads of a container's processes to a file, with the kernel's stack of each thread.

A process with the training helper, or forked from the zygote, writes its Python stacks itself when it gets a signal.
For another process ``py-spy`` reads them if it is installed. The kernel's stack of each thread is always added.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from eunomia_appmaster.launcher.processes import ProcessId
from eunomia_appmaster.node.file_rights import as_owner
from eunomia_appmaster.node.stack_signal import STACKS_FILE, STACKS_SIGNAL, catches
from eunomia_appmaster.node.system import MACHINE, System

MOST_FILES: Final = 20
MOST_PROCESSES: Final = 16
MOST_THREADS: Final = 64
MOST_BYTES: Final = 256 * 1024
"""Most bytes of stacks that one process writes."""
WAIT_SECONDS: Final = 5.0
"""Seconds in which a process must have written its own stacks."""
_SETTLED_SECONDS: Final = 0.1
_PY_SPY_SECONDS: Final = 10.0
_UNKNOWN: Final = "its Python stacks are not known (py-spy is not installed)"
_WORDS: Final = {"T": "stopped", "t": "stopped by a debugger", "D": "waits for storage or a device", "Z": "ended"}


def thread_states(pid: int) -> str:
    """Return the states of a process's threads, one letter per thread as in ``/proc``; empty: the process has ended."""
    return "".join(state for _, _, state in _threads(pid))


def write_stacks(
    path: Path,
    folder: Path,
    processes: Sequence[ProcessId],
    why: str,
    *,
    owned: Path | None = None,
    system: System = MACHINE,
) -> None:
    """Write the stacks of a container's processes to a file; the oldest files in its folder are deleted.

    Args:
        path: path of the file, in a folder that contains only such files.
        folder: the container's folder.
        processes: of the container, the worker first; a stopped one must have been woken before, to write its own.
        why: reason, the first line of the file.
        owned: the folder whose owner's rights are used to write the file and delete older ones; None: this process's
            rights.
        system: provides the machine's clocks.

    Raises:
        OSError: it cannot be written.
    """
    with _rights(owned):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    parts = [f"{why}\n{datetime.fromtimestamp(system.unix_time(), UTC):%Y-%m-%dT%H:%M:%SZ}\n"]
    for process in processes[:MOST_PROCESSES]:
        parts += _of_process(folder, process, system)
    if len(processes) > MOST_PROCESSES:
        parts.append(f"\nand {len(processes) - MOST_PROCESSES} further processes\n")
    with _rights(owned):
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - a pipe that a user put there does not block
            file.write("".join(parts))
        for old in sorted(path.parent.glob("*.txt"), key=_changed_at)[:-MOST_FILES]:
            with contextlib.suppress(OSError):
                old.unlink()


def _rights(owned: Path | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if owned is None else as_owner(owned)


def _changed_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _of_process(folder: Path, process: ProcessId, system: System) -> Iterator[str]:
    pid = process.pid
    yield f"\n== process {pid}: {_command(pid)}\n"
    for thread, name, state in _threads(pid)[:MOST_THREADS]:
        waits = _read(f"/proc/{pid}/task/{thread}/wchan") or "-"
        call = (_read(f"/proc/{pid}/task/{thread}/syscall").split() or ["-"])[0]
        words = f"{state} {_WORDS.get(state, '')}".rstrip()
        yield f"thread {thread} {name}: {words}, in {waits}, system call {call}\n"
        yield _kernel_stack(f"/proc/{pid}/task/{thread}/stack")
    yield "\n"
    yield _own_words(folder, process, system) or _py_spy(pid) or f"{_UNKNOWN}\n"


def _own_words(folder: Path, process: ProcessId, system: System) -> str:
    """Signal a process to write its Python stacks, and return them; empty: it ignores the signal, or is too slow."""
    file = folder / STACKS_FILE
    if not catches(process.pid):
        return ""
    before = _size(file)
    if not process.signal(STACKS_SIGNAL):
        return ""
    since = system.monotonic()
    deadline, size = since + WAIT_SECONDS, before
    while (now := system.monotonic()) < deadline and (size == before or now - since < _SETTLED_SECONDS):
        system.sleep(0.02)
        if (grown := _size(file)) != size:
            size, since = grown, now
    with contextlib.suppress(OSError):
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)  # it is the worker's
        try:
            return os.pread(fd, MOST_BYTES, before).decode(errors="replace")
        finally:
            os.close(fd)
    return ""


def _py_spy(pid: int) -> str:
    """Return a process's stacks from ``py-spy``; empty: it is not installed, or lacks the permission."""
    beside = Path(sys.executable).with_name("py-spy")
    command = str(beside) if beside.exists() else shutil.which("py-spy")
    if command is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [command, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True, timeout=_PY_SPY_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return (done.stdout or done.stderr)[:MOST_BYTES].decode(errors="replace")
    return ""


def _threads(pid: int) -> list[tuple[int, str, str]]:
    """Return id, name and state of each thread of a process."""
    found = []
    with contextlib.suppress(OSError):
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):  # noqa: PTH208 - ten times faster
            head, _, rest = _read(f"/proc/{pid}/task/{thread}/stat").rpartition(")")
            if rest.split():
                found.append((thread, head.partition("(")[2], rest.split()[0]))
    return found


def _kernel_stack(path: str) -> str:
    """Return a thread's kernel stack; empty: this process may not read it."""
    return "".join(f"    {line}\n" for line in _read(path).splitlines())


def _command(pid: int) -> str:
    words = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in words)[:200] or "?"


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.lstat().st_size
    return 0
