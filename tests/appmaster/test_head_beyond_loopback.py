"""A gang over the arbiter's own machine and another one: ``serve --announce``, in network namespaces."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.machines_lab import LiveMachines
from tests.appmaster.namespaces_lab import Machine, needs_namespaces, two_machines
from tests.appmaster.serving_lab import eventually

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPT = """
import os
import torch
import torch.distributed as group
group.init_process_group("gloo")
ranks = torch.tensor([float(group.get_rank() + 1)])
group.all_reduce(ranks)
if group.get_rank() == 0:
    made = f"{ranks.item()} {os.environ['MASTER_ADDR']} {os.environ['GLOO_SOCKET_IFNAME']}"
    open(os.environ["EUNOMIA_RUN_DIR"] + "/sum", "w").write(made)
group.destroy_process_group()
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[LiveMachines, Machine]]:
    with two_machines() as (one, other, _):
        made = LiveMachines(tmp_path, one)
        try:
            yield made, other
        finally:
            made.end()


def test_a_gang_runs_on_the_machine_of_the_arbiter_and_another_machine(machines: tuple[LiveMachines, Machine]) -> None:
    made, other = machines
    made.serve("--slots", "1", "--cpu-only", "--announce", made.head.address)
    made.take_token()
    made.join("other", other, 1, "--announce", other.address)
    addresses = [node["address"].partition(":")[0] for node in made.nodes().values()]
    assert addresses == [made.head.address, other.address]
    (made.folder / "train.py").write_text(SCRIPT)
    file = made.folder / "gang.toml"
    file.write_text(f'[app]\nname = "gang"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 2\n')
    made.submit(file)
    eventually(lambda: not made.asked("apps").get("apps", [1]), "it has ended", 300.0)
    ((_, state),) = [(app["app"], app["state"]) for app in made.asked("apps", "--all")["apps"]]
    assert state == "finished"
    total, master, interface = (made.state / "apps" / "gang" / "1" / "sum").read_text().split()
    assert (float(total), interface) == (3.0, made.head.device)
    assert master in (made.head.address, other.address)


def test_an_announced_address_that_is_not_of_this_machine_is_refused(machines: tuple[LiveMachines, Machine]) -> None:
    made, _ = machines
    process = made.serve("--slots", "1", "--cpu-only", "--announce", "10.213.0.77")
    assert process.wait(120) != 0
    said = (made.folder / "serve.log").read_text()
    assert "an address to listen on must be one of this machine, but got 10.213.0.77" in said
