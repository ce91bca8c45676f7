"""The shepherd: the parent of one worker, which waits for it and records its exit.

It is small and knows nothing of the launcher, so the exit code survives the death of launcher and zygote. It runs as
``python -I -S shepherd.py FOLDER FD`` (a start by exec), or in a process that the zygote forked; standard library only.

In the container folder it reads ``start.json`` (argv, cwd, env, stdout, stderr, groups) and writes, each at once and
whole:

- ``claim``        a symbolic link that names its pid and start time: the process that creates it may start the worker
- ``worker.json``  pids and start times of worker and shepherd, started_at
- ``exit.json``    ``code`` or ``signal`` of the worker, ended_at; written when no process of the worker is left

It is a child subreaper: orphans of the worker become its children, so it finds and kills all that the worker leaves
behind. The worker leads a session of its own and joins the container's control group before its first line, while the
shepherd stays outside, so the shepherd survives a kill of that session or group and reports.
"""
# Pathlib costs half of the start.
# ruff: noqa: PTH105, PTH123, PTH208, PTH211

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import zlib
from typing import Any, NoReturn

_PR_SET_CHILD_SUBREAPER = 36
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell has them
_NOT_JOINED = 71  # EX_OSERR: the machine refused something


def tend(folder: str, report_fd: int) -> dict[str, Any]:
    """Become the shepherd of the container in ``folder``; returns only in the worker's process, with its start.json.

    One JSON line (that of worker.json) goes to ``report_fd``, which is then closed; none if the start failed.
    """
    with contextlib.suppress(PermissionError):  # already a leader
        os.setsid()
    # Blocked, not ignored: an order to leave that meets the worker before its first line waits, instead of being lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not _claim(folder):
        os._exit(1)
    with open(f"{folder}/start.json", encoding="utf-8") as file:
        start: dict[str, Any] = json.load(file)
    groups = [os.open(path, os.O_WRONLY) for path in start.get("groups", ())]  # no worker without its group
    _keep_room(folder)
    worker = os.fork()
    if worker == 0:
        os.close(report_fd)
        _join(groups)
        _become_worker(start)
        return start
    for group in groups:
        os.close(group)
    _tell(folder, report_fd, worker)
    status = _wait(worker)
    _clear()
    _write(folder, "exit.json", _exit_record(status))
    os._exit(0)


def execute(start: dict[str, Any]) -> NoReturn:
    """Replace this process by the worker's command; a command that cannot run ends as it would in a shell."""
    argv, env = start["argv"], start["env"]
    try:
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError:
        _complain(f"a command must exist, but got {argv[0]!r}", _NOT_FOUND)
    except OSError as error:
        _complain(f"a command must be executable, but got {argv[0]!r}: {error}", _NOT_EXECUTABLE)


def _claim(folder: str) -> bool:
    try:
        os.symlink(f"{os.getpid()}:{_start_time(os.getpid())}", f"{folder}/claim")
    except FileExistsError:  # an adopting launcher gave this start up
        return False
    return True


def _join(groups: list[int]) -> None:
    """Move this process into its control group."""
    try:
        for group in groups:
            os.write(group, b"0")
            os.close(group)
    except OSError as error:
        _complain(f"a worker must be in its control group: {error}", _NOT_JOINED)


def _become_worker(start: dict[str, Any]) -> None:
    os.setsid()
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN if start.get("forked") else signal.SIG_DFL)  # as Python starts
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        _redirect("/dev/null", os.O_RDONLY, 0)
        _redirect(start["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1)
        _redirect(start["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 2)
        os.chdir(start["cwd"])
    except OSError as error:
        _complain(f"folders of a worker must exist: {error}", _NOT_EXECUTABLE)


def _redirect(path: str, flags: int, target: int) -> None:
    fd = os.open(path, flags, 0o644)
    os.dup2(fd, target)
    if fd != target:
        os.close(fd)


def _tell(folder: str, report_fd: int, worker: int) -> None:
    record = {
        "pid": worker,
        "start_time": _start_time(worker),
        "shepherd_pid": os.getpid(),
        "shepherd_start_time": _start_time(os.getpid()),
        "started_at": time.time(),
    }
    _write(folder, "worker.json", record)
    with contextlib.suppress(OSError):  # the reader has closed the pipe: worker.json has the same record
        os.write(report_fd, json.dumps(record).encode() + b"\n")
    os.close(report_fd)


def _wait(worker: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == worker:
            return status


def _clear() -> None:
    """Kill the processes that the worker left, until this process has no child."""
    pause = 0.001
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # their children become ours, and are killed in the next turn
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _children() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if int(_stat_fields(int(name))[1]) == os.getpid():
                    found.append(int(name))
    return found


def _start_time(pid: int) -> int:
    return int(_stat_fields(pid)[19])


def _stat_fields(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    return text[text.rindex(b")") + 2 :].split()


def _exit_record(status: int) -> dict[str, float]:
    code = os.waitstatus_to_exitcode(status)
    return {"code" if code >= 0 else "signal": abs(code), "ended_at": time.time()}


def _write(folder: str, name: str, record: dict[str, Any]) -> None:
    text = sealed(record).encode()
    fd = os.open(f"{folder}/{name}.new", os.O_WRONLY | os.O_CREAT, 0o644)  # not emptied: its block may be kept for it
    os.write(fd, text)
    os.ftruncate(fd, len(text))
    os.close(fd)
    os.replace(f"{folder}/{name}.new", f"{folder}/{name}")


def _keep_room(folder: str) -> None:
    """Take the block of exit.json before the worker starts, so that a full disk does not lose its exit code."""
    fd = os.open(f"{folder}/exit.json.new", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b" " * 512)
    os.close(fd)


def sealed(record: dict[str, Any]) -> str:
    """Return a record as ``node.kept_files.sealed`` does, which this module may not import."""
    text = json.dumps(record)
    return f'{text[:-1]}, "sum": "{zlib.crc32(text.encode()):08x}"}}'


def _complain(text: str, code: int) -> NoReturn:
    os.write(2, f"error: {text}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    execute(tend(sys.argv[1], int(sys.argv[2])))
