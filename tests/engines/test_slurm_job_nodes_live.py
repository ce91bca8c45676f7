"""Batch jobs of several nodes of a real Slurm: they start, drain and end together, and may lose a node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines.slurm_lab import needs_slurm, slurm
from tests.engines.test_slurm_live import Site, all_up, running, wait

from eunomia_appmaster.journal_check import check_folder

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as lab:
        made = Site(lab, tmp_path)
        yield made
        if made.state.exists():
            made.eunomia("slurm", "down", "--now")


def up_nodes(site: Site) -> list[dict[str, Any]]:
    """The nodes that are up."""
    return [node for node in site.nodes() if node["node_state"] == "up"]


def launcher(site: Site, node: str) -> int:
    """The process of a node's launcher; 0: there is none."""
    found = list(site.node_dir.glob(f"eunomia-*/{node}/launcher.json"))
    pid = int(json.loads(found[0].read_text())["pid"]) if found else 0
    return pid if psutil.pid_exists(pid) else 0


def ends(site: Site) -> dict[str, str]:
    """The exit codes of launchers, by the engine's id of their node."""
    folder = site.state / "engine" / "slurm" / "pilots"
    return {path.stem: path.read_text().strip() for path in folder.glob("*.end")}


def finish(site: Site, *, seconds: float = 900.0) -> None:
    """Wait for the end of the search, and check the journal."""
    wait(lambda: site.app()["state"] == "finished", "the search finishes", seconds)
    assert site.app()["trials"] == {"ended": 9, "all": 9}
    assert [str(finding) for finding in check_folder(site.state).findings] == []


def test_a_search_runs_on_a_job_of_three_nodes_each_ended_in_order_by_down(site: Site) -> None:
    words = ["--nodes", "3", "--nodes-per-job", "3", "--gres", "gpu:4", "--cpu-slots", "2", "--time", "30m"]
    assert "srun --nodes=3" in site.eunomia("slurm", "up", *words, "--dry-run")
    assert not site.state.exists()
    site.up("--nodes-per-job", "3")
    wait(all_up(site), "three nodes are up")
    nodes = site.nodes()
    assert {node["host"] for node in nodes} == {node["node"] for node in nodes} == {"gpu1", "gpu2", "gpu3"}
    assert len({(node["job"], node["ends_at"]) for node in nodes}) == 1
    assert len(site.lab.call("squeue", "-h").splitlines()) == 1
    site.search(iterations=200, seconds=0.02)
    finish(site)
    site.eunomia("slurm", "down")
    assert ends(site) == {node["id"]: "0" for node in nodes}
    assert site.left() == []


def test_a_launcher_that_dies_is_started_again_and_the_others_go_on(site: Site) -> None:
    site.up("--nodes-per-job", "3")
    wait(all_up(site), "three nodes are up")
    before = {node: launcher(site, node) for node in ("gpu1", "gpu2", "gpu3")}
    site.search(iterations=1500, seconds=0.05)
    wait(lambda: site.app()["slots"] == 6, "the search holds all slots")
    psutil.Process(before["gpu2"]).kill()
    wait(lambda: launcher(site, "gpu2") not in (0, before["gpu2"]), "the launcher is started again")
    wait(all_up(site), "three nodes are up")
    assert {node: launcher(site, node) for node in ("gpu1", "gpu3")} == {
        node: before[node] for node in ("gpu1", "gpu3")
    }
    assert len(running(site)) == 1
    finish(site)


def test_a_job_is_replaced_before_its_end_with_all_its_nodes(site: Site) -> None:
    words = ["--nodes", "3", "--nodes-per-job", "3", "--gres", "gpu:2", "--cpu-slots", "2", "--time", "00:02:00"]
    site.eunomia("slurm", "up", *words, "--node-dir", str(site.node_dir))
    wait(all_up(site), "three nodes are up")
    (first,) = {node["job"] for node in site.nodes()}
    site.search(iterations=600, seconds=0.05)
    wait(lambda: len({node["job"] for node in up_nodes(site)} - {first}) == 1, "a job of three nodes replaces it")
    wait(lambda: len([node for node in up_nodes(site) if node["job"] != first]) == 3, "all its nodes are up")
    assert {code for node, code in ends(site).items() if node.startswith(f"{first}-")} <= {"0"}
    finish(site)
    site.eunomia("slurm", "down")
    assert site.left() == []


def test_a_job_that_loses_a_node_goes_on_with_the_others(site: Site) -> None:
    site.up("--nodes-per-job", "3")
    wait(all_up(site), "three nodes are up")
    (job,) = running(site)
    site.search(iterations=3000, seconds=0.05)
    wait(lambda: site.app()["slots"] == 6, "the search holds all slots")
    site.lab.kill("gpu3")
    wait(lambda: [node["host"] for node in site.nodes() if node["engine_state"] == "ended"] == ["gpu3"], "it is lost")
    assert running(site) == {job}
    assert [node["why"] for node in site.nodes() if node["host"] == "gpu3"] == ["its host has left the job"]
    assert "gpu3" in site.eunomia("nodes"), "its processes live, so it stays in the arbiter"
    finish(site)


def test_all_nodes_of_a_job_follow_a_head_in_a_batch_job(site: Site) -> None:
    words = ["--nodes", "3", "--nodes-per-job", "3", "--gres", "gpu:2", "--cpu-slots", "2", "--time", "30m"]
    site.eunomia("slurm", "up", *words, "--head", "job", "--node-dir", str(site.node_dir))
    wait(all_up(site), "three nodes are up")
    assert len(list(site.node_dir.glob("eunomia-*/relay-*.port"))) == 3, "a relay of each node"
    site.search(iterations=200, seconds=0.02)
    finish(site)
    site.eunomia("slurm", "down")
    assert site.left() == []
