"""The engine of Ray on a cluster in memory: which nodes it takes, what it says of them, and what it leaves alone."""

import json
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.engines.fake_ray import FakeRay, FakeRayLab, ray_node

from eunomia import extras
from eunomia.cli import main
from eunomia.errors import InputError
from eunomia_engines.engine import EngineRefusedError, EngineSilentError, NodeState
from eunomia_engines.ray import start
from eunomia_engines.ray.cluster import RayActor
from eunomia_engines.ray.driver import RayDriver
from eunomia_engines.ray.engine import RayEngine, RayKind, node_of
from eunomia_engines.ray.request import (
    MOST_NODES,
    RayRequest,
    check_address,
    namespace_of,
    nodes_option,
    read_runtime_env,
)
from eunomia_engines.ray.starting import check_request, checked_notes
from eunomia_engines.testing.conformance import EngineConformance, EngineLab


class TestRayInMemory(EngineConformance):
    name = "ray"

    def lab(self) -> EngineLab:
        return FakeRayLab(Path(tempfile.mkdtemp()))


def engine_of(state: Path, cluster: FakeRay, **asked: object) -> RayEngine:
    """The engine of a request."""
    cluster.namespace = namespace_of(state)
    return RayEngine(RayRequest(address="10.0.0.1:6379", **asked), state, cluster)  # type: ignore[arg-type]


def other(node: str, gpus: float, name: str = "") -> RayActor:
    """An actor of others."""
    return RayActor(id=f"o-{node}", name=name, class_name="Trainer", namespace="x", state="ALIVE", node=node, gpus=gpus)


def test_an_ask_takes_each_free_node_once_and_never_more_than_there_are(tmp_path: Path) -> None:
    cluster = FakeRay()
    engine = engine_of(tmp_path, cluster)
    assert len(engine.ask(2)) == 2 and len(engine.ask(MOST_NODES)) == 1 and engine.ask(5) == []
    assert {row.name for row in cluster.table.values()} == {f"eunomia-launcher-gpu{number}" for number in (1, 2, 3)}
    assert {row.gpus for row in cluster.table.values()} == {4.0}, "it holds all GPUs of its node"
    cluster.machines.append(ray_node(4))
    assert len(engine.ask(MOST_NODES)) == 1, "a new node gets one"
    assert cluster.wanted == []


def test_a_node_whose_gpus_others_use_is_named_with_them_and_taken_once_they_are_free(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1), ray_node(2)])
    cluster.table["o-node1"] = other("node1", 1.0, "imagenet")
    engine = engine_of(tmp_path, cluster)
    (made,) = engine.ask(MOST_NODES)
    assert cluster.table[made].node == "node2"
    ((node, why),) = engine.room()
    assert (node.host, why) == ("gpu1", "1 of 4 GPUs used by others (imagenet): taken once all are free")
    _, notes = checked_notes(RayRequest(address="auto"), engine)
    assert notes == [f"node gpu1: {why}"]
    assert any(why in one.text for one in RayKind(cluster).check())
    cluster.change("o-node1", state="DEAD")
    assert len(engine.ask(MOST_NODES)) == 1


def test_a_node_that_is_dead_or_drains_is_not_asked_for(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1, alive=False), ray_node(2).model_copy(update={"drains": True}), ray_node(3)])
    (made,) = engine_of(tmp_path, cluster).ask(3)
    assert cluster.table[made].node == "node3"


def test_the_end_of_a_node_that_ray_drains_is_the_end_of_its_time(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1)])
    engine = engine_of(tmp_path, cluster)
    (made,) = engine.ask(1)
    cluster.change(made, state="ALIVE", began_at=time.time())
    ends = time.time() + 300.0
    cluster.machines = [ray_node(1).model_copy(update={"drains": True, "ends_at": ends})]
    (node,) = engine.nodes()
    assert (node.state, node.ends_at) == (NodeState.RUNS, ends)


def test_nodes_on_one_host_have_names_of_their_own(tmp_path: Path) -> None:
    machines = [
        ray_node(number).model_copy(update={"host": "lab", "address": f"127.0.0.{number}"}) for number in (2, 3)
    ]
    cluster = FakeRay(machines=machines)
    engine_of(tmp_path, cluster).ask(2)
    assert {row.name for row in cluster.table.values()} == {"eunomia-launcher-lab.2", "eunomia-launcher-lab.3"}
    twice = FakeRay(machines=[one.model_copy(update={"address": "10.0.0.9"}) for one in machines])
    assert len(engine_of(tmp_path, twice).ask(2)) == 1, "a second node of Ray at one address gets no launcher"


