"""A Slurm of three nodes on this machine: a controller and three ``slurmd``, with device files in the place of GPUs.

Needs root, munge and Slurm's programs. Processes are tracked by their ids, not by control groups, so what only control
groups do (limits of memory and CPUs, an end of all processes of a job) is not shown by these tests.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "munged", "munge", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
NODES = 3
GPUS = 4
START_SECONDS = 60.0


def why_not() -> str:
    """Why there can be no Slurm here; empty: there can."""
    if os.geteuid() != 0:
        return "a Slurm of a test needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


needs_slurm = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


class SlurmLab:
    """The controller and the nodes.

    Args:
        folder: of all their files; new.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "slurm.conf"
        self._ports = free_ports(NODES + 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and wait until the nodes are idle."""
        self._make_devices()
        host = socket.gethostname().partition(".")[0]
        self.config.write_text(self._text(host), encoding="utf-8")
        names = "\n".join(
            f"NodeName=gpu{number} Name=gpu Type=v100 File={self.folder}/dev/gpu{number}-[0-{GPUS - 1}]"
            for number in range(1, NODES + 1)
        )
        (self.folder / "gres.conf").write_text(names + "\n", encoding="utf-8")
        if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode != 0:
            self._start_munge()
        self._run("slurmctld", "-D", "-i", "-f", str(self.config))
        for number in range(1, NODES + 1):
            (self.folder / f"spoolgpu{number}").mkdir()
            self._run(f"gpu{number}", "-D", "-f", str(self.config), "-N", f"gpu{number}", program="slurmd")
        deadline = time.monotonic() + START_SECONDS
        while self.call("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split() != ["idle"] * NODES:
            assert time.monotonic() < deadline, self.call("sinfo", "-N", "-l")
            time.sleep(0.2)

    def call(self, *command: str) -> str:
        """Run a program of Slurm and return its output, or its errors where there is none."""
        env = {**os.environ, "SLURM_CONF": str(self.config)}
        made = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, timeout=60, cwd=self.folder
        )
        return made.stdout or made.stderr

    def kill(self, name: str) -> None:
        """Kill a daemon; what it has started lives on."""
        self._processes.pop(name).kill()

    def stop(self) -> None:
        """End all daemons and what they have started."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.call("scancel", f"--user={os.getuid()}")
            time.sleep(1.0)
        self._end_scripts()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10.0)
            process.kill()

    def _run(self, name: str, *arguments: str, program: str | None = None) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self._processes[name] = subprocess.Popen(
                [program or name, *arguments],
                stdout=out,
                stderr=out,
                env={**os.environ, "SLURM_CONF": str(self.config)},
            )

    def _end_scripts(self) -> None:
        """End the scripts of jobs that no controller could cancel, and Slurm's process for each, which would wait."""
        found = subprocess.run(["pgrep", "-f", f"{self.folder}/spool"], capture_output=True, text=True, check=False)
        for pid in map(int, found.stdout.split()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text()
                parent = int(status.partition("PPid:")[2].split()[0])
                os.kill(pid, signal.SIGTERM)
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    time.sleep(0.5)
                    os.kill(parent, signal.SIGKILL)

    def _make_devices(self) -> None:
        (self.folder / "dev").mkdir()
        (self.folder / "ctld").mkdir()
        for number in range(1, NODES + 1):
            for gpu in range(GPUS):  # as /dev/null: Slurm refuses plain files
                os.mknod(self.folder / "dev" / f"gpu{number}-{gpu}", 0o20666, os.makedev(1, 3))

    def _start_munge(self) -> None:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", shutil.which("munged") or "munged"], check=True, timeout=30)

    def _text(self, host: str) -> str:
        controller, *ports = self._ports
        lines = {
            "ClusterName": "lab",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "ReturnToService": "2",
            "SlurmctldPort": str(controller),
            "SlurmdParameters": "config_overrides",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "GresTypes": "gpu",
            "SchedulerParameters": "sched_min_interval=0,sched_interval=1,bf_interval=1",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "SlurmdTimeout": "20",
            "KillWait": "5",
            "MinJobAge": "60",
            "StateSaveLocation": f"{self.folder}/ctld",
            "SlurmdSpoolDir": f"{self.folder}/spool%n",
            "SlurmctldPidFile": f"{self.folder}/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/slurmd-%n.pid",
            "SlurmctldLogFile": f"{self.folder}/slurmctld.log",
            "SlurmdLogFile": f"{self.folder}/slurmd-%n.log",
        }
        nodes = [
            f"NodeName=gpu{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=2000 "
            f"Gres=gpu:v100:{GPUS} State=UNKNOWN"
            for number, port in enumerate(ports, 1)
        ]
        every = f"Nodes=gpu[1-{NODES}] MaxTime=INFINITE State=UP"
        partitions = [
            f"PartitionName=gpu {every} Default=YES PriorityTier=1",
            f"PartitionName=high {every} PriorityTier=10",
        ]
        return "\n".join([*(f"{name}={text}" for name, text in lines.items()), *nodes, *partitions, ""])


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[SlurmLab]:
    """A Slurm for a test."""
    lab = SlurmLab(folder)
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()
