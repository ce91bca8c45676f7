"""Work that a real Slurm's ends of nodes cost: with the end known beforehand, and with nodes that are killed."""

import contextlib
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from tests.engines.slurm_lab import needs_slurm, slurm
from tests.engines.test_slurm_live import SEARCH, Site, all_up, wait

from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.live_runs.redone import Redone, redone

pytestmark = [needs_slurm, pytest.mark.slow, pytest.mark.timeout(2400)]
STEP_SECONDS = 0.05
EVERY = 600
"""Steps between two checkpoints: half a minute."""
STEPS = 5400
LIFE_SECONDS = 150
STOP_SECONDS = 30.0
"""Time in which a worker must save at an order, on a busy machine."""


def ran(site: Site, killer: threading.Thread | None) -> Sequence[Redone]:
    """Run a search over ends of nodes to its end; the work that was done again at each."""
    wait(all_up(site, 2), "two nodes are up")
    text = SEARCH.format(iterations=STEPS, seconds=STEP_SECONDS).replace("--every 20", f"--every {EVERY}")
    (site.folder / "app.toml").write_text(text.replace("trials = 9", "trials = 4"), encoding="utf-8")
    site.eunomia("submit", str(site.folder / "app.toml"))
    if killer is not None:
        killer.start()
    wait(lambda: site.app()["state"] == "finished", "the search finishes", 1500.0)
    assert [str(finding) for finding in check_folder(site.state).findings] == []
    return list(redone(site.state, {}))


def kill_nodes(site: Site, stop: threading.Event) -> None:
    """Kill all processes of the oldest node each ``LIFE_SECONDS``, as a machine that fails."""
    while not stop.wait(LIFE_SECONDS):
        nodes = [node for node in site.nodes() if node["node_state"] == "up"]
        if nodes:
            oldest = min(nodes, key=lambda node: int(node["job"]))
            for process in processes_of(site, oldest["node"]):
                with contextlib.suppress(psutil.Error):
                    process.kill()
            site.lab.call("scancel", "--signal=KILL", "--full", oldest["job"])


def processes_of(site: Site, node: str) -> Sequence[psutil.Process]:
    """The launcher of a node, and all workers and app masters that it has started, whatever their parent is now."""
    (folder,) = site.node_dir.glob(f"eunomia-*/{node}")
    launcher = psutil.Process(int(json.loads((folder / "launcher.json").read_text())["pid"]))
    found = [launcher, *launcher.children(recursive=True)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(value.startswith(f"{folder}/") for value in process.environ().values()):
                found.append(process)
    return found


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_an_end_that_is_known_costs_no_work_and_another_at_most_what_was_not_saved(
    known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as lab:
        site, stop = Site(lab, tmp_path), threading.Event()
        killer = None if known else threading.Thread(target=kill_nodes, args=(site, stop), daemon=True)
        try:
            site.up(nodes=2, length=f"00:02:{LIFE_SECONDS - 120}" if known else "60m")
            again = ran(site, killer)
        finally:
            stop.set()
            site.eunomia("slurm", "down", "--now")
        nodes = len(list((site.state / "engine" / "slurm" / "logs").glob("*.log")))
    lost = [one.seconds for one in again]
    worst, all_ = max(lost, default=0.0), sum(lost)
    with capsys.disabled():
        what = "known" if known else "unknown"
        line = (
            f"end {what}: {nodes} nodes, {len(lost)} resumes with lost work, worst {worst:.1f} s, in all {all_:.1f} s"
        )
        sys.stdout.write(f"\n{line}\n")
    assert nodes > 2, "nodes were replaced"
    if known:
        assert worst < EVERY * STEP_SECONDS / 2
    else:
        assert lost and worst < EVERY * STEP_SECONDS + STOP_SECONDS
