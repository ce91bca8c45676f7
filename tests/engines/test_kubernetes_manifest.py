"""The manifest of ``eunomia kubernetes manifest``: golden files, types of the client, names, and real command lines."""

import json
import re
import shlex
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from documents.parsing import parsed
from engines.kube_clusters import CLUSTERS, GOLDEN, cluster_of, text_of
from engines.kube_lab import WITHOUT_CLIENT
from eunomia.units import parse_duration
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.commands.serve import checked
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.listening import ports_of
from eunomia_appmaster.protocol.connecting import check_target
from eunomia_engines.kubernetes.manifests import documents, keep_request
from eunomia_engines.kubernetes.pods import RECORD_SUPERVISE, STATE, SUPERVISE, USER, WORK, serve_command
from eunomia_engines.kubernetes.yaml_text import yaml_text

ROOT = Path(__file__).parents[2]
FIXED = pytest.mark.parametrize("name", sorted(set(CLUSTERS) - {"kept_jobs"}))
EACH = pytest.mark.parametrize("name", sorted(CLUSTERS))


def objects(name: str, /, **more: Any) -> list[dict[str, Any]]:
    """The objects of a cluster, as a reader of YAML has them."""
    return [one for one in yaml.safe_load_all(text_of(name, **more)) if one is not None]


def with_kept(name: str) -> list[dict[str, Any]]:
    """The objects of a cluster, and the Job that its keeper would make."""
    found = objects(name)
    texts = [one["data"]["request.json"] for one in found if one["kind"] == "ConfigMap"]
    return [*found, *(json.loads(text)["job"] for text in texts)]


def pods(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each object with pods, and its pod."""
    for one in with_kept(name):
        if "template" in one.get("spec", {}):
            yield one, one["spec"]["template"]["spec"]


def containers(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its pod."""
    for _, pod in pods(name):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield container, pod


def of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in objects(name) if one["kind"] == kind]


# --- the text


@EACH
def test_a_manifest_is_its_golden_file(name: str) -> None:
    again = "python tests/engines/kube_clusters.py writes it again"
    assert text_of(name) == (GOLDEN / f"{name}.yaml").read_text(), again


@EACH
def test_a_reader_of_yaml_has_the_same_objects(name: str) -> None:
    assert objects(name) == documents(cluster_of(name))


@pytest.mark.parametrize(
    "odd",
    [
        "yes",
        "No",
        "null",
        "1e3",
        "0x10",
        "0400",
        "1:30",
        "~",
        "",
        " a",
        "a: b",
        "a #b",
        "é\n",
        "- x",
        "{}",
        "*a",
        "@b",
        "a\nb",
        " a\n  b\n\nc",
        "a:\n  b #\n\n- c",
        "a\n",
        "a\n ",
    ],
)
def test_a_string_stays_a_string(odd: str) -> None:
    document = {"key": odd, "list": [odd, [odd], {odd or "x": 1}], "empty": {}, "none": [], "true": True, "n": 288}
    assert list(yaml.safe_load_all(yaml_text([document, document]))) == [document, document]


def test_other_values_are_no_manifest() -> None:
    with pytest.raises(TypeError, match="strings, whole numbers and booleans"):
        yaml_text([{"at": 1.5}])


# --- the types of the client


@EACH
def test_no_field_is_unknown_or_missing(name: str) -> None:
    pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT)
    from engines.kube_types import faults

    assert [fault for one in with_kept(name) for fault in faults(one)] == []


def test_a_field_that_is_unknown_missing_or_of_another_type_is_found() -> None:
    pytest.importorskip("kubernetes", reason=WITHOUT_CLIENT)
    from engines.kube_types import faults

    job = of_kind("cpu_job", "Job")[0]
    pod = job["spec"]["template"]["spec"]
    pod["containers"][0]["command_line"] = ["x"]
    del pod["volumes"][0]["name"]
    pod["terminationGracePeriodSeconds"] = "60"
    job["spec"]["completion_mode"] = "Indexed"
    assert sorted(faults(job)) == [
        "Job.spec.completion_mode: no such field",
        "Job.spec.template.spec.containers[0].command_line: no such field",
        "Job.spec.template.spec.terminationGracePeriodSeconds: must be a int, but is '60'",
        "Job.spec.template.spec.volumes[0].name: is missing",
    ]


