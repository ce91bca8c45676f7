"""Checks the request of ``eunomia slurm up`` against Slurm's partitions and nodes, before anything is submitted."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from eunomia.errors import InputError
from eunomia.words import did_you_mean
from eunomia_engines.engine import EngineRefusedError
from eunomia_engines.slurm.head_job import head_script
from eunomia_engines.slurm.programs import SlurmNodes, SlurmPrograms
from eunomia_engines.slurm.request import Request, gpus_asked
from eunomia_engines.slurm.script import job_script


def suitable(request: Request, nodes: Sequence[SlurmNodes]) -> Sequence[SlurmNodes]:
    """Return the nodes of the request's partition that have its GPUs.

    Raises:
        EngineRefusedError: the partition does not exist, lacks these GPUs, or allows no job of this length.
    """
    names = sorted({one.partition for one in nodes})
    chosen = request.partition or next((one.partition for one in nodes if one.is_default), "")
    if not chosen:
        raise EngineRefusedError(f"--partition must be given, as Slurm has no default one: {', '.join(names)}")
    here = [one for one in nodes if one.partition in chosen.split(",")]
    if not here:
        hint = did_you_mean(chosen, names)
        raise EngineRefusedError(f"--partition must be one of {', '.join(names)}", value=f'"{chosen}"{hint}')
    if request.gres:
        kind, count = gpus_asked(request.gres)
        found = [one for one in here if _gpus(one, kind) >= count]
        if not found:
            counts = Counter[str]()
            for one in here:
                counts[_text(one)] += one.count
            each = "; ".join(f"{count} node{'' if count == 1 else 's'} with {gpus}" for gpus, count in counts.items())
            rule = f"--gres must be what nodes of partition {chosen} have ({each})"
            raise EngineRefusedError(rule, value=f'"{request.gres}"')
        here = found
    limits = [one.limit_seconds for one in here if one.limit_seconds is not None]
    if limits and request.seconds > max(limits):
        rule = f"--time must be at most the limit of partition {chosen}, {max(limits) / 3600:g} h"
        raise EngineRefusedError(rule, value=f"{request.seconds / 3600:g} h")
    return here


def with_share(request: Request, here: Sequence[SlurmNodes]) -> Request:
    """Return the request with CPUs and memory; defaults are the same share of a node as the request's GPUs are.

    Otherwise Slurm gives a job one CPU. The share is that of the smallest node, so that the job fits on each node.
    """
    if not request.gres:
        return request if request.cpus is not None else request.model_copy(update={"cpus": request.cpu_slots})
    kind, count = gpus_asked(request.gres)
    cpus = min(one.cpus * count // _gpus(one, kind) for one in here)
    memory = min(one.memory_mib * count // _gpus(one, kind) for one in here)
    changed: dict[str, int] = {}
    if request.cpus is None and cpus >= 1:
        changed["cpus"] = cpus
    if request.memory_mib is None and memory > 1:  # 1: Slurm's configuration does not name it
        changed["memory_mib"] = memory
    return request.model_copy(update=changed)


def check_with_slurm(request: Request, state: Path, programs: SlurmPrograms) -> None:
    """Let Slurm check a node's job, and the head's job if the head runs in one, without submitting them.

    Raises:
        EngineRefusedError: Slurm would refuse a job; the error contains Slurm's message.
    """
    scripts = [job_script(request, state), *([head_script(request, state)] if request.head == "job" else [])]
    with TemporaryDirectory(prefix="eunomia-slurm-") as folder:
        path = Path(folder) / "job.sh"
        for script in scripts:
            path.write_text(script, encoding="utf-8")
            programs.submit(str(path), only_test=True)


def check_file(path: Path | None) -> None:
    """Check that the setup file, if there is one in the request, exists.

    Raises:
        InputError: it does not exist.
    """
    if path is not None and not path.is_file():
        raise InputError("--setup must name a file that all nodes see", value=str(path))


def _gpus(nodes: SlurmNodes, kind: str) -> int:
    return nodes.gpus.get(kind, 0) if kind else sum(nodes.gpus.values())


def _text(nodes: SlurmNodes) -> str:
    return (
        ",".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in nodes.gpus.items()) or "no GPUs"
    )
