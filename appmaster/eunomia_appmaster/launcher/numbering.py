"""The numbers of this machine's GPUs, which stay the same over restarts, since leases and epochs refer to them."""

import dataclasses
import itertools
from pathlib import Path

from eunomia_appmaster.launcher.files import read_kept_json, write_json
from eunomia_appmaster.node.local_machine import LocalMachine


def numbered(machine: LocalMachine, path: Path) -> LocalMachine:
    """Return the machine with each GPU's previous number as its slot's index; CPU slots are numbered separately.

    The number of a missing GPU stays free, and a new GPU takes the smallest free number: a replaced board keeps its
    slot.

    Args:
        machine: as detected.
        path: file that stores the numbers.

    Raises:
        InputError: the file and its backup are damaged.
    """
    known: dict[str, int] = read_kept_json(path)
    here = {slot.uuid for slot in machine.slots if slot.uuid}
    if not here:
        return machine
    numbers = {uuid: number for uuid, number in known.items() if uuid in here}
    free = (number for number in itertools.count() if number not in numbers.values())
    for slot in machine.slots:
        if slot.uuid and slot.uuid not in numbers:
            numbers[slot.uuid] = next(free)
    taken = set(numbers.values())
    gone = {uuid: number for uuid, number in known.items() if uuid not in here and number not in taken}
    if numbers | gone != known:
        write_json(path, numbers | gone, sync=True)
    slots = [dataclasses.replace(slot, index=numbers.get(slot.uuid, slot.index)) for slot in machine.slots]
    return dataclasses.replace(machine, slots=tuple(sorted(slots, key=lambda slot: slot.index)))
