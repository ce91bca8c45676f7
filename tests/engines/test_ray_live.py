"""An arbiter on three nodes of a real Ray cluster: searches finish, whatever dies, and no node has two launchers."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.ray_lab import RayLab, needs_ray, ray_cluster
from tests.engines.ray_site import TUNERS, RaySite, app_file, results, wait

from eunomia_appmaster.journal_check import check_folder
from eunomia_testbed.demo.apps_of_demo import app_sources

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.timeout(1200)]
ALL_UP = ["{host}.3", "{host}.4", "{host}.5"]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-ray.md"


@pytest.fixture
def site() -> Iterator[RaySite]:
    folder = Path(tempfile.mkdtemp(prefix="eray-"))  # short: Ray's sockets are below it
    try:
        with ray_cluster(folder) as lab:
            made = RaySite(lab, folder)
            yield made
            if (made.state / "engine" / "ray" / "request.json").exists():
                with contextlib.suppress(AssertionError):
                    made.eunomia("ray", "down", "--now")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def names() -> list[str]:
    """The names of the three nodes."""
    return [name.format(host=os.uname().nodename) for name in ALL_UP]


def all_up(site: RaySite) -> None:
    """Wait until all three nodes are up."""
    try:
        wait(lambda: site.up_nodes() == names(), "three nodes are up", 240.0)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.eunomia('ray', 'status')}\n{site.head_log()}") from None


def all_finished(site: RaySite) -> bool:
    """Whether all apps have finished."""
    states = set(site.apps().values())
    assert not states & {"failed", "cancelled"}, site.apps()
    return states == {"finished"}


def findings(site: RaySite, *, over: bool = False) -> list[str]:
    """What the check of the journal finds: slots with two holders, among others."""
    return [str(finding) for finding in check_folder(site.state, over=over).findings]


def test_the_same_app_files_have_the_same_results_on_one_machine_and_on_ray(site: RaySite) -> None:
    site.up()
    all_up(site)
    assert len(site.launchers()) == 3
    for name in (*TUNERS, "single"):
        site.submit(name, iterations=100)
    wait(lambda: all_finished(site), "all apps finish")
    site.eunomia("ray", "down")
    assert site.left() == [] and findings(site, over=True) == []
    alone = site.folder / "alone"
    serving = subprocess.Popen(
        [sys.executable, "-m", "eunomia.cli", "serve", "--cpu-only", "--slots", "3", "--state-dir", str(alone)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "EUNOMIA_STATE_DIR": str(alone)},
    )
    on_ray, site.state = site.state, alone
    try:
        wait(lambda: (alone / "address").exists() or (alone / "arbiter.json").exists() or _answers(site), "it serves")
        for name in (*TUNERS, "single"):
            site.submit(name, iterations=100)
        wait(lambda: all_finished(site), "all apps finish")
    finally:
        serving.terminate()
        serving.wait(60.0)
        site.state = on_ray
    assert len(results(alone)) == 9 + 8 + 5 + 1
    assert results(alone) == results(on_ray)


def _answers(site: RaySite) -> bool:
    with contextlib.suppress(AssertionError):
        site.eunomia("nodes", "--json")
        return True
    return False


def test_the_four_apps_of_the_demo_finish_on_three_nodes(site: RaySite) -> None:
    site.up("--policy", "demo", "--set", "rounds.lease=2m")
    all_up(site)
    sources = app_sources()
    shutil.copytree(sources[0].path.parent, site.folder / "apps")
    for source in sources:
        file = site.folder / "apps" / source.path.name
        file = file.with_suffix(".toml")
        file.write_text(source.text)
        site.eunomia("submit", str(file))
    wait(lambda: all_finished(site), "the demo's apps finish", 900.0)
    assert len(site.apps()) == 4
    site.eunomia("ray", "down")
    assert site.left() == [] and findings(site, over=True) == []


def test_whatever_dies_on_a_node_no_second_launcher_begins_and_the_search_finishes(site: RaySite) -> None:
    site.up()
    all_up(site)
    one, two, three = names()
    site.submit("halving", iterations=3000, seconds=0.05)
    wait(lambda: site.held() == 6, "the search holds all slots")
    before = {name: site.launcher(name) for name in names()}

    os.kill(actor := site.actor_pid(one), signal.SIGKILL)  # Ray starts it again; it finds its launcher
    wait(lambda: site.actor_pid(one) != actor, "the actor is back", 240.0)
    wait(lambda: {node["node_state"] for node in site.nodes()} == {"up"}, "Ray calls all actors alive", 240.0)
    assert site.launchers() == {process.pid for process in before.values()}

    before[two].signal(signal.SIGKILL)  # its pilot starts another, which adopts what runs
    wait(lambda: not before[two].alive and site.launcher(two).alive, "the launcher is back", 240.0)
    wait(lambda: len(site.launchers()) == 3, "it has its name", 240.0)

    site.record(three).pilot.signal(signal.SIGKILL)  # the launcher goes on without it
    site.lab.kill_raylet("127.0.0.5")
    wait(lambda: "127.0.0.5" not in site.lab.alive(), "Ray calls the node dead", 240.0)
    assert site.launcher(three) == before[three] and before[three].alive
    assert three in site.up_nodes(), "its processes live, so it stays in the arbiter"
    site.lab.add(5)
    wait(lambda: len(site.record(three).actors) == 2, "the new node's actor finds the launcher", 240.0)
    assert site.launcher(three) == before[three] and len(site.launchers()) == 3

    wait(lambda: all_finished(site), "the search finishes", 900.0)
    assert findings(site) == []
    site.eunomia("ray", "down")
    assert site.left() == [] and findings(site, over=True) == []


def test_with_the_head_of_ray_dead_the_apps_finish_and_down_leaves_nothing(site: RaySite) -> None:
    site.up()
    all_up(site)
    site.submit("halving", iterations=1500, seconds=0.05)
    wait(lambda: site.held() == 6, "the search holds all slots")
    before = site.launchers()
    site.lab.kill_head()
    wait(lambda: all_finished(site), "the search finishes", 900.0)
    assert site.launchers() == before and site.up_nodes() == names()
    site.eunomia("ray", "down")
    assert site.left() == [] and findings(site, over=True) == []


def test_a_new_head_of_ray_takes_up_the_launchers_that_live(site: RaySite) -> None:
    site.up()
    all_up(site)
    before = site.launchers()
    site.lab.kill_head()
    for number in (3, 4, 5):
        site.lab.kill_raylet(f"127.0.0.{number}")
    site.lab.start()
    wait(lambda: len(site.nodes()) == 3 and {node["node_state"] for node in site.nodes()} == {"up"}, "it does", 240.0)
    assert site.launchers() == before and site.up_nodes() == names()


def test_a_head_that_was_killed_is_started_again_with_its_nodes(site: RaySite) -> None:
    site.up()
    all_up(site)
    before = site.launchers()
    site.submit("halving", iterations=600, seconds=0.05)
    pid = re.search(r"pid (\d+)", site.eunomia("ray", "status"))
    assert pid is not None
    os.kill(int(pid[1]), signal.SIGKILL)
    wait(lambda: "no head runs on this machine" in site.eunomia("ray", "status"), "the head is dead")
    site.up()
    assert site.launchers() == before
    wait(lambda: all_finished(site), "the search finishes")
    assert findings(site) == []


def test_nodes_are_taken_while_jobs_wait_and_given_back_when_idle(site: RaySite) -> None:
    site.up("--nodes", "1..3", "--wait", "1s", "--idle", "3s")
    wait(lambda: len(site.up_nodes()) == 1, "one node is up", 240.0)
    site.submit("halving", iterations=400, seconds=0.05)
    wait(lambda: len(site.up_nodes()) == 3, "more while jobs wait", 240.0)
    wait(lambda: all_finished(site), "the search finishes")
    wait(lambda: len(site.up_nodes()) == 1 and len(site.launchers()) == 1, "idle ones are given back", 240.0)
    assert findings(site) == []


def test_a_node_whose_gpus_others_use_is_named_and_taken_once_they_are_free(site: RaySite) -> None:
    hold = (
        "class Trainer:\n    def ok(self): return 1\n"
        "made = ray.remote(Trainer).options(name='t', lifetime='detached', num_gpus=1, num_cpus=0).remote()\n"
        "ray.get(made.ok.remote())"
    )
    site.lab.driver(hold)
    said = site.eunomia("ray", "up", "--cpu-slots", "2", "--node-dir", str(site.node_dir))
    assert "1 of 2 GPUs used by others (t): taken once all are free" in said
    wait(lambda: len(site.up_nodes()) == 2, "the other nodes are up", 240.0)
    assert "used by others (t)" in site.eunomia("ray", "status")
    site.lab.driver("ray.kill(ray.get_actor('t'))")
    all_up(site)


def test_the_script_of_the_page_runs_a_search_to_its_end(site: RaySite) -> None:
    (script,) = re.findall(r"```python sketch\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(script.splitlines()) <= 15
    (site.folder / "app.toml").write_text(app_file("halving", iterations=200, seconds=0.02), encoding="utf-8")
    file = site.folder / "driver.py"
    file.write_text(script.replace("eunomia_engines.ray.start(", "eunomia_engines.ray.start(cpu_slots=2, "))
    env = {**site.lab.env, "EUNOMIA_STATE_DIR": str(site.state)}
    made = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, env=env, cwd=site.folder, timeout=300, check=False
    )
    assert made.returncode == 0 and "finished" in made.stdout, made.stdout + made.stderr
    assert site.left() == [] and len(results(site.state)) == 9


def test_clusters_that_cannot_be_used_are_named_and_leave_nothing(site: RaySite) -> None:
    words = ["ray", "up", "--node-dir", str(site.node_dir)]
    for number in (3, 4, 5):
        site.lab.kill_raylet(f"127.0.0.{number}")
    site.lab.wait(1)
    said = site.eunomia(*words, fails=True)
    assert "a Ray cluster must have nodes with GPUs (--cpu-slots N: CPU slots)" in said and "0 GPUs" in said
    assert "must answer at its address" in site.eunomia(*words, "--address", "127.0.0.2:9", fails=True)
    other = (
        "import json\nfrom ray.experimental.internal_kv import _internal_kv_get as get, _internal_kv_put as put\n"
        "known = json.loads(get(b'CLUSTER_METADATA', namespace=b'cluster'))\n"
        "known.update(ray_version='2.9.0', python_version='3.10.1')\n"
        "put(b'CLUSTER_METADATA', json.dumps(known).encode(), overwrite=True, namespace=b'cluster')"
    )
    site.lab.driver(other)
    said = site.eunomia(*words, fails=True)
    assert "Version mismatch" in said and "Ray: 2.9.0" in said and "Python: 3.10.1" in said
    assert not (site.state / "engine" / "ray" / "request.json").exists() and site.left() == []


def test_a_node_without_what_was_asked_for_is_asked_again_after_pauses_and_shown(site: RaySite) -> None:
    site.eunomia("ray", "up", "--nodes", "1", "--node-dir", str(site.node_dir))  # its GPUs are numbers alone
    wait(lambda: "must have NVIDIA GPUs that NVML finds" in site.eunomia("ray", "status"), "the reason is shown", 240.0)
    assert site.launchers() == set()


def test_a_cluster_of_a_test_is_gone_after_it() -> None:
    folder = Path(tempfile.mkdtemp(prefix="eray-"))
    lab = RayLab(folder)
    try:
        lab.start(1)
    finally:
        lab.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert lab.left() == []
