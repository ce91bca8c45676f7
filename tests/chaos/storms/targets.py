"""The processes of a live run by kind, each known by its pid and start time, so that no other one is ever touched."""

import os
from collections.abc import Iterator
from pathlib import Path

from chaos.storms.plan import APP_MASTER, ARBITER, LAUNCHER, SHEPHERD, WORKER, ZYGOTE
from eunomia_appmaster.launcher.processes import ProcessId, identify
from eunomia_testbed.live_runs.live_run import LiveRun
from eunomia_testbed.live_runs.processes import container_processes

ZYGOTE_NAMES = ("eunomia: zygote", "eunomia_appmaster.launcher.zygote")
Targets = dict[str, dict[str, ProcessId]]
"""By kind and name."""


def targets(run: LiveRun) -> Targets:
    """Return all processes of a run that live."""
    found: Targets = {ARBITER: {}, LAUNCHER: {}, ZYGOTE: {}, APP_MASTER: {}, SHEPHERD: {}, WORKER: {}}
    for kind, child in ((ARBITER, run.supervisor.arbiter), (LAUNCHER, run.supervisor.launcher)):
        process = None if child is None or child.pid is None else identify(child.pid)
        if process is not None:
            found[kind][kind] = process
    for name, slot, process, shepherd in containers(run.folder):
        found[APP_MASTER if slot < 0 else WORKER][name] = process
        if shepherd is not None:
            found[SHEPHERD][name] = shepherd
    known = {process.pid for kind in found.values() for process in kind.values()}
    for launcher in found[LAUNCHER].values():
        for pid in _children(launcher.pid) - known:
            process = identify(pid)
            if process is not None and any(name in _command(pid) for name in ZYGOTE_NAMES):
                found[ZYGOTE][ZYGOTE] = process
    return found


def containers(folder: Path) -> Iterator[tuple[str, int, ProcessId, ProcessId | None]]:
    """Yield id, slot (negative: an app master's), process and shepherd of each container whose process lives."""
    for each in container_processes(folder):
        yield each.container, each.slot, each.process, each.shepherd


def of_folder(folder: Path) -> list[str]:
    """Return all other processes of this machine whose command or environment names a run's folder."""
    words, found = str(folder).encode(), []
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        if pid in (os.getpid(), os.getppid()) or identify(pid) is None:
            continue
        if any(words in _bytes(pid, name) for name in ("cmdline", "environ")):
            found.append(f"{pid} {_command(pid)[:200]}")
    return found


def _children(pid: int) -> set[int]:
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return set()


def _command(pid: int) -> str:
    return _bytes(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _bytes(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
