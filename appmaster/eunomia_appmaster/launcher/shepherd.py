"""The shepherd: the parent of one worker, which waits for it and records its exit.

It is small and independent of the launcher, so the exit code survives the death of launcher and zygote. It runs as
``python -I -S shepherd.py FOLDER FD`` (a start by exec), or in a process that the zygote forked; standard library only.

In the container folder it reads ``start.json`` (argv, cwd, env, stdout, stderr, groups, account, lease) and atomically
writes:

- ``claim``        a symbolic link with its pid and start time: the process that creates it may start the worker
- ``worker.json``  pids and start times of worker and shepherd, started_at
- ``exit.json``    ``code`` or ``signal`` of the worker, ended_at, ``lease_ended`` if that was the cause; written when
  no process of the worker is left
- ``refused.json`` why no worker was started, where the machine refused to run it under its account

It is a child subreaper: orphans of the worker become its children, so it finds and kills all processes that the worker
leaves behind. The worker leads a session of its own and joins the container's control group before its first line,
while the shepherd stays outside, so the shepherd survives a kill of that session or group and reports. A worker with an
account changes to it irrevocably before it opens any file; the shepherd keeps the launcher's account, so that no worker
can signal it. At the end of the node's lease (``node_lease.py``), which it reads from the launcher's file, it kills the
worker; before that it orders the worker to suspend, unless the launcher has done so.
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
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_MOST_WHY = 4096
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell has them
_NOT_JOINED = 71  # EX_OSERR: the machine refused something
LEASE_BYTES = 512  # of the file with the node's lease, which is written in place
_LOOK_SECONDS = 1.0  # between two reads of that file


def tend(folder: str, report_fd: int) -> dict[str, Any]:
    """Become the shepherd of the container in ``folder``; returns only in the worker's process, with its start.json.

    Writes one JSON line, the content of worker.json, to ``report_fd`` and closes it; no line if the start failed.
    """
    with contextlib.suppress(PermissionError):  # already a leader
        os.setsid()
    # Blocked, not ignored: an order to leave that meets the worker before its first line waits, instead of being lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if not _claim(folder):
        os._exit(1)
    with open(f"{folder}/start.json", encoding="utf-8") as file:
        start: dict[str, Any] = json.load(file)
    own_mask = os.umask(0o077) if start.get("account") else None  # other accounts pass through the folder
    groups = [os.open(path, os.O_WRONLY) for path in start.get("groups", ())]  # no worker without its group
    _keep_room(folder)
    why, refusal = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(report_fd)
        os.close(why)
        _join(groups)
        _change_account(start.get("account"), refusal)
        if own_mask is not None:
            os.umask(own_mask)
        _become_worker(start)
        return start
    for group in groups:
        os.close(group)
    os.close(refusal)
    _end_refused(folder, why, worker)
    _tell(folder, report_fd, worker)
    lease = _Lease(start.get("lease", ""))
    status = _wait(worker, lease)
    _clear()
    _write(folder, "exit.json", _exit_record(status) | ({"lease_ended": True} if lease.killed else {}))
    os._exit(0)


def execute(start: dict[str, Any]) -> NoReturn:
    """Replace this process by the worker's command; if that fails, exit with the code that a shell would use."""
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
    """Move this process into its control groups."""
    try:
        for group in groups:
            os.write(group, b"0")
            os.close(group)
    except OSError as error:
        _complain(f"a worker must be in its control group: {error}", _NOT_JOINED)


def _change_account(account: dict[str, Any] | None, refusal: int) -> None:
    """Change to the worker's account; if that fails, write the cause to the pipe ``refusal`` and end this process."""
    try:
        if account is not None:
            change_account(account)
    except Exception as error:  # whatever it is, no script runs
        os.write(refusal, f"its account must be {account and account['login']}: {error}".encode()[:_MOST_WHY])
        os._exit(_NOT_JOINED)
    os.close(refusal)


