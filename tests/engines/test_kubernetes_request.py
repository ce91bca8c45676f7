"""What ``eunomia kubernetes manifest`` refuses: the rule, the value and the option, before anything is printed."""

from pathlib import Path
from typing import Any

import pytest

from engines.kube_clusters import BASE, IMAGE, text_of
from eunomia.cli import run
from eunomia.errors import InputError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "My_Cluster"}, r'must be a DNS label: .*, but got "My_Cluster" \(--name\)'),
    ({"name": "9lives"}, r'from a letter on.*but got "9lives" \(--name\)'),
    ({"name": "a" * 31}, r"at most 30 letters, but got .* \(--name\)"),
    ({"name": "a\nb"}, r'DNS label.*"a\\nb" \(--name\)'),
    ({"namespace": "team vision"}, r'DNS label.*"team vision" \(--namespace\)'),
    ({"namespace": ""}, r'DNS label.*"" \(--namespace\)'),
    ({"kind": ["A100:4"]}, r'DNS label.*"A100" \(--kind\)'),
    ({"kind": ["a100:0"]}, r'at least 1 GPU, or 0 with --cpu-slots N, but got "a100:0" \(--kind\)'),
    ({"kind": ["a100"]}, r'NAME:GPUS or NAME:GPUS@LABEL=VALUE, but got "a100" \(--kind\)'),
    ({"kind": ["a100:-1"]}, r'but got "a100:-1" \(--kind\)'),
    ({"kind": ["a100:four"]}, r'but got "a100:four" \(--kind\)'),
    ({"kind": []}, r"must have a kind of nodes.*but got none"),
    ({"kind": ["a100:4"], "cpu_slots": 2}, r'0 with --cpu-slots N, but got "a100:4" and --cpu-slots 2'),
    ({"kind": ["a100:4", "a100:8"]}, r'must differ in name and label.*"a100:8"'),
    ({"kind": ["a:4@gpu=x", "b:4@gpu=x"]}, r'must differ in name and label.*"b:4@gpu=x"'),
    ({"kind": ["a100:4@gpu"]}, r'a label of nodes must be KEY=VALUE.*"gpu"'),
    ({"kind": ["a100:4@gpu=a b"]}, r'KEY=VALUE.*"gpu=a b" \(--kind\)'),
    ({"kind": ["a100:4"], "nodes": None}, r'must name a label of its nodes.*since a DaemonSet.*"a100:4"'),
    ({"nodes": "8..2"}, r'a range from the least to the most, such as 2..8, but got "8..2"'),
    ({"nodes": "0..2"}, r'must be a number from 1, or a range.*"0..2"'),
    ({"nodes": "0"}, r'must be a number from 1.*"0"'),
    ({"nodes": "1001"}, r'--nodes must be at most 1000, but got "1001"'),
    ({"nodes": "1..2", "kind": ["a:4", "b:8"]}, r"must be of one kind, but got a, b \(--kind\)"),
    ({"idle": "5m"}, r"--nodes A..B must be given, but got a fixed number \(--idle\)"),
    ({"nodes": "1..2", "wait": "5"}, r"--wait must be a duration with a unit"),
    ({"queue": "team vision"}, r'DNS label.*"team vision" \(--queue\)'),
    ({"queue": "q", "nodes": None, "kind": ["a:1@k=v"]}, r"a queue admits a Job, so --nodes N must be given"),
    (
        {"memory": "64 gigs"},
        r'an amount must be a whole number with a unit of Kubernetes.*"64 gigs" \(--mem-per-slot\)',
    ),
    ({"memory": "0Gi"}, r'"0Gi" \(--mem-per-slot\)'),
    ({"memory": "64m"}, r'"64m" \(--mem-per-slot\)'),  # thousandths of a byte for Kubernetes
    ({"state_size": "20"}, r'"20" \(--state-size\)'),
    ({"shared_size": "-1Gi"}, r'"-1Gi" \(--shared-size\)'),
    ({"save": "10s"}, r"at least the policy's suspend_grace, 30s, but got 10s \(--save\)"),
    ({"save": "30"}, r"--save must be a duration with a unit"),
    ({"save": "1m", "settings": ["rounds.suspend_grace=2m"]}, r"suspend_grace, 2m, but got 1m \(--save\)"),
    ({"shared_class": ""}, r"all nodes must share the apps' folders.*--shared-class.*, but got neither"),
    ({"shared_claim": "files"}, r"--shared-claim, but got both"),
    ({"shared_class": "Fast NFS"}, r'DNS subdomain.*"Fast NFS" \(--shared-class\)'),
    ({"state_class": "x/y"}, r'"x/y" \(--state-class\)'),
    ({"tls_secret": "my_tls"}, r'"my_tls" \(--tls-secret\)'),
    ({"image": "lab/eunomia"}, r'a tag that stays \(not latest\) or a digest.*"lab/eunomia" \(--image\)'),
    ({"image": "lab/eunomia:latest"}, r"not latest"),
    ({"image": "lab/eunomia:1 --privileged"}, r"\(--image\)"),
    ({"image": ""}, r"\(--image\)"),
    ({"taint": ["nvidia.com/gpu:Never"]}, r"with an effect of NoSchedule, PreferNoSchedule, NoExecute"),
    ({"taint": ["a b"]}, r'a taint must be KEY.*"a b" \(--taint\)'),
    ({"policy": "mine.toml"}, r'a preset or a plugin of the image.*"mine.toml" \(--policy\)'),
    ({"policy": "thmis"}, r"themis"),
    ({"settings": ["rounds.leaze=1m"]}, r"leaze"),
    ({"join": Path("/nowhere/token")}, r"a join token must be in a file that can be read"),
]


@pytest.mark.parametrize(("given", "error"), REFUSED, ids=[str(given)[:60] for given, _ in REFUSED])
def test_what_no_cluster_can_be_made_of_is_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        text_of("cpu_job", **({"kind": ["a100:4"], "cpu_slots": 0} | given))


def test_a_token_that_is_none_is_refused_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    with pytest.raises(InputError, match="the whole line that `eunomia nodes token` printed") as caught:
        text_of("cpu_job", join=tmp_path / "token")
    assert "hunter2" not in str(caught.value)


def test_nothing_is_printed_of_a_cluster_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["kubernetes", "manifest", "--image", IMAGE, "--kind", "a100:4", "--nodes", "2"])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert "--shared-class" in said.err


def test_the_command_prints_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--image", IMAGE, "--shared-class", str(BASE["shared_class"]), "--kind", "cpu:0", "--cpu-slots", "4"]
    code = run(["kubernetes", "manifest", *options, "--nodes", "2", "--cpus-per-slot", "1", "--mem-per-slot", "2Gi"])
    assert (code, capsys.readouterr().out) == (0, text_of("cpu_job"))
