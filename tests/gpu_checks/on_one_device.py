"""Checks that need processes on the GPU, and no arbiter: shares of memory, checkpoints, collectives, faults."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_checks.check import must
from gpu_checks.devices import Gpu, wait_until

WORKERS = Path(__file__).parent / "workers"
SHARE = 0.4
"""Of the device's memory for each of two workers."""
MOST_SECONDS = 120
SUSPENDED = 75


def slots_of_gpus(_: Path) -> str:
    """See that the slots of this machine are the GPUs that torch sees."""
    import torch

    from eunomia_appmaster.node import local_machine

    machine = local_machine.detect()
    must(all(slot.uuid for slot in machine.slots), "every slot must be a GPU", machine.describe())
    count = torch.cuda.device_count()
    must(len(machine.slots) == count, "NVML must show as many GPUs as torch", f"{len(machine.slots)} and {count}")
    files = sum(bool(slot.device) for slot in machine.slots)
    return f"{machine.describe()}; {files} with a device file that a control group can close"


def shares_of_memory(folder: Path) -> str:
    """Let two workers train on one device, each within its share of the memory."""
    alone, *_ = _sharing(folder, 1)
    both = _sharing(folder, 2)
    refused = [one["refused"] for one in both]
    must(all(refused), "a worker must be refused memory beyond its share", refused)
    speeds = " and ".join(f"{one['steps_per_second']:.0f}" for one in both)
    return (
        f"2 workers of {SHARE:.0%} of the memory each, refused beyond it: {speeds} steps/s"
        f" ({alone['steps_per_second']:.0f} alone)"
    )


def _sharing(folder: Path, workers: int) -> list[dict[str, Any]]:
    place = folder / f"{workers}-workers"
    place.mkdir()
    processes = [
        _start("sharing.py", "--fraction", SHARE, "--ready", place / f"ready{rank}", "--go", place / "go")
        for rank in range(workers)
    ]
    try:
        wait_until(
            lambda: all((place / f"ready{rank}").exists() or processes[rank].poll() for rank in range(workers)),
            "workers are ready",
        )
        (place / "go").touch()
        return [json.loads(_output(process).splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()


def checkpoints(folder: Path) -> str:
    """Stop a training run by SIGTERM twice, and compare its end with that of an undisturbed run, bit by bit."""
    import torch

    whole = _trained(folder / "whole", [])
    stopped = _trained(folder / "stopped", [11, 26])
    names = _differences(torch.load(whole, weights_only=True), torch.load(stopped, weights_only=True))
    must(not names, "a run that goes on from checkpoints must end as an undisturbed one", ", ".join(names[:5]))
    kind = torch.load(whole, weights_only=True)["device_random"].device
    return f"parameters, AdamW's state and random states on {kind} equal bit by bit after 2 stops"


def _trained(run: Path, stops: Sequence[int]) -> Path:
    """Train in one incarnation more than there are stops; return the file of the end."""
    run.mkdir(parents=True)
    final = run / "final.pt"
    for incarnation, stop in enumerate([*stops, None], start=1):
        env = {"EUNOMIA_RUN_DIR": str(run), "EUNOMIA_INCARNATION": str(incarnation), "EUNOMIA_SEED": "7"}
        env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        process = _start("resumed.py", "--final", final, *(() if stop is None else ("--term-at", stop)), **env)
        code = SUSPENDED if stop is not None else 0
        _output(process, code=code)
    return final


def _differences(one: Any, other: Any, name: str = "") -> list[str]:
    """Return the names of what is not equal bit by bit."""
    import torch

    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [name]
        return [found for key in one for found in _differences(one[key], other[key], f"{name}/{key}")]
    if isinstance(one, list | tuple):
        return [found for at, each in enumerate(one) for found in _differences(each, other[at], f"{name}/{at}")]
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) else [name]
    return [] if one == other else [name]


def nccl(folder: Path) -> str:
    """Make NCCL's collectives with one rank."""
    return _collective(folder, "nccl", "cuda", 1)


def gloo(folder: Path) -> str:
    """Make gloo's collectives on CUDA tensors, with two ranks on one device."""
    return _collective(folder, "gloo", "cuda", 2)


def _collective(folder: Path, backend: str, device: str, world: int) -> str:
    words = ("--backend", backend, "--device", device, "--world", world, "--store", folder / "store")
    here = {"GLOO_SOCKET_IFNAME": "lo"}
    processes = [_start("collective.py", *words, "--rank", rank, **here) for rank in range(world)]
    try:
        return "; ".join(_output(process).splitlines()[-1] for process in processes)
    finally:
        for process in processes:
            process.kill()


def faults(folder: Path) -> str:
    """Provoke a fault of a program, see it by NVML, and see that the next program runs; read ECC's counters."""
    gpu = Gpu()
    nvml = gpu.nvml
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(gpu.handle, nvml.nvmlEventTypeXidCriticalError, events)
    said = _output(_start("faulty.py"), code=3).splitlines()[-1]
    try:
        xid = int(nvml.nvmlEventSetWait_v2(events, 10_000).eventData)
    except nvml.NVMLError as error:
        xid = 0
        must(False, "NVML must report the fault of a program as an Xid", f"{error}; CUDA said: {said}")
    finally:
        nvml.nvmlEventSetFree(events)
    _collective(folder, "gloo", "cuda", 1)
    try:
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        ecc = f"{nvml.nvmlDeviceGetTotalEccErrors(gpu.handle, *kinds)} uncorrected ECC errors since the driver's start"
    except nvml.NVMLError as error:
        ecc = f"no ECC counters ({error})"
    return f"Xid {xid} of a program seen ({said}); the next program ran; {ecc}"


def _start(script: str, *words: object, **env: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(WORKERS / script), *map(str, words)],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _output(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """Wait for a worker and return what it printed.

    Raises:
        GpuCheckError: another exit code; its output goes to the check's log.
    """
    text, _ = process.communicate(timeout=MOST_SECONDS)
    if process.returncode != code:
        print(text)
    last = text.strip().splitlines()[-1:] or ["no output"]
    must(process.returncode == code, f"a worker must end with {code}", f"{process.returncode}: {last[0]}")
    return text
