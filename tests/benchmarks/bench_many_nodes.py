"""Many launchers on one host under one arbiter, and a search on them of which several nodes are lost at once.

    python tests/benchmarks/bench_many_nodes.py --nodes 8 --jobs 50 --lost 2
    python tests/benchmarks/bench_many_nodes.py --nodes 64 --jobs 400 --lost 13

An arbiter's process, a head of one slot for the app master, and launchers with 16 CPU slots each and no zygote; the
jobs of one search are ``sleep``. Printed are:

- the CPU seconds and the memory (PSS) of a launcher after its start, and of a shepherd;
- twice, without jobs and beside them: how long a heartbeat takes that is answered at once, sent four times a second by
  one more node, which drains; the arbiter's share of a core; what the rows of the journal's steps and its pages grow;
- seconds from the kill of the launchers that have the most jobs, with all their processes, until as many jobs run again
  as before, and when the arbiter had counted the nodes as lost: their leases end first (``--lease``).

All launchers share one ``/proc`` with the processes of all, one disk and the cores of this machine, so this says what
collapses, and not how long it takes on as many machines. Prints; asserts no timing.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from eunomia_appmaster.node.kept_files import read_token
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol import launcher_pb2_grpc as lrpc
from eunomia_appmaster.protocol.versions import PROTOCOL, PYTHON, VERSION

ROOT = Path(__file__).parent.parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
SLEEP = "86399.25"
"""Seconds that a worker sleeps; the number marks them."""
PATIENCE_SECONDS = 1800.0
PROBE = "probe"
BEAT_SECONDS = 0.25


class Town:
    """The processes of one measurement.

    Args:
        folder: for all files.
        nodes: besides the head.
        slots: of each.
        lease_seconds: of a node.
    """

    def __init__(self, folder: Path, nodes: int, slots: int, lease_seconds: float) -> None:
        self.folder, self.state, self._slots = folder, folder / "state", slots
        self._names = [f"n{number:02d}" for number in range(1, nodes + 1)]
        self._env = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / floor) for floor in FLOORS)}
        self._env |= {"EUNOMIA_STATE_DIR": str(self.state), "EUNOMIA_LOG": "warning"}
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}
        options = ["--state-dir", str(self.state), "--address", "127.0.0.1:0", "--policy", "fifo"]
        options += ["--node-lease-seconds", f"{lease_seconds:g}", "--not-durable"]
        self.arbiter = self._started("arbiter", ["-m", "eunomia_appmaster.service", *options])
        run = self.state / "run"
        wait_for(lambda: (run / "address").exists() and (run / "launcher.token").exists(), "the arbiter is up")
        self.address = (run / "address").read_text().strip()
        self.operator = bearer((run / "token").read_text())
        self._token = run / "launcher.token"
        self.channel = grpc.insecure_channel(self.address)
        self.client = rpc.ClientProtocolStub(self.channel)

    def _started(self, name: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([sys.executable, *arguments], env=self._env, stdout=log, stderr=log)

    def begin(self) -> None:
        """Start the launchers, eight at a time, and wait until all have registered."""
        self._launch("head", [], 1)
        wait_for(lambda: self._alive() >= 1, "the head has registered")
        for begin in range(0, len(self._names), 8):
            for name in self._names[begin : begin + 8]:
                self._launch(name, ["--node-dir", str(self.folder / "nodes" / name)], self._slots)
            wait_for(lambda: self._alive() >= len(self.launchers), "the launchers have registered")

    def _launch(self, name: str, more: list[str], slots: int) -> None:
        command = ["-m", "eunomia_appmaster.launcher", "--state", str(self.state), "--arbiter", self.address]
        command += ["--token-file", str(self._token), "--node", name, "--slots", str(slots), "--cpu-only"]
        command += ["--no-zygote", "--control-groups", "none", *more]
        self.launchers[name] = self._started(name, command)

    def _alive(self) -> int:
        for name, process in {"arbiter": self.arbiter, **self.launchers}.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended: {(self.folder / f'{name}.log').read_text()[-500:]}")
        try:
            health = self.client.Health(pb.HealthRequest(), metadata=self.operator, timeout=30.0)
        except grpc.RpcError:
            return 0
        return sum(node.alive for node in health.nodes if node.node != PROBE)

    def lost(self, names: set[str]) -> int:
        """Return how many of these nodes the arbiter counts as lost."""
        listed = self.client.ListNodes(pb.ListNodesRequest(), metadata=self.operator, timeout=60.0).nodes
        return sum(node.state == "down" for node in listed if node.node in names)

    def submit(self, jobs: int) -> None:
        """Submit the search."""
        (self.folder / "search.toml").write_text(
            f'[app]\nname = "search"\n[job]\ncommand = "sleep {SLEEP}"\nslots = 1\nmax_iterations = 1000000\n'
            "[space]\nlr = {type = 'float', low = 0.1, high = 0.5}\n"
            f"[tuner]\ntrials = {jobs}\nmetric = 'val/accuracy'\nmode = 'max'\n"
        )
        command = [sys.executable, "-c", "from eunomia.cli import main; main()", "submit", "search.toml"]
        subprocess.run(command, env=self._env, cwd=self.folder, check=True, capture_output=True)

    def running(self) -> Counter[str]:
        """Return the number of workers by node."""
        return Counter(name for name, process in self.launchers.items() for _ in workers_of(process.pid))

    def row_bytes(self) -> tuple[int, int]:
        """Return the bytes of the journal's steps, and of its pages in use."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/journal.sqlite?mode=ro", uri=True)) as database:
            one = [
                int(database.execute(query).fetchone()[0] or 0)
                for query in (
                    "SELECT sum(length(events) + length(decision)) FROM steps",
                    "PRAGMA page_count",
                    "PRAGMA freelist_count",
                    "PRAGMA page_size",
                )
            ]
        return one[0], (one[1] - one[2]) * one[3]

    def measure(self, what: str, seconds: float) -> None:
        """Print the figures of a while."""
        arbiter = psutil.Process(self.arbiter.pid)
        launchers = [psutil.Process(one.pid) for one in self.launchers.values()]
        before = [cpu(arbiter), sum(map(cpu, launchers)), *self.row_bytes()]
        began = time.monotonic()
        delays = asyncio.run(self._probe(seconds))
        wall = time.monotonic() - began
        after = [cpu(arbiter), sum(map(cpu, launchers)), *self.row_bytes()]
        spent = [(late - early) / wall for late, early in zip(after, before, strict=True)]
        p50, p99 = (1000.0 * float(np.percentile(delays, part)) for part in (50, 99))
        print(
            f"{what}: heartbeat p50 {p50:.1f} ms, p99 {p99:.1f} ms ({len(delays)} in {wall:.0f} s); arbiter "
            f"{100 * spent[0]:.1f} % of a core, launchers {100 * spent[1] / len(launchers):.2f} % each; journal: rows "
            f"of steps {3600 * spent[2] / 1e6:.2f}, pages {3600 * spent[3] / 1e6:.2f} MB/h; arbiter "
            f"{arbiter.memory_info().rss / 1e6:.0f} MB (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )

    async def _probe(self, seconds: float) -> list[float]:
        """Register one more node that drains, and return how long its heartbeats take."""
        metadata = bearer(read_token(self._token))
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub: Any = lrpc.ResourceTrackerStub(channel)
            shown = await stub.ShowStorage(lpb.ShowStorageRequest(node=PROBE), metadata=metadata)
            request = lpb.RegisterNodeRequest(
                node=PROBE, host=PROBE, container_manager_address="127.0.0.1:1", cpus=1.0, memory_gib=1.0
            )
            request.version, request.python, request.protocol = VERSION, PYTHON, PROTOCOL
            request.launcher_id, request.home, request.draining = "one", PROBE, True
            content = (self.state / "apps" / shown.file).read_bytes() if shown.file else b""
            request.storage_hash = hashlib.sha256(content).hexdigest()
            request.slots.add(index=0, gpu_type="cpu", cpus=1, memory_gib=1)
            request.slot_states.add(slot=0)
            registered = await stub.RegisterNode(request, metadata=metadata)
            drain = pb.DrainNodeRequest(node=PROBE)
            await asyncio.to_thread(self.client.DrainNode, drain, metadata=self.operator, timeout=60.0)
            delays, ends = [], time.monotonic() + seconds
            while time.monotonic() < ends:
                beat = lpb.NodeHeartbeatRequest(
                    node=PROBE, registration_id=registered.registration_id, draining=True, lease_left_seconds=1.0
                )
                beat.slot_states.add(slot=0)
                began = time.perf_counter()
                await stub.NodeHeartbeat(beat, metadata=metadata, timeout=60.0)
                delays.append(time.perf_counter() - began)
                await asyncio.sleep(BEAT_SECONDS)
            return delays

    def kill(self, count: int) -> tuple[set[str], int]:
        """Kill the launchers with the most workers, and all their processes; return their names and the workers."""
        chosen = [name for name, _ in self.running().most_common() if name != "head"][:count]
        gone = [process for name in chosen for process in tree(self.launchers[name].pid)]
        workers = sum(len(workers_of(self.launchers[name].pid)) for name in chosen)
        for process in gone:
            with contextlib.suppress(psutil.Error):
                process.kill()
        for name in chosen:
            self.launchers.pop(name).wait()
        return set(chosen), workers

    def close(self) -> None:
        """End all processes."""
        self.channel.close()
        ours = [one for process in (self.arbiter, *self.launchers.values()) for one in tree(process.pid)]
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        for popen in (self.arbiter, *self.launchers.values()):
            popen.wait()


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the workers below a launcher."""
    found = []
    for process in tree(pid):
        with contextlib.suppress(psutil.Error):
            if process.name() == "sleep" and SLEEP in process.cmdline():
                found.append(process)
    return found


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def pss(process: psutil.Process) -> float:
    """Return a process' share of memory in MB, pages that several have by their number."""
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1e3
    return 0.0


def wait_for(look: Callable[[], Any], what: str, pause: float = 0.2) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(pause)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with a token."""
    return (("authorization", f"Bearer {token.split()[0]}"),)


def run(town: Town, jobs: int, lost: int, seconds: float) -> None:
    """Measure, print."""
    began = time.monotonic()
    town.begin()
    each = [psutil.Process(one.pid) for name, one in town.launchers.items() if name != "head"]
    print(
        f"{len(each)} launchers registered after {time.monotonic() - began:.0f} s: "
        f"{np.mean([cpu(one) for one in each]):.2f} CPU s and {np.mean([pss(one) for one in each]):.1f} MB (PSS) each "
        f"(load {os.getloadavg()[0]:.1f})",
        flush=True,
    )
    town.measure("without jobs", seconds)
    began, before = time.monotonic(), cpu(psutil.Process(town.arbiter.pid))
    town.submit(jobs)
    wait_for(lambda: town.running().total() >= jobs, "all jobs run", pause=1.0)
    spent = cpu(psutil.Process(town.arbiter.pid)) - before
    shepherds = [one.parent() for name in town.launchers for one in workers_of(town.launchers[name].pid)[:1]]
    memory = [pss(one) for one in shepherds if one is not None]
    print(
        f"{jobs} jobs run after {time.monotonic() - began:.0f} s, arbiter {spent:.1f} CPU s; a shepherd has "
        f"{np.mean(memory):.1f} MB; by node {json.dumps(dict(town.running().most_common(3)))} ...",
        flush=True,
    )
    town.measure("beside jobs", seconds)
    began, before = time.monotonic(), cpu(psutil.Process(town.arbiter.pid))
    names, workers = town.kill(lost)
    noticed = 0.0

    def again() -> bool:
        nonlocal noticed
        if not noticed and town.lost(names) == len(names):
            noticed = time.monotonic() - began
        return town.running().total() >= jobs

    wait_for(again, "all jobs run again", pause=1.0)
    took, spent = time.monotonic() - began, cpu(psutil.Process(town.arbiter.pid)) - before
    print(
        f"{len(names)} nodes with {workers} jobs lost at once: counted as lost by {noticed:.0f} s, all run again after "
        f"{took:.0f} s; arbiter {spent:.1f} CPU s (load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


def main() -> None:
    """Read the options, and measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nodes", type=int, default=64)
    options.add_argument("--slots", type=int, default=16)
    options.add_argument("--jobs", type=int, default=400)
    options.add_argument("--lost", type=int, default=13)
    options.add_argument("--seconds", type=float, default=30.0, help="of each measurement of heartbeats")
    options.add_argument("--lease", type=float, default=90.0, help="of a node, in seconds")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="eunomia-nodes-", ignore_cleanup_errors=True) as folder:
        town = Town(Path(folder), chosen.nodes, chosen.slots, chosen.lease)
        with contextlib.ExitStack() as stack:
            stack.callback(town.close)
            run(town, chosen.jobs, chosen.lost, chosen.seconds)


if __name__ == "__main__":
    main()
