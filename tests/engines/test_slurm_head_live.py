"""The head as a batch job of a real Slurm: searches go on while one head follows another."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.slurm_lab import needs_slurm, slurm
from tests.engines.test_slurm_live import Site, all_up, wait

from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.processes import ProcessId, identify
from eunomia_engines.head.files import read_record
from eunomia_engines.slurm.request import FOLDER

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(1200)]


class HeadSite(Site):
    """A user whose head is a batch job."""

    def head(self) -> dict[str, Any]:
        """The head, as ``status`` shows it; empty: none."""
        return dict(json.loads(self.eunomia("slurm", "status", "--json"))["head"] or {})

    def serves(self, than: str = "") -> bool:
        """Whether a head serves, in another job than this one."""
        head = self.head()
        return bool(head.get("serves")) and head.get("job") != than

    def head_log(self) -> str:
        """The last lines of all heads."""
        logs = sorted((self.state / "engine" / "slurm" / "logs").glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in logs)

    def process(self) -> ProcessId:
        """The process of the head that served last."""
        found = identify(int(read_record(self.state / FOLDER)["pid"]))
        assert found is not None
        return found

    def check(self, *, over: bool = False) -> list[str]:
        """What the checker of journals finds."""
        return [str(finding) for finding in check_folder(self.state, over=over).findings]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HeadSite]:
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as lab:
        made = HeadSite(lab, tmp_path)
        yield made
        if made.state.exists():
            made.eunomia("slurm", "down", "--now")


def test_a_search_runs_under_a_head_in_a_job_and_down_leaves_nothing(site: HeadSite) -> None:
    site.up("--head", "job", nodes=2)
    assert site.serves()
    wait(all_up(site, 2), "two nodes are up")
    wait(lambda: site.head()["next"] is not None, "the next head waits in the queue")
    site.search(iterations=200, seconds=0.02)
    refused = ["slurm", "up", "--nodes", "1", "--gres", "gpu:4", "--time", "1h", "--head", "job"]
    assert "a state folder must have one head" in site.eunomia(*refused, fails=True)
    wait(lambda: site.app()["state"] == "finished", "the search finishes")
    assert site.app()["trials"] == {"ended": 9, "all": 9}
    site.eunomia("slurm", "down")
    assert site.left() == []
    assert site.check(over=True) == []


@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_the_next_head_goes_on_where_the_one_before_ended(site: HeadSite, how: str) -> None:
    site.up("--head", "job", nodes=2)
    wait(all_up(site, 2), "two nodes are up")
    wait(lambda: site.head()["next"] is not None, "the next head waits in the queue")
    site.search(iterations=1500, seconds=0.05)
    wait(lambda: site.app()["slots"] == 4, "the search holds all slots")
    first, jobs = site.head()["job"], {node["job"] for node in site.nodes()}
    began = time.monotonic()
    if how == "killed":
        site.process().signal(signal.SIGKILL)
    else:
        site.lab.call("scancel", first)
    wait(lambda: site.serves(first), "the next head serves")
    print(f"{how}: the next head serves after {time.monotonic() - began:.1f} s")
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    assert {node["job"] for node in site.nodes()} == jobs, "no node was replaced"
    site.eunomia("slurm", "down")
    assert site.left() == []
    assert site.check(over=True) == []


def test_of_two_heads_at_once_the_later_is_obeyed_and_the_other_ends(site: HeadSite) -> None:
    site.up("--head", "job", nodes=1)
    wait(all_up(site, 1), "a node is up")
    wait(lambda: site.head()["next"] is not None, "the next head waits in the queue")
    site.search(iterations=800, seconds=0.05)
    wait(lambda: site.app()["slots"] == 2, "the search holds all slots")
    first, before = site.head()["job"], site.process()
    on = site.lab.call("squeue", "-h", "-j", first, "-o", "%N").strip()
    site.lab.kill(on)  # its slurmd is dead, its processes live: Slurm calls the node lost and starts the next head
    began = time.monotonic()
    wait(lambda: site.serves(first), "the next head serves", 300.0)
    print(f"node lost: the next head serves after {time.monotonic() - began:.1f} s")
    assert not before.alive, "the head before has ended by itself"
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 900.0)
    assert site.check() == []
