"""The machine and the installation that a live run uses."""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from eunomia_appmaster.node import local_machine


def run_in_this_installation(env: MutableMapping[str, str]) -> None:
    """Make ``python`` in submitted commands this process's interpreter, by changing PATH and VIRTUAL_ENV.

    With another interpreter, workers could not be forked from the zygote, and modules that the scripts import might be
    missing.
    """
    env["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), env.get("PATH")]))
    if sys.prefix == sys.base_prefix:
        env.pop("VIRTUAL_ENV", None)
    else:
        env["VIRTUAL_ENV"] = sys.prefix


def cluster_text(machine: local_machine.LocalMachine) -> str:
    """Return this machine as the text of a cluster file."""
    types = list(dict.fromkeys(slot.gpu_type for slot in machine.slots))
    lines = []
    for name in types:
        slots = [slot for slot in machine.slots if slot.gpu_type == name]
        host = machine.host if len(types) == 1 else f"{machine.host}-{name}"  # names as in the arbiter
        cpus = sum(slot.cpus for slot in slots) if machine.is_paced else machine.cpus * len(slots) / len(machine.slots)
        memory_gib = machine.memory_gib * len(slots) / len(machine.slots)
        gpus = f'gpus = "{len(slots)}x{name}", cpus = {cpus:g}, memory = "{memory_gib:.1f}GiB"'
        lines.append(f'  {{ names = "{host}", {gpus} }},\n')
    return f"machines = [\n{''.join(lines)}]\n"
