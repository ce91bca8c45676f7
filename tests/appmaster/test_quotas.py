"""An app whose folder takes more than the quota is suspended with that reason, and goes on once it takes less."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import client, eventually, supervisor

from eunomia import cli
from eunomia_appmaster.app.cleaning import bytes_of
from eunomia_appmaster.launcher import quotas as quotas_module
from eunomia_appmaster.launcher.app_masters import AppMasters
from eunomia_appmaster.launcher.containers import Containers
from eunomia_appmaster.launcher.node import Node
from eunomia_appmaster.launcher.quotas import Quotas
from eunomia_appmaster.launcher.zygote_client import ZygoteClient
from eunomia_appmaster.launcher.zygotes import Zygotes
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.job_limits import MIB, JobLimits
from eunomia_appmaster.protocol import launcher_pb2 as pb

_floors = serving_lab.floors
WRITER = """
import os, signal, sys, time
signal.signal(15, lambda *_: sys.exit(75))
file = os.path.join(os.environ["EUNOMIA_RUN_DIR"], "big")
if not os.path.exists(file):
    open(file, "wb").write(b"x" * (30 << 20))
while not os.path.exists("end"):
    time.sleep(0.02)
"""
WAITS = "import time\nwhile True: time.sleep(0.05)"


def test_disk_usage_counts_blocks_but_neither_holes_nor_targets_of_links(tmp_path: Path) -> None:
    folder, other = tmp_path / "ana", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "thesis").write_bytes(b"x" * 5 * MIB)
    (folder / "link").symlink_to(other)
    (folder / "to-a-file").symlink_to(other / "thesis")
    (folder / "log").write_bytes(b"y" * MIB)
    os.truncate(folder / "log", 100_000_000_000)  # a sparse log of 100 GB
    assert MIB <= bytes_of(folder) < 2 * MIB
    (tmp_path / "itself").symlink_to(folder)
    assert bytes_of(tmp_path / "itself") == 0


def test_an_app_beyond_its_quota_is_suspended_until_it_uses_less(tmp_path: Path) -> None:
    node = Node(tmp_path, "box7", local_machine.detect(1, use_gpus=False))
    node.secret = b"secret of sixteen bytes and more"
    node.limits = JobLimits(app_bytes=4 * MIB)
    taken = {"ana": 3 * MIB}
    order = pb.AppMasterOrder(app="ana", attempt=1, command=[sys.executable, "-c", WAITS], folder=str(tmp_path))

    async def state(masters: AppMasters, wanted: "pb.AppMasterState.ValueType") -> pb.AppMasterStatus:
        while (found := next(iter(masters)).status).state != wanted:
            await asyncio.sleep(0.01)
        return found

    async def run() -> None:
        containers = Containers(node, Zygotes(ZygoteClient(node.folder, enabled=False)))
        masters = AppMasters(node, containers, "127.0.0.1:1", pause_seconds=0.01)
        masters.registered.set()
        quotas = Quotas(node, containers, masters, measure=lambda folder: taken[folder.name])
        quotas.limit_users(())
        masters.start(order)
        await state(masters, pb.APP_MASTER_RUNNING)
        await quotas.look()
        assert next(iter(masters)).status.state == pb.APP_MASTER_RUNNING, "it is within its quota"
        taken["ana"] = 5 * MIB  # as where a quota is set below what is there already
        await quotas.look()
        status = await state(masters, pb.APP_MASTER_SUSPENDED)
        assert "takes 5 MiB of disk, more than its quota of 4 MiB" in status.diagnostics
        assert status.held_back and not status.HasField("again_at"), "no time ends it"
        await quotas.look()
        await asyncio.sleep(0.1)
        assert (status.state, status.attempt) == (pb.APP_MASTER_SUSPENDED, 1)
        taken["ana"] = MIB
        await quotas.look()
        again = await state(masters, pb.APP_MASTER_RUNNING)
        assert (again.attempt, again.part, again.held_back) == (1, 2, False)
        assert not next(iter(masters)).own_ends.times, "nothing of it counts against the app"
        masters.drain(0.0)
        await masters.ended()

    asyncio.run(asyncio.wait_for(run(), 60.0))


def test_measuring_takes_a_twentieth_of_a_core_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, spent, pauses = Node(tmp_path, "box7", local_machine.detect(1, use_gpus=False)), [], []

    def measure(folder: Path) -> int:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        spent.append(time.thread_time() - began)
        return 0

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    async def run() -> None:
        containers = Containers(node, Zygotes(ZygoteClient(node.folder, enabled=False)))
        masters = AppMasters(node, containers, "127.0.0.1:1")
        quotas = Quotas(node, containers, masters, measure=measure)
        quotas.limit_users([pb.DiskLimit(user="ana", bytes=1, apps=["a", "b"])])
        monkeypatch.setattr(quotas_module.asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await quotas.run(look_seconds=0.1)

    asyncio.run(run())
    assert len(spent) == 2
    assert pauses[0] >= sum(spent) / quotas_module.SHARE


@pytest.mark.slow
def test_jobs_of_an_app_beyond_its_quota_end_with_the_reason_on_every_screen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(WRITER)
    for name in ("big", "next"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} train.py"\nslots = 1\n')
    options = ("--not-durable", "--heartbeat-seconds", "0.3", "--app-gib", str(20 / 1024))
    with supervisor(tmp_path, slots=1, arbiter_options=options) as made, client(made) as arbiter:
        arbiter.submit(tmp_path / "big.toml")
        eventually(lambda: arbiter.app("big").state == "suspended", "suspended")
        why = arbiter.app("big").why
        assert "MiB of disk, more than its quota of 20 MiB" in why
        eventually(lambda: all(slot.state == "free" for slot in arbiter.list(slots=True).slots), "its slot")
        capfd.readouterr()
        state = ("--state-dir", str(made.state_dir))
        assert cli.run(["apps", *state]) == 0 and cli.run(["explain", "big", *state]) == 0
        assert capfd.readouterr().out.count("quota of 0.02 GiB") == 2
        assert cli.run(["apps", "--json", *state]) == 0
        (facts,) = json.loads(capfd.readouterr().out)["apps"]
        assert facts["why"] == why and facts["tried_again_in_seconds"] is None and facts["held_back"]
        (made.state_dir / "apps" / "big" / "1" / "big").write_bytes(b"")
        eventually(lambda: arbiter.app("big").running == 1, "it goes on")
        (tmp_path / "end").touch()
        eventually(lambda: arbiter.app("big").state == "finished", "the end")
        assert not arbiter.app("big").failed
