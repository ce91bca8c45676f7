"""Checks with an arbiter and a launcher: memory is free before a slot is; the demo's report beside NVML."""

import contextlib
import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from eunomia_appmaster.client import Client
from eunomia_appmaster.node.supervisor import Serving, Supervisor
from gpu_checks.check import must
from gpu_checks.devices import Gpu, GpuReader, sampled, wait_until

WORKERS = Path(__file__).parent / "workers"
MIB = 1 << 20
_WATCH_SECONDS = 6.0
"""The launcher asks NVML for faults every 5 s."""
HELD_MIB = 1024
SPARE_BYTES = 64 * MIB
"""The driver's own use may differ by so much from before."""


def memory_is_free_first(folder: Path) -> str:
    """End a job that holds memory, five times; the memory must be free by the time that the slot is."""
    return freed(folder, Gpu(), device="cuda", times=5)


def freed(folder: Path, gpu: GpuReader, *, device: str, times: int) -> str:
    """Cancel apps that hold memory of a device, and look at it as soon as the arbiter says that the slot is free.

    Args:
        folder: for the state of arbiter and launcher.
        gpu: is asked for memory and processes.
        device: cuda, or cpu for a test of this check.
        times: so many apps, one after the other.
    """
    with _served(folder, cpu_only=device == "cpu") as client:
        waits = [_one_end(client, folder, gpu, f"holder{number}", device) for number in range(times)]
    return f"{times} ends: memory free before the slot; {fmean(waits):.2f} s from cancel to a free slot"


def starts(folder: Path) -> str:
    """Start a worker as a fork of the zygote, and time it until it holds memory of the GPU."""
    with _served(folder, cpu_only=False) as client:
        seconds = []
        for number in range(3):
            mark = folder / f"holder{number}.holds"
            began = time.monotonic()
            _submit(client, folder, f"holder{number}", f"{WORKERS / 'holding.py'} --mib 64 --file {mark}")
            wait_until(mark.exists, "the worker holds memory")
            seconds.append(time.monotonic() - began)
            client.cancel(f"holder{number}")
    said = (folder / "log" / "launcher.log").read_text()
    must("zygote.unusable" not in said, "the zygote must be able to fork workers", said[-300:])
    return f"3 forks of the zygote: {fmean(seconds):.2f} s from submission to memory held"


def fault_of_a_job(folder: Path) -> str:
    """Let a job make an illegal access in a kernel: the job fails, the slot stays, and the next job runs on it."""
    with _served(folder, cpu_only=False) as client:
        slots, go = len(client.list(slots=True).slots), folder / "go"
        go.touch()
        sharing = f"sharing.py --fraction 0.1 --seconds 1 --ready {folder / 'ready'} --go {go}"
        ends = []
        for name, script in (("faulty", "faulty.py"), ("next", sharing)):
            _submit(client, folder, name, f"{WORKERS}/{script}")
            ends.append(client.wait(name, timeout="120s").state)
            time.sleep(_WATCH_SECONDS)
        must(ends == ["failed", "finished"], "a faulty job must fail and the next one finish", ends)
        left = [slot.state for slot in client.list(slots=True).slots]
        must(left == ["free"] * slots, "a job's fault must leave the slots", left)
    said = (folder / "log" / "launcher.log").read_text()
    must("gpu.lost" not in said, "a job's fault must not count as the GPU's", said[-300:])
    return "a job that made an illegal access failed, its slot stayed, the next job finished there"


@contextlib.contextmanager
def _served(folder: Path, *, cpu_only: bool) -> Iterator[Client]:
    made = Supervisor(
        folder / "state",
        Serving(
            slots=1,
            cpu_only=cpu_only,
            address="127.0.0.1:0",
            log_dir=folder / "log",
            arbiter_options=("--heartbeat-seconds", "0.3"),
        ),
    )
    made.start()
    try:
        with Client(made.address, token_file=made.token_file) as client:
            wait_until(lambda: client.health().ready, "the arbiter has its machine")
            yield client
    finally:
        made.stop()


def _submit(client: Client, folder: Path, name: str, command: str) -> None:
    file = folder / f"{name}.toml"
    file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} {command}"\nslots = 1\nretries = 0\n')
    client.submit(file)


def _one_end(client: Client, folder: Path, gpu: GpuReader, name: str, device: str) -> float:
    before, strangers = gpu.used_bytes(), gpu.process_ids()
    mark = folder / f"{name}.holds"
    command = f"{WORKERS / 'holding.py'} --device {device} --mib {HELD_MIB if device == 'cuda' else 8} --file {mark}"
    _submit(client, folder, name, command)
    wait_until(mark.exists, f"{name} holds memory")
    if device == "cuda":
        held = gpu.used_bytes() - before
        must(held >= HELD_MIB * MIB, "a job's memory must show in NVML", f"{held / MIB:.0f} MiB more than before")
    began = time.monotonic()
    client.cancel(name)
    while any(slot.state != "free" for slot in client.list(slots=True).slots):
        must(time.monotonic() < began + 60.0, "a slot must get free", "not within 60 s")
    used, there = gpu.used_bytes(), gpu.process_ids()
    seconds = time.monotonic() - began
    must(
        used <= before + SPARE_BYTES, "memory must be free before the slot is", f"{(used - before) / MIB:.0f} MiB held"
    )
    must(there <= strangers, "no process may be left on the GPU of a free slot", sorted(there - strangers))
    return seconds


def demo(folder: Path) -> str:
    """Run the demo on the GPUs, and compare the use that its report states with NVML's."""
    gpu, place = Gpu(), folder / "demo"
    command = [sys.executable, "-m", "eunomia", "demo", "--out", str(place), "--no-progress", "--json"]
    with sampled(gpu.utilization) as samples:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stderr)
    must(done.returncode == 0, "the demo must end with 0", f"{done.returncode}: {done.stderr[-200:]}")
    said = json.loads(done.stdout)
    row = next(csv.DictReader((place / "summary.csv").open(newline="")))
    must((place / "report.html").exists(), "the demo must leave its report", "none")
    must(fmean(samples) > 0.0, "the demo's jobs must use the GPU", "NVML saw no kernel")
    return (
        f"{len(said.get('apps', []))} apps ended; report: steps in {float(row['utilization']):.0%} of the slots' time;"
        f" NVML: kernels in {fmean(samples):.0%} of it"
    )
