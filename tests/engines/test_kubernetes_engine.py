"""The engine of Kubernetes, with the real client and an API server of a test: asks, states, faults and restarts."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.fake_kube_api import FakeKube, KubeServer, kube_server
from tests.engines.kube_lab import WITHOUT_CLIENT, KubeLab, engine_of, request_of

from eunomia.errors import InputError
from eunomia_engines.engine import EngineRefusedError, EngineSilentError, NodeState
from eunomia_engines.kubernetes import api as api_module
from eunomia_engines.kubernetes.engine import KubernetesEngine, KubernetesKind
from eunomia_engines.kubernetes.keep_request import FOLDER, REQUEST, KeepRequest
from eunomia_engines.kubernetes.states import JobFacts, PodFacts, node_of, nodes_of
from eunomia_engines.testing.conformance import EngineConformance, EngineLab

pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT)


class TestKubernetes(EngineConformance):
    name = "kubernetes"

    def lab(self) -> EngineLab:
        return KubeLab(Path(tempfile.mkdtemp()))


@pytest.fixture
def server() -> Iterator[KubeServer]:
    with kube_server() as made:
        yield made


@pytest.fixture
def kube(server: KubeServer) -> FakeKube:
    return server.kube


@pytest.fixture
def engine(server: KubeServer, tmp_path: Path) -> KubernetesEngine:
    return engine_of(server, tmp_path, request_of("search"))


def only(kube: FakeKube, kind: str) -> dict[str, Any]:
    (found,) = kube.objects[kind].values()
    return found


def state_of(engine: KubernetesEngine) -> NodeState:
    (node,) = engine.nodes()
    return node.state


# --- asks


@pytest.mark.parametrize("fault", ["cut", "lose", "busy", "broken", "text", "conflict"])
def test_an_ask_whose_answer_is_lost_makes_one_job(
    fault: str, server: KubeServer, kube: FakeKube, engine: KubernetesEngine, tmp_path: Path
) -> None:
    kube.fault = lambda verb, path: fault if verb == "POST" else ""
    with pytest.raises(EngineSilentError):
        engine.ask(1)
    kube.fault = lambda verb, path: ""
    later = engine_of(server, tmp_path, request_of("search"))  # the keeper's process has ended since
    if not later.nodes():
        (made,) = later.ask(1)
        assert [node.id for node in later.nodes()] == [made]
    assert len(kube.created) == len(kube.objects["jobs"]) == 1


def test_a_create_that_arrives_late_makes_no_second_job(kube: FakeKube, engine: KubernetesEngine) -> None:
    kube.fault = lambda verb, path: "late" if verb == "POST" else ""
    with pytest.raises(EngineSilentError):
        engine.ask(1)
    assert engine.nodes() == []
    kube.fault = lambda verb, path: ""
    (made,) = engine.ask(1)
    kube.arrive()
    assert [node.id for node in engine.nodes()] == [made] and len(kube.objects["jobs"]) == 1


def test_a_job_of_a_lost_answer_is_not_taken_for_a_later_ask(kube: FakeKube, engine: KubernetesEngine) -> None:
    kube.fault = lambda verb, path: "lose" if verb == "POST" else ""
    with pytest.raises(EngineSilentError):
        engine.ask(1)
    kube.fault = lambda verb, path: ""
    (before,) = engine.nodes()
    (new,) = engine.ask(1)
    assert new != before.id and len(engine.nodes()) == 2


def test_a_conflict_is_tried_again(kube: FakeKube, engine: KubernetesEngine) -> None:
    answers = ["conflict", "conflict", ""]
    kube.fault = lambda verb, path: answers.pop(0) if verb == "POST" else ""
    assert len(engine.ask(1)) == len(kube.created) == 1


def test_a_refusal_after_the_first_of_three_returns_what_was_made(kube: FakeKube, engine: KubernetesEngine) -> None:
    def quota(verb: str, path: str) -> str:
        if verb == "POST" and kube.created:
            kube.refusal = (403, "Forbidden", "exceeded quota: gpus")
        return ""

    kube.fault = quota
    assert list(engine.ask(3)) == [only(kube, "jobs")["metadata"]["uid"]]
    with pytest.raises(EngineRefusedError, match="must accept the Job of a node, but got exceeded quota: gpus"):
        engine.ask(1)
    assert engine._open_names() == []


def test_a_namespace_that_is_not_there_is_refused_in_kubernetes_words(server: KubeServer, tmp_path: Path) -> None:
    engine = engine_of(server, tmp_path, request_of("search", namespace="nowhere"))
    with pytest.raises(EngineRefusedError, match='namespaces "nowhere" not found'):
        engine.ask(1)


# --- states


def test_a_node_goes_through_its_states(kube: FakeKube, engine: KubernetesEngine) -> None:
    engine.ask(1)
    assert state_of(engine) is NodeState.ASKED, "no pod yet"
    kube.settle()
    assert state_of(engine) is NodeState.ASKED, "its pod is pending"
    kube.run_pod(only(kube, "pods"), "gpu-7")
    (node,) = engine.nodes()
    assert (node.state, node.host, node.ends_at) == (NodeState.RUNS, "gpu-7", None)
    kube.delete_pod(only(kube, "pods"))
    assert state_of(engine) is NodeState.ASKED, "evicted: the pod saves, and its Job makes another"
    kube.end_pod(only(kube, "pods"), 143)
    kube.settle()
    assert state_of(engine) is NodeState.ASKED, "the Job waits for its next pod"
    kube.run_pod(only(kube, "pods"), "gpu-8")
    kube.end_pod(only(kube, "pods"), 0)
    assert state_of(engine) is NodeState.ENDS, "the launcher has ended, the Job not yet"
    kube.settle()
    assert state_of(engine) is NodeState.ENDED


def test_a_job_that_kueue_suspends_waits_and_is_not_replaced(kube: FakeKube, engine: KubernetesEngine) -> None:
    engine.ask(1)
    kube.settle()
    kube.run_pod(only(kube, "pods"), "gpu-7")
    job = only(kube, "jobs")
    job["spec"]["suspend"] = True
    kube.put("jobs", job)
    assert state_of(engine) is NodeState.ASKED
    kube.settle()
    assert state_of(engine) is NodeState.ASKED
    kube.end_pod(only(kube, "pods"), 143)
    job["status"]["conditions"] = [{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "x"}]
    (node,) = engine.nodes()
    assert (node.state, node.why) == (NodeState.ASKED, "JobSuspended: x")
    job["spec"]["suspend"] = False
    kube.settle()
    kube.run_pod(only(kube, "pods"), "gpu-9")
    (node,) = engine.nodes()
    assert (node.state, node.host) == (NodeState.RUNS, "gpu-9")


def test_why_a_pod_waits_is_said(kube: FakeKube, engine: KubernetesEngine) -> None:
    engine.ask(1)
    kube.settle()
    pod = only(kube, "pods")
    words = {"reason": "Unschedulable", "message": "0/5 nodes are available:\n 5 Insufficient nvidia.com/gpu."}
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **words}]
    assert engine.nodes()[0].why == "Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    assert engine.nodes()[0].why == "ImagePullBackOff"


JOB = JobFacts(name="j", uid="u")
POD = PodFacts(name="p", job="u", phase="Running", machine="m")


@pytest.mark.parametrize(
    ("job", "pods", "state"),
    [
        ({}, [{"phase": "Unknown"}], NodeState.UNKNOWN),
        ({}, [{"phase": ""}], NodeState.UNKNOWN),
        ({}, [{}, {"name": "q"}], NodeState.UNKNOWN),
        ({}, [{}, {"phase": "Failed"}], NodeState.UNKNOWN),  # one pod in two phases
        ({}, [{}, {"name": "q", "phase": "Failed"}], NodeState.RUNS),
        ({}, [{}, {"name": "q", "is_ending": True}], NodeState.RUNS),
        ({"is_over": True}, [{}], NodeState.UNKNOWN),
        ({"is_over": True}, [{"phase": "Unknown", "is_ending": True}], NodeState.UNKNOWN),
        ({"is_over": True}, [{"is_ending": True}], NodeState.ENDS),
        ({"is_over": True}, [{"phase": "Succeeded"}], NodeState.ENDED),
        ({"is_over": True, "is_ending": True}, [{}], NodeState.ENDS),
        ({"is_ending": True}, [], NodeState.ENDS),
        ({"is_suspended": True}, [], NodeState.ASKED),
        ({"is_suspended": True}, [{}], NodeState.ASKED),
        ({"is_suspended": True, "is_ending": True}, [{}], NodeState.ENDS),
        ({}, [{"is_ending": True}], NodeState.ASKED),
        ({"is_ending": True}, [{"is_ending": True}], NodeState.ENDS),
    ],
)
def test_a_node_whose_pod_may_live_is_never_ended(job: Any, pods: Any, state: NodeState) -> None:
    from dataclasses import replace

    node = node_of(replace(JOB, **job), [replace(POD, **pod) for pod in pods])
    assert node.state is state


def test_a_pod_without_its_job_ends_and_is_not_left_out() -> None:
    (node,) = nodes_of([], [POD])
    assert (node.id, node.state, node.host) == ("u", NodeState.ENDS, "m")


# --- giving back


def test_only_the_job_with_the_uid_is_deleted(kube: FakeKube, engine: KubernetesEngine) -> None:
    (uid,) = engine.ask(1)
    job = only(kube, "jobs")

    def replace_it(verb: str, path: str) -> str:
        if verb == "DELETE":  # someone makes the Job anew between the keeper's list and its call
            job["metadata"]["uid"] = "uid-of-another"
        return ""

    kube.fault = replace_it
    engine.give_back(uid)
    assert not job["metadata"].get("deletionTimestamp")


def test_a_job_stays_listed_until_its_pod_has_ended(kube: FakeKube, engine: KubernetesEngine) -> None:
    (uid,) = engine.ask(1)
    kube.settle()
    kube.run_pod(only(kube, "pods"), "gpu-7")
    for _ in range(2):
        engine.give_back(uid)
        kube.settle()
        assert state_of(engine) is NodeState.ENDS
    kube.end_pod(only(kube, "pods"), 143)
    kube.settle()
    assert engine.nodes() == []
    engine.give_back(uid)


def test_jobs_of_others_are_neither_listed_nor_deleted(server: KubeServer, kube: FakeKube, tmp_path: Path) -> None:
    one = engine_of(server, tmp_path / "a", request_of("search"))
    other = engine_of(server, tmp_path / "b", request_of("vision"))
    (uid,) = one.ask(1)
    other.give_back(uid)
    assert other.nodes() == [] and not only(kube, "jobs")["metadata"].get("deletionTimestamp")


# --- an API server with faults


def test_a_list_in_pages_whose_version_expires_begins_again(kube: FakeKube, engine: KubernetesEngine) -> None:
    made = set(engine.ask(5))
    kube.page, expired = 2, []

    def expire(verb: str, path: str) -> str:
        if path.endswith("/jobs") and len(expired) < 2:
            expired.append(path)
            if len(expired) == 2:
                kube.version += 1
                kube.compact()
        return ""

    kube.fault = expire
    assert {node.id for node in engine.nodes()} == made


@pytest.mark.parametrize("fault", ["cut", "busy", "broken", "text"])
def test_a_server_with_a_fault_says_nothing(fault: str, kube: FakeKube, engine: KubernetesEngine) -> None:
    (uid,) = engine.ask(1)
    kube.fault = lambda verb, path: fault
    for call in (engine.nodes, lambda: engine.ask(1), lambda: engine.give_back(uid)):
        with pytest.raises(EngineSilentError):
            call()


def test_a_right_that_is_missing_is_named_in_kubernetes_words(kube: FakeKube, engine: KubernetesEngine) -> None:
    kube.forbidden = {"list pods"}
    with pytest.raises(EngineSilentError, match=r"pods is forbidden: User .* cannot list resource"):
        engine.nodes()
    kube.forbidden = {"create jobs"}
    with pytest.raises(EngineRefusedError, match="cannot create resource"):
        engine.ask(1)


def test_a_server_that_is_slow_blocks_the_keeper_for_its_timeout(
    monkeypatch: pytest.MonkeyPatch, kube: FakeKube, engine: KubernetesEngine
) -> None:
    monkeypatch.setattr(api_module, "READ_SECONDS", 0.2)
    kube.fault = lambda verb, path: "slow"
    began = time.monotonic()
    with pytest.raises(EngineSilentError, match="Timeout"):
        engine.nodes()
    assert time.monotonic() - began < 4.0, "the server would take 5 s"


def test_a_server_that_starts_again_has_the_same_nodes(server: KubeServer, engine: KubernetesEngine) -> None:
    made = set(engine.ask(2))
    server.stop()
    with pytest.raises(EngineSilentError):
        engine.nodes()
    server.start(forgets=True)
    for _ in range(2):
        try:
            assert {node.id for node in engine.nodes()} == made
        except EngineSilentError:  # a connection of before is noticed by the call that fails
            continue


# --- what is missing


def test_a_check_names_rights_that_are_missing(server: KubeServer, tmp_path: Path, monkeypatch: Any) -> None:
    config = tmp_path / "config"
    config.write_text(server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.delenv(api_module.IN_CLUSTER, raising=False)
    found = KubernetesKind().check()
    assert [one.is_good for one in found] == [True, True]
    assert found[0].text == "API server of Kubernetes v1.31.2" and "namespace team" in found[1].text
    server.kube.forbidden = {"delete jobs", "watch pods"}
    bad = KubernetesKind().check()[-1]
    assert not bad.is_good and "must have the right to delete jobs, watch pods" in bad.text


def test_without_a_kubeconfig_nothing_is_called(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv(api_module.IN_CLUSTER, raising=False)
    (found,) = KubernetesKind().check()
    assert not found.is_good and "must be named by a kubeconfig (KUBECONFIG" in found.text
    request_of("search").save(tmp_path)
    with pytest.raises(InputError, match="must be named by a kubeconfig"):
        KubernetesKind().engine(tmp_path)


def test_a_state_folder_without_a_request_or_with_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be one of `eunomia kubernetes keep`"):
        KubernetesKind().engine(tmp_path)
    (tmp_path / FOLDER).mkdir(parents=True)
    good = request_of("search").text()
    for bad in ("", "[]", good.replace('"most": 2', '"most": 0'), good.replace('"name": "search-a100"', '"name": ""')):
        (tmp_path / FOLDER / REQUEST).write_text(bad)
        with pytest.raises(InputError, match=r"that `eunomia kubernetes manifest --nodes A..B` has made"):
            KeepRequest.load(tmp_path)
