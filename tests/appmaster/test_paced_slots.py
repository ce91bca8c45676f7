"""Paced slots: CPU slots with types and speeds, from the command line to the cluster that policies see."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.commands.apps import facts, lines
from eunomia_appmaster.node.control_groups import choose
from eunomia_appmaster.node.local_machine import detect, usable_cpus
from eunomia_appmaster.node.slot_types import SlotType, parse_slot_types
from eunomia_appmaster.protocol import arbiter_pb2 as arbiter_pb
from eunomia_appmaster.protocol import launcher_pb2 as pb
from eunomia_appmaster.service.layout import Layout

_spec = importlib.util.spec_from_file_location("serving_lab", Path(__file__).parent / "serving_lab.py")
assert _spec is not None
assert _spec.loader is not None
lab_module = sys.modules.setdefault("serving_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
supervisor, client, tiny_app = lab_module.supervisor, lab_module.client, lab_module.tiny_app
eventually, floors = lab_module.eventually, lab_module.floors


def test_types_and_speeds_of_slots_are_parsed() -> None:
    assert parse_slot_types("2x fast:1.0, 2x slow:0.5", 3.5) == (
        SlotType(count=2, name="fast", speed=1.0),
        SlotType(count=2, name="slow", speed=0.5),
    )
    assert parse_slot_types("1xV100:.25", 1.0) == (SlotType(count=1, name="V100", speed=0.25),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2x fast:1.0, 2x slow:0.6", "together must be at most 3, the cores of this process less 0.5, but got 3.2"),
        ("fast:1.0", "slot types must look like"),
        ("2x fast", "slot types must look like"),
        ("2x fast:1.0,", "slot types must look like"),
        ("2x fast:nan", "slot types must look like"),
        ("-1x fast:0.5", "slot types must look like"),
        ("2x fa st:0.5", "slot types must look like"),
        ("٢x fast:0.5", "slot types must look like"),
        ("0x fast:0.5", "at least one slot"),
        ("1x fast:0.5, 1x fast:0.4", "must be named once"),
        ("1x fast:1.5", "from 0.05 to 1"),
        ("1x fast:0.0", "from 0.05 to 1"),
        ("1x CPU:0.5", 'must not be named "cpu"'),
        ("99999x fast:0.05", "slots must be at most"),
    ],
)
def test_types_that_a_machine_cannot_have_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_slot_types(text, 3.5)
    assert said in str(refused.value)
    assert "--slot-types" in str(refused.value)


def test_slots_are_given_by_type_or_by_number_but_not_both() -> None:
    if usable_cpus() < 1.0:
        pytest.skip("less than one core")
    machine = detect(slot_types="1x fast:0.3, 2x slow:0.1")
    assert [(slot.index, slot.gpu_type, slot.cpus) for slot in machine.slots] == [
        (0, "fast", 0.3),
        (1, "slow", 0.1),
        (2, "slow", 0.1),
    ]
    assert "paced cpu slots: 1x fast of 0.3 core, 2x slow of 0.1 core" in machine.describe()
    with pytest.raises(InputError, match="by number or by type"):
        detect(2, slot_types="1x fast:0.3")


def test_paced_slots_need_a_cpu_quota(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="paced slots need control groups with the controller cpu"):
        choose(tmp_path, "none", paced=True)


def test_each_type_of_slot_becomes_a_machine_with_its_cpus() -> None:
    layout = Layout.of([_node(fast=0.5, slow=0.25)])
    machines = [(one.name, one.gpu_type, one.gpus, one.cpus) for one in layout.cluster.machines]
    assert machines == [("box-fast", "fast", 1, 0.5), ("box-slow", "slow", 2, 0.5)]
    assert layout.change(_node(fast=0.5, slow=0.25)) is None
    changed = layout.change(_node(fast=0.5, slow=0.3))
    assert changed is not None
    assert (changed.left, [(one.machine.name, one.machine.cpus) for one in changed.joined]) == ((1,), [("box", 0.6)])
    changed = layout.change(_node(fast=0.5, other=0.25))
    assert changed is not None
    assert (changed.left, [(one.machine.name, one.slots) for one in changed.joined]) == ((1,), [("box", (1, 2))])


def _node(**speeds: float) -> pb.RegisterNodeRequest:
    kinds = [kind for kind in speeds for _ in range(1 if kind == "fast" else 2)]
    slots = [
        pb.Slot(index=index, gpu_type=kind, cpus=speeds[kind], memory_gib=1.0, paced=True)
        for index, kind in enumerate(kinds)
    ]
    return pb.RegisterNodeRequest(node="box", host="box", slots=slots, cpus=4.0, memory_gib=3.0)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("policy", ["oef_cooperative", "gandiva_fair"])
def test_a_live_policy_for_several_types_gives_apps_slots_of_both_speeds(tmp_path: Path, policy: str) -> None:
    types = "1x fast:0.4, 1x slow:0.2"
    groups = choose(tmp_path / "state")
    groups.close()
    if "cpu" not in groups.controllers or usable_cpus() < 1.1:
        pytest.skip(f"no pace can be kept here: {groups.describe()}")
    with supervisor(tmp_path, slots=None, slot_types=types, policy=policy) as made, client(made) as arbiter:
        for name in ("ana", "bob"):
            arbiter.submit(tiny_app(tmp_path, name, iterations=100_000, seconds=0.05))
        eventually(lambda: [arbiter.app(name).slots for name in ("ana", "bob")] == [1, 1])
        quotas = eventually(lambda: _quotas(tmp_path))
        assert quotas == [0.2, 0.4]
        held = {slot.gpu_type: slot.app for slot in arbiter.list(slots=True).slots}
        assert (set(held), set(held.values())) == ({"fast", "slow"}, {"ana", "bob"})
        assert [dict(arbiter.app(held[kind]).slots_by_type) for kind in held] == [{kind: 1} for kind in held]


def _quotas(folder: Path) -> list[float]:
    """Quotas of the workers' groups, as CPUs; empty until both have one."""
    records = [json.loads(path.read_text()) for path in (folder / "state/launcher/live").glob("*/container.json")]
    folders = [one["group"]["folders"] for one in records if one["slot"] >= 0]
    shares = []
    for one in folders:
        if "cpu" in one:
            quota, period = (Path(one["cpu"], f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        else:
            quota, period = Path(one["unified"], "cpu.max").read_text().split()
        shares.append(int(quota) / int(period))
    return sorted(shares) if len(shares) == 2 else []


def test_the_table_of_apps_names_the_types_of_held_slots() -> None:
    alone = arbiter_pb.App(app="ana", state="running", slots=2, max_slots=4)
    types = arbiter_pb.App(app="bob", state="running", slots=3, max_slots=4, slots_by_type={"slow": 1, "fast": 2})
    shown = "\n".join(lines(arbiter_pb.ListResponse(apps=[alone, types])))
    assert "2 of 4" in shown and "2 fast, 1 slow of 4" in shown
    assert facts(arbiter_pb.ListResponse(apps=[types]))["apps"][0]["slots_by_type"] == {"fast": 2, "slow": 1}
