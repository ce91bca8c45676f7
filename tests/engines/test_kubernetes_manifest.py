"""The manifest of ``eunomia kubernetes manifest``: golden files, types of the client, names, and real command lines."""

import re
import shlex
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from documents.parsing import parsed
from engines.kube_clusters import CLUSTERS, GOLDEN, text_of
from eunomia.units import parse_duration
from eunomia_appmaster.commands.launcher import LauncherFlags
from eunomia_appmaster.commands.serve import checked
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.listening import ports_of
from eunomia_appmaster.protocol.connecting import check_target
from eunomia_engines.kubernetes.manifests import documents
from eunomia_engines.kubernetes.pods import ORDERED_END, STATE, SUPERVISE, USER, WORK, serve_command
from eunomia_engines.kubernetes.yaml_text import yaml_text

ROOT = Path(__file__).parents[2]
WITHOUT_CLIENT = "needs the package kubernetes, which no extra installs; 37.0.2 was tried"
EACH = pytest.mark.parametrize("name", sorted(CLUSTERS))


def objects(name: str, /, **more: Any) -> list[dict[str, Any]]:
    """The objects of a cluster, as a reader of YAML has them."""
    return [one for one in yaml.safe_load_all(text_of(name, **more)) if one is not None]


def pods(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each object with pods, and its pod."""
    for one in objects(name):
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
    from eunomia_engines.commands.kubernetes import ManifestFlags

    assert objects(name) == documents(ManifestFlags(**CLUSTERS[name]).cluster())


@pytest.mark.parametrize(
    "odd",
    ["yes", "No", "null", "1e3", "0x10", "0400", "1:30", "~", "", " a", "a: b", "a #b", "é\n", "- x", "{}", "*a", "@b"],
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

    assert [fault for one in objects(name) for fault in faults(one)] == []


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


@EACH
def test_pods_have_no_right_that_they_do_not_need(name: str) -> None:
    assert not {one["kind"] for one in objects(name)} & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
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
    filled = [
        re.sub(r"\$\(EUNOMIA_POD_IP\)", "10.1.2.3", re.sub(r"\$\(EUNOMIA_MACHINE\)", "gpu-7.example", word))
        for word in args
    ]
    if filled[2:4] == [SUPERVISE, "sh"]:
        filled = filled[4:]
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
                assert any(Path(path).is_relative_to(mount) for mount in mounts), path
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
    assert set(seen) == {"serve", "launcher"} | ({"certificates"} if name != "queued_job" else set())


@pytest.mark.parametrize("code", [0, 2, 7])
def test_the_launcher_of_a_job_that_ends_by_itself_keeps_its_exit_code(code: int) -> None:
    done = subprocess.run(["sh", "-c", SUPERVISE, "sh", "sh", "-c", f"exit {code}"], timeout=60)
    assert done.returncode == code


def test_a_launcher_that_kubernetes_ends_does_not_complete_its_index(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    launcher = (  # as the real one: SIGTERM lets its workers save, and the exit code is 0
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        f"    time.sleep(0.5); pathlib.Path({str(ended)!r}).touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(["sh", "-c", SUPERVISE, "sh", sys.executable, "-c", launcher]) as shell:
        while not begun.exists():
            assert shell.poll() is None
            time.sleep(0.02)
        shell.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        shell.send_signal(signal.SIGTERM)  # a second one does not end the wait
        assert shell.wait(timeout=60) == ORDERED_END
    assert ended.exists()


def test_kubernetes_replaces_no_variable_in_what_a_user_sets() -> None:
    from eunomia_engines.commands.kubernetes import ManifestFlags

    cluster = ManifestFlags(**CLUSTERS["cpu_job"]).cluster()
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