# --- what belongs together


@EACH
def test_names_that_belong_together_agree(name: str) -> None:
    made = {(one["kind"], one["metadata"]["name"]) for one in objects(name)}
    assert len({one["metadata"]["namespace"] for one in objects(name)}) == 1
    assert len(made) == len(objects(name))
    for one, pod in pods(name):
        labels = one["spec"]["template"]["metadata"]["labels"]
        selected = one["spec"].get("selector", {}).get("matchLabels", {})
        assert selected.items() <= labels.items()
        assert ("ServiceAccount", pod["serviceAccountName"]) in made
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())}
        volumes = claims | {volume["name"] for volume in pod["volumes"]}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            ports = {port["name"] for port in container.get("ports", ())}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                action = container.get(probe, {})
                assert {ask["port"] for ask in action.values() if isinstance(ask, dict)} <= ports
    stateful = of_kind(name, "StatefulSet")[0]
    service = of_kind(name, "Service")[0]
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    arbiter = stateful["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= arbiter.items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} == {"arbiter", "metrics"}
    assert service["spec"]["publishNotReadyAddresses"], "nodes join an arbiter that is not ready while it has none"


@FIXED
def test_pods_of_a_fixed_number_call_no_api_server(name: str) -> None:
    assert not {one["kind"] for one in objects(name)} & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert "serviceAccountToken" not in text_of(name)


def test_only_the_keeper_has_a_token_and_rights_in_its_namespace_alone() -> None:
    kinds = [one["kind"] for one in objects("kept_jobs")]
    assert "ClusterRole" not in kinds and "ClusterRoleBinding" not in kinds
    (role,), (binding,) = of_kind("kept_jobs", "Role"), of_kind("kept_jobs", "RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"create", "delete", "get", "list", "watch"}
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"jobs", "pods"}
    (pods_rule,) = [rule for rule in role["rules"] if rule["resources"] == ["pods"]]
    assert pods_rule["verbs"] == ["list", "watch"]
    (subject,) = binding["subjects"]
    pod = of_kind("kept_jobs", "StatefulSet")[0]["spec"]["template"]["spec"]
    assert subject["name"] == pod["serviceAccountName"] and subject["namespace"] == "ml"
    (volume,) = [one["name"] for one in pod["volumes"] if "projected" in one]
    having = [one["name"] for one in pod["containers"] if volume in [mount["name"] for mount in one["volumeMounts"]]]
    assert having == ["keeper"]


def test_a_node_that_comes_and_goes_is_a_job_of_one_pod() -> None:
    (job,) = [one for one in with_kept("kept_jobs") if one["kind"] == "Job"]
    assert not of_kind("kept_jobs", "Job"), "the keeper makes them"
    spec, labels = job["spec"], job["metadata"]["labels"]
    assert (spec["completions"], spec["parallelism"], spec["suspend"]) == (1, 1, True)
    assert labels["eunomia-keeper"] == spec["template"]["metadata"]["labels"]["eunomia-keeper"] == "eunomia"
    assert labels["kueue.x-k8s.io/queue-name"] == "team"
    longest = keep_request(cluster_of("kept_jobs", name="n" * 30, kind=["k" * 20 + ":1"])).job["metadata"]["name"]
    assert len(f"{longest}-{'0' * 8}-0") <= 63, "the host name of its pod"


@EACH
def test_pods_have_no_right_that_they_do_not_need(name: str) -> None:
    for container, pod in containers(name):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == USER
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert not any("hostPath" in volume for volume in pod["volumes"])


@EACH
def test_nothing_reaches_a_pod_that_no_rule_names(name: str) -> None:
    chosen = [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(name, "NetworkPolicy")]
    for one, _ in pods(name):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert any(selected.items() <= labels.items() for selected in chosen)
    allowed = {
        port["port"]
        for one in of_kind(name, "NetworkPolicy")
        for rule in one["spec"]["ingress"]
        for port in rule.get("ports", ())
    }
    assert allowed == {port["containerPort"] for each, _ in containers(name) for port in each.get("ports", ())}


def test_a_daemon_set_has_all_gpus_of_its_kind_and_the_machines_name() -> None:
    first, second = of_kind("daemon_sets", "DaemonSet")
    pod = first["spec"]["template"]["spec"]
    launcher = pod["containers"][0]
    assert launcher["resources"]["limits"] == {"cpu": "32", "memory": "192Gi", "nvidia.com/gpu": "4"}
    assert second["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "operator": "Exists"},
        {"key": "lab.example/owner", "effect": "NoExecute", "operator": "Equal", "value": "ml"},
    ]
    assert launcher["env"][0] == {"name": "EUNOMIA_MACHINE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert "$(EUNOMIA_MACHINE)" in launcher["args"]
    assert pod["terminationGracePeriodSeconds"] == 150
    assert first["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_a_job_waits_for_its_queue_and_replaces_no_pod_that_still_ends() -> None:
    job = of_kind("queued_job", "Job")[0]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-vision-queue"
    spec = job["spec"]
    assert (spec["suspend"], spec["completionMode"], spec["completions"], spec["parallelism"]) == (
        True,
        "Indexed",
        3,
        3,
    )
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "else no podFailurePolicy is allowed"
    assert (spec["backoffLimitPerIndex"], "backoffLimit" in spec) == (50, False), "no node's failures end the others"
    ignored = [rule for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "Ignore"]
    assert ignored[0]["onExitCodes"] == {"containerName": "launcher", "operator": "In", "values": [143]}
    assert ignored[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["template"]["spec"]["containers"][0]["name"] == "launcher"
    assert "suspend" not in of_kind("cpu_job", "Job")[0]["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 60


def test_the_join_token_is_printed_only_if_it_is_given(tmp_path: Path) -> None:
    assert of_kind("cpu_job", "Secret") == []
    token = tmp_path / "token"
    token.write_text(f"ej1.7.{'ab' * 24}.\n")
    (secret,) = [one for one in objects("cpu_job", join=token) if one["kind"] == "Secret"]
    assert secret["stringData"] == {"token": token.read_text().strip()}
    pod = of_kind("cpu_job", "Job")[0]["spec"]["template"]["spec"]
    assert {"name": "join", "secret": {"secretName": secret["metadata"]["name"], "defaultMode": 0o440}} in pod[
        "volumes"
    ]


# --- the command lines


def words_of(container: Mapping[str, Any]) -> Iterator[list[str]]:
    """Each command of ``eunomia`` in a container's command line, whose names of variables are all set."""
    args = list(container["args"])
    env = {one["name"] for one in container.get("env", ())}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(args))) <= env
    named = {"EUNOMIA_POD_IP": "10.1.2.3", "EUNOMIA_MACHINE": "gpu-7.example", "EUNOMIA_POD": "p", "EUNOMIA_JOB": "u"}
    filled = [re.sub(r"\$\((\w+)\)", lambda found: named[found[1]], word) for word in args]
    if filled[2:4] == [SUPERVISE, "sh"]:
        filled = filled[4:]
    if filled[2:3] == [RECORD_SUPERVISE]:
        filled = filled[6:]
    if filled[:2] == ["sh", "-c"]:
        for part in re.split(r"&&|\|\||[{};]", filled[2]):
            words = shlex.split(part)
            assert not words or words[0] in ("test", "rm", "mv", "eunomia"), part
            if words and words[0] == "eunomia":
                yield words[1:]
    else:
        assert filled[0] == "eunomia"
        yield filled[1:]


@EACH
def test_each_command_line_is_one_of_the_product(name: str, tmp_path: Path) -> None:
    seen = []
    for container, pod in containers(name):
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for words in words_of(container):
            code, found, said = parsed(words)
            assert code == 0 and found is not None, said
            command, given = found
            seen.append(command)
            for path in [word for word in words if word.startswith("/")]:
                at = Path(path)
                assert any(at.is_relative_to(mount) or Path(mount).is_relative_to(at) for mount in mounts), path
            if command == "launcher":
                flags = LauncherFlags(**given | {"apps": tmp_path})
                assert flags.command[1:3] == ["-m", "eunomia_appmaster.launcher"]
                check_target(flags.arbiter, "--arbiter")
                port = next(port["containerPort"] for port in container["ports"])
                assert ports_of(flags.port_range) == (port,)
                seconds = parse_duration(flags.stop_seconds, name="--stop-seconds")
                assert 0 < seconds < pod["terminationGracePeriodSeconds"]
            elif command == "serve":
                ports = {port["name"]: port["containerPort"] for port in container["ports"]}
                assert given["address"] == f"0.0.0.0:{ports['arbiter']}"
                assert given["metrics"] == f"0.0.0.0:{ports['metrics']}"
    more = {"kept_jobs": {"certificates", "keep"}, "queued_job": set()}.get(name, {"certificates"})
    assert set(seen) == {"serve", "launcher", *more}


def test_kubernetes_replaces_no_variable_in_what_a_user_sets() -> None:
    cluster = cluster_of("cpu_job")
    words = serve_command(replace(cluster, settings=("x=$(HOME) $$ $a",)))
    assert "x=$$(HOME) $$$$ $$a" in words


def test_the_first_start_makes_certificates_that_serve_takes(tmp_path: Path) -> None:
    (certificates, arbiter) = [one for one, pod in containers("daemon_sets") if len(pod["containers"]) == 1][:2]
    script = certificates["args"][2].replace(STATE, str(tmp_path))
    (tmp_path / "tls.new").mkdir()  # what an earlier start left behind that was killed
    (tmp_path / "tls.new" / "ca.pem").touch()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    for _ in range(2):  # the second start changes nothing
        subprocess.run(["sh", "-c", script], check=True, capture_output=True, env={"PATH": path}, timeout=120)
        key = (tmp_path / "tls" / "key.pem").read_bytes()
    assert (tmp_path / "tls" / "key.pem").read_bytes() == key
    _, found, _ = parsed([word.replace(STATE, str(tmp_path)) for word in arbiter["args"][1:]])
    assert found is not None
    serving = checked(ServeFlags(**{key: given for key, given in found[1].items() if key in ServeFlags.model_fields}))
    assert serving.certificates is not None
    names = str(ssl._ssl._test_decode_cert(str(tmp_path / "tls" / "cert.pem"))["subjectAltName"])  # type: ignore[attr-defined]
    assert "'eunomia.ml.svc'" in names and "'localhost'" in names


def test_the_dockerfile_makes_what_the_pods_need() -> None:
    steps = [
        line
        for line in (ROOT / "engines" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
        if line.strip() and line[0] != "#"
    ]
    by_kind: dict[str, list[str]] = {}
    for step in steps:
        by_kind.setdefault(step.split()[0], []).append(step)
    assert set(by_kind) <= {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    install = next(step for step in by_kind["RUN"] if "pip install" in step)
    extras = re.search(r"\[([a-z,]+)\]", install)
    assert extras is not None and set(extras[1].split(",")) <= set(project["optional-dependencies"])
    constraints = re.search(r"--constraint /src/eunomia/(\S+)", install)
    assert constraints is not None and (ROOT / constraints[1]).is_file()
    assert by_kind["USER"] == [f"USER {USER}:{USER}"]
    assert any(f"useradd --uid {USER}" in step and "--home-dir /home/eunomia" in step for step in by_kind["RUN"])
    assert by_kind["WORKDIR"] == [f"WORKDIR {WORK}"]
    version = re.search(r"PYTHON=(\d+\.\d+)", by_kind["ARG"][0])
    assert version is not None and f">={version[1]}" in project["requires-python"]
    assert by_kind["ENTRYPOINT"] == ['ENTRYPOINT ["tini", "--"]'], (
        "pods give arguments alone, and tini is their first process"
    )
    assert parsed(["--help"])[0] == 0


def test_a_label_finds_all_objects_and_the_comment_names_the_claim_that_delete_would_take() -> None:
    for name in CLUSTERS:
        instance = {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in objects(name)}
        assert instance == {CLUSTERS[name].get("name", "eunomia")}
    assert "deletes the claim eunomia-shared" in text_of("cpu_job")
    assert "deletes the claim" not in text_of("queued_job")  # team-files is there already, and stays