def test_cpu_slots_are_reserved_beside_the_gpus(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1), ray_node(2, gpus=0.0), ray_node(3).model_copy(update={"cpus": 1.0})])
    assert len(engine_of(tmp_path, cluster, cpu_slots=2).ask(3)) == 2


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (FakeRay(machines=[ray_node(1, gpus=0.0)]), "nodes with GPUs .*gpu1: 0 GPUs, 8 CPUs"),
        (FakeRay(machines=[]), "no nodes"),
    ],
)
def test_a_cluster_without_gpus_is_refused_with_what_it_has(tmp_path: Path, cluster: FakeRay, said: str) -> None:
    engine = engine_of(tmp_path, cluster)
    with pytest.raises(EngineRefusedError, match=said):
        checked_notes(RayRequest(address="auto"), engine)
    with pytest.raises(EngineRefusedError, match=said):
        engine.ask(1)
    assert not all(one.is_good for one in RayKind(cluster).check())


def test_fewer_nodes_than_asked_for_are_a_note(tmp_path: Path) -> None:
    request, notes = checked_notes(RayRequest(address="auto", least=5, most=8), engine_of(tmp_path, FakeRay()))
    assert notes == ["the cluster has 3 such nodes, fewer than 5; no more are asked for"]
    assert request.address == "10.0.0.1:6379"


def test_an_autoscaler_is_asked_for_what_is_missing_only_where_it_was_named(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1)])
    made = engine_of(tmp_path, cluster, least=2, most=4, autoscale=True).ask(3)
    assert len(made) == 1 and cluster.wanted == [{"GPU": 4.0}] * 3
    with pytest.raises(InputError, match="--autoscale must come with a number of nodes"):
        check_request(RayRequest(address="auto", autoscale=True))


def test_an_actor_that_is_restarted_is_not_known_and_one_that_could_not_begin_has_ended() -> None:
    row = RayActor(id="a", state="RESTARTING", node="node1", began_at=5.0)
    assert node_of(row, ray_node(1)).state is NodeState.UNKNOWN
    dead = node_of(row.model_copy(update={"state": "DEAD", "why": "ModuleNotFoundError: eunomia"}), None)
    assert (dead.state, dead.why, dead.began_at) == (NodeState.ENDED, "ModuleNotFoundError: eunomia", 5.0)


def test_nothing_of_others_is_ended(tmp_path: Path) -> None:
    cluster = FakeRay(machines=[ray_node(1)])
    cluster.table["o-node1"] = other("node1", 0.0, "eunomia-launcher-gpu1")
    engine = engine_of(tmp_path, cluster)
    engine.give_back("o-node1")
    assert cluster.table["o-node1"].state == "ALIVE" and engine.nodes() == []


# --- what is typed ---------------------------------------------------------------------------------------------------


def test_nodes_are_all_a_number_or_a_range() -> None:
    assert [nodes_option(text) for text in ("all", "4", "2..8")] == [(MOST_NODES, MOST_NODES), (4, 4), (2, 8)]
    with pytest.raises(InputError, match="--nodes must be all, a number from 1, or a range"):
        nodes_option("8..2")


@pytest.mark.parametrize("text", ["ray://head:10001", "head", "head:x", ""])
def test_an_address_is_auto_or_that_of_a_head(text: str) -> None:
    assert check_address("head:6379") == "head:6379"
    with pytest.raises(InputError, match="--address must be auto, or HOST:PORT"):
        check_address(text)


@pytest.mark.parametrize(("text", "said"), [("{", "a file of JSON"), ("[]", "an object of JSON"), (None, "a file of")])
def test_a_runtime_environment_is_an_object_of_json(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"env_vars": {"A": "1"}}))
    assert read_runtime_env(path) == {"env_vars": {"A": "1"}} and read_runtime_env(None) == {}
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError, match=f"--runtime-env must (name|hold) {said}"):
        read_runtime_env(path)


def test_ray_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = extras.is_installed
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "ray" and there(module))
    monkeypatch.setattr("eunomia_engines.ray.engine.is_installed", lambda module: False)
    said = "needs the extra \"ray\": pip install 'eunomia[ray]'"
    with pytest.raises(InputError, match="needs the extra"):
        start(state_dir=tmp_path / "state")
    with pytest.raises(SystemExit):
        monkeypatch.setattr(sys, "argv", ["eunomia", "ray", "up", "--state-dir", str(tmp_path / "state")])
        main()
    assert f"eunomia ray {said}" in capsys.readouterr().err
    (found,) = RayKind().check()
    assert not found.is_good and "pip install 'eunomia[ray]'" in found.text
    assert not (tmp_path / "state").exists()


def test_a_cluster_that_is_not_there_is_silent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eunomia_engines.ray.driver.require", lambda modules, of: None)
    driver = RayDriver("127.0.0.2:9", "test", None)
    with pytest.raises(EngineSilentError, match=r"must answer at its address.*refused"):
        driver.nodes()
    driver.close()
