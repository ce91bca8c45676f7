"""The cluster file that a demo leaves names the machines and types as the arbiter did."""

import dataclasses
import tomllib

from eunomia_appmaster.node.local_machine import LocalMachine, LocalSlot
from eunomia_testbed.live_runs.this_machine import cluster_text

SLOT = LocalSlot(index=0, gpu_type="cpu", uuid="", island=0, cpus=0.5, memory_gib=2.0)


def test_plain_slots_form_one_machine() -> None:
    slots = tuple(dataclasses.replace(SLOT, index=index) for index in range(4))
    machine = LocalMachine(host="box7", slots=slots, cpus=2.0, memory_gib=8.0)
    assert tomllib.loads(cluster_text(machine)) == {
        "machines": [{"names": "box7", "gpus": "4xcpu", "cpus": 2, "memory": "8.0GiB"}]
    }


def test_each_type_of_paced_slots_becomes_a_machine_with_its_cpus() -> None:
    kinds = (("fast", 1.0), ("slow", 0.5), ("slow", 0.5))
    slots = [
        dataclasses.replace(SLOT, index=index, gpu_type=kind, cpus=speed, is_paced=True)
        for index, (kind, speed) in enumerate(kinds)
    ]
    machine = LocalMachine(host="box7", slots=tuple(slots), cpus=4.0, memory_gib=9.0)
    assert tomllib.loads(cluster_text(machine)) == {
        "machines": [
            {"names": "box7-fast", "gpus": "1xfast", "cpus": 1, "memory": "3.0GiB"},
            {"names": "box7-slow", "gpus": "2xslow", "cpus": 1, "memory": "6.0GiB"},
        ]
    }
