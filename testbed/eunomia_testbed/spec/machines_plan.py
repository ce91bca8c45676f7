"""Reads ``--machines-plan``, a CSV file of machines that join, drain and leave the cluster."""

from typing import Final

from eunomia.contract.events import MachineDraining, MachineJoined, MachineKept, MachineLeft
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.units import NEVER, Seconds
from eunomia.words import did_you_mean, shown
from eunomia_testbed.simulator import MachineChange
from eunomia_testbed.simulator.machine_changes import Change
from eunomia_testbed.spec.csv_rows import rows_of, seconds_of

FLAG: Final = "--machines-plan"
COLUMNS: Final = ("time_seconds", "machine", "change", "detail")
CHANGES: Final = ("join", "drain", "keep", "leave")


def machines_plan_of(text: str, cluster: Cluster) -> tuple[MachineChange, ...]:
    """Return the changes in a plan of machines.

    Args:
        text: a CSV file with the columns ``time_seconds, machine, change, detail``. ``detail`` describes a joining
            machine as in ``--cluster`` (``8 V100 96cpu 500GB``), or is the optional time in seconds by which a draining
            machine must be empty.
        cluster: the machines at the start.

    Returns:
        The changes in order of time.

    Raises:
        InputError: the file does not exist or is not CSV, or a row contradicts the cluster at the row's time.
    """
    unreadable = f"{FLAG} must be a CSV file with the columns {', '.join(COLUMNS)}"
    rows = rows_of(text, COLUMNS, what="a plan of machines", unreadable=unreadable, flag=FLAG)
    there = {machine.name for machine in cluster.machines}
    known, changes = set(there), list[MachineChange]()
    timed = sorted([(seconds_of(row, "time_seconds", place), at) for at, (row, place) in enumerate(rows)])
    for time_seconds, at in timed:
        row, place = rows[at]
        name, change = row["machine"], row["change"]
        if change not in CHANGES:
            raise InputError(f"change must be one of {', '.join(CHANGES)}", value=shown(change), place=place)
        if change == "join" and (name in known or not name):
            rule = "a machine must join under a name that no machine had"
            raise InputError(rule, value=shown(name), place=place)
        if change != "join" and name not in there:
            value = f"{shown(name)}{did_you_mean(name, there)}"
            raise InputError("machine must be one of the cluster at that time", value=value, place=place)
        if change in ("keep", "leave") and row["detail"]:
            raise InputError(
                f'detail must be empty where a machine is to "{change}"', value=shown(row["detail"]), place=place
            )
        event = _event(name, change, row, place, time_seconds)
        there = there | {name} if change == "join" else there - {name} if change == "leave" else there
        known.add(name)
        if not there:
            raise InputError("a cluster must have at least one machine", value=f"{shown(name)} leaves", place=place)
        changes.append(MachineChange(time_seconds=time_seconds, event=event))
    return tuple(changes)


def _event(name: str, change: str, row: dict[str, str], place: str, now: float) -> Change:
    if change == "leave":
        return MachineLeft(machine=name)
    if change == "keep":
        return MachineKept(machine=name)
    if change == "drain":
        until = NEVER if not row["detail"] else Seconds(seconds_of(row, "detail", place))
        if until < now:
            raise InputError("a machine must be empty after it begins to drain", value=f"{until:g} s", place=place)
        return MachineDraining(machine=name, until=until)
    machines = Cluster.parse(row["detail"], place=place).machines
    if len(machines) > 1:
        raise InputError("one machine must join in a row", value=shown(row["detail"]), place=place)
    (machine,) = machines
    return MachineJoined(
        machine=name,
        gpu_type=machine.gpu_type,
        gpus=machine.gpus,
        cpus=machine.cpus,
        memory_gib=machine.memory_gib,
    )