def change_account(account: dict[str, Any]) -> None:
    """Change this process to another account irrevocably.

    The supplementary groups are changed first, then the group, the user last: each step needs rights that the next one
    takes away. Then no_new_privs keeps any program from gaining rights, and each step is verified, since a process with
    a remaining right would run a user's script with it.

    Args:
        account: login, uid, gid and groups.

    Raises:
        OSError: the kernel refused a step.
        ValueError: a step had no effect, or can be reversed.
    """
    uid, gid, groups = account["uid"], account["gid"], sorted(account["groups"])
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise OSError(ctypes.get_errno(), "no_new_privs was refused")
    if uid == 0 or (os.getresuid(), os.getresgid()) != ((uid,) * 3, (gid,) * 3) or sorted(os.getgroups()) != groups:
        raise ValueError("the change was not made")
    if _regains(os.setresuid, 0) or _regains(os.setresgid, 0) or _has_capabilities():
        raise ValueError("the change could be taken back")
    prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # debuggers of the account may attach, as to its other processes


def _regains(change: Any, number: int) -> bool:
    try:
        change(number, number, number)
    except PermissionError:
        return False
    return True


def _has_capabilities() -> bool:
    with open("/proc/self/status", "rb") as file:  # as text it may need a module that the account cannot read
        bits = [int(line.split()[1], 16) for line in file if line.startswith((b"CapPrm:", b"CapEff:", b"CapAmb:"))]
    return any(bits)


def _end_refused(folder: str, why: int, worker: int) -> None:
    """Wait until the worker has changed its account; if that failed, record the cause and end this process."""
    said = b""
    while part := os.read(why, _MOST_WHY):
        said += part
    os.close(why)
    if said:
        os.waitpid(worker, 0)
        _write(folder, "refused.json", {"why": said.decode(errors="replace")})
        os._exit(1)


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


class _Lease:
    """The node's lease as the launcher's file has it; while the file cannot be read, its last known value.

    Attributes:
        killed: whether the worker was killed because the lease ended.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self._warned: float | None = None
        self.killed = False

    def obey(self, worker: int) -> float:
        """Order the worker to suspend, or kill it, as its lease requires; returns the seconds until the next check."""
        self._known = read_lease(self._path) or self._known
        ends_at = self._known.get("ends_at")
        if ends_at is None:
            return _LOOK_SECONDS
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        left, warns_in = ends_at - now, self._known["warn_at"] - now
        if left <= 0.0:
            self.killed = True
            os.kill(worker, signal.SIGKILL)  # its exit is not known yet, so the pid is its own
            return _LOOK_SECONDS
        if warns_in <= 0.0 and not self._known["ordered"] and self._warned != ends_at:
            self._warned = ends_at
            os.kill(worker, signal.SIGTERM)
        return float(min(_LOOK_SECONDS, left, warns_in if warns_in > 0.0 else left))


def read_lease(path: str) -> dict[str, Any] | None:
    """Return the node's lease from its file; None: there is no file, or it is being written.

    ``ends_at`` (when workers are killed) and ``warn_at`` (when shepherds order them to suspend) are in seconds of
    CLOCK_BOOTTIME, null for never; ``ordered``: the launcher has ordered them already.
    """
    try:
        with open(path, "rb") as file:
            line, _, total = file.read(LEASE_BYTES).rstrip().rpartition(b" ")
        lease: dict[str, Any] = json.loads(line)
        return lease if int(total, 16) == zlib.crc32(line) else None
    except (OSError, ValueError):
        return None


def _wait(worker: int, lease: _Lease) -> int:
    """Wait until the worker ends, killing it at the end of the lease; returns its status as from waitpid(2)."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == worker:
            return status
        if not pid:
            signal.sigtimedwait((signal.SIGCHLD,), lease.obey(worker))


def _clear() -> None:
    """Kill the processes that the worker left behind, until this process has no children."""
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
    """Reserve a disk block for exit.json before the worker starts, so that its exit code is not lost on a full disk."""
    fd = os.open(f"{folder}/exit.json.new", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, b" " * 512)
    os.close(fd)


def sealed(record: dict[str, Any]) -> str:
    """Return a record with its checksum; a copy of ``node.kept_files.sealed``, which this module may not import."""
    text = json.dumps(record)
    return f'{text[:-1]}, "sum": "{zlib.crc32(text.encode()):08x}"}}'


def _complain(text: str, code: int) -> NoReturn:
    os.write(2, f"error: {text}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    execute(tend(sys.argv[1], int(sys.argv[2])))
