"""The demo's four apps on two machines with an address each; the arbiter has no slots of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.machines_lab import LiveMachines
from tests.appmaster.namespaces_lab import Machine, needs_namespaces, two_machines
from tests.appmaster.serving_lab import eventually

from eunomia_testbed.demo.apps_of_demo import app_sources

_floors = serving_lab.floors
pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(1200)]
LIMIT_SECONDS = 900.0
LEASE = ("--set", "rounds.lease=15s")
"""A start takes a good part of the demo's six seconds where no process holds what the scripts import."""


class TwoNodes(LiveMachines):
    """An arbiter without slots on the first machine, and a launcher with two slots on each."""

    def __init__(self, folder: Path, one: Machine, other: Machine) -> None:
        super().__init__(folder, one)
        self.machines = {"one": one, "other": other}

    def start(self) -> None:
        self.serve("--no-launcher", "--policy", "demo", *LEASE)
        self.take_token()
        for name, machine in self.machines.items():
            self.join(name, machine, 2, "--announce", machine.address)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with two_machines() as (one, other, _):
        made = TwoNodes(tmp_path, one, other)
        try:
            made.start()
            yield made
        finally:
            made.end()


def test_the_apps_of_the_demo_finish_on_two_machines_and_no_slot_has_two_holders(nodes: TwoNodes) -> None:
    sources = app_sources()
    shutil.copytree(sources[0].path.parent, nodes.folder / "apps")
    for source in sources:
        file = nodes.folder / "apps" / source.path.name
        file.write_text(source.text)
        nodes.submit(file)
    eventually(lambda: not nodes.asked("apps")["apps"], "all apps have ended", LIMIT_SECONDS)
    ends = {app["app"]: app["state"] for app in nodes.asked("apps", "--all")["apps"]}
    assert ends == {source.path.stem: "finished" for source in sources}
    for name in nodes.machines:
        assert list((nodes.folder / name).glob("live/*")), f"work ran on {name}"
    nodes.end()
    checked = nodes.head.eunomia("journal", "check", str(nodes.state))
    assert "nothing found" in checked
