"""What Slurm 22.05.8 printed is read: `record_slurm.py` made the recording, from a Slurm of three nodes."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eunomia_engines.engine import EngineRefusedError, EngineSilentError, NodeState, each_once
from eunomia_engines.pilots.records import PILOTS, Pilot, write_pilot
from eunomia_engines.slurm.job_nodes import JobNodes
from eunomia_engines.slurm.limits import partitions, site
from eunomia_engines.slurm.limits_check import read_limits
from eunomia_engines.slurm.programs import SlurmPrograms
from eunomia_engines.slurm.request import FOLDER, Request
from eunomia_engines.slurm.states import node_of

RECORDING = json.loads((Path(__file__).parent / "recorded" / "slurm-22.05.8.json").read_text(encoding="utf-8"))
NAME = "eunomia-node-0bc588a6"


def programs(*cases: str) -> SlurmPrograms:
    """Programs that answer each command line as recorded in a case; another command line is an error of the test."""
    answers = [answer for case in cases for answer in RECORDING["answers"][case]]

    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        is_user = [word.startswith("--user=") for word in command]
        for one in answers:
            same = len(one["command"]) == len(command) and all(
                whose or word == had or had.endswith("/node.sh") or had.startswith("user=")
                for whose, word, had in zip(is_user, command, one["command"], strict=True)
            )
            if same:
                return subprocess.CompletedProcess(list(command), one["code"], one["stdout"], one["stderr"])
        raise AssertionError(f"{command} is not in {cases}")

    return SlurmPrograms(run)


def states(case: str) -> dict[str, tuple[NodeState, str]]:
    """The nodes of a case, by the id of their job."""
    return {node.id: (node.state, node.why) for node in each_once(map(node_of, programs(case).jobs([NAME])))}


def test_the_version_and_the_nodes_are_read() -> None:
    assert programs("version").version() == RECORDING["version"] == "22.05.8"
    gpu, high = programs("nodes").nodes()
    assert (gpu.partition, gpu.is_default, gpu.is_up, gpu.limit_seconds) == ("gpu", True, True, None)
    assert (gpu.count, gpu.cpus, gpu.memory_mib, gpu.state, gpu.gpus) == (3, 8, 2000, "idle", {"v100": 4})
    assert (high.partition, high.is_default) == ("high", False)
    assert [(one.partition, one.count, one.state) for one in programs("nodes, one down").nodes()] == [
        ("gpu", 1, "down"),
        ("gpu", 1, "mixed"),
        ("gpu", 1, "idle"),
        ("high", 1, "down"),
        ("high", 1, "mixed"),
        ("high", 1, "idle"),
    ]


def test_partitions_and_the_site_are_read() -> None:
    gpu, _ = partitions(programs("partitions"))
    assert (gpu.name, gpu.state, gpu.least_nodes, gpu.most_nodes, gpu.grace_seconds) == ("gpu", "UP", 0, None, 0.0)
    assert (gpu.accounts, gpu.denied_accounts, gpu.qos, gpu.own_qos) == (None, frozenset(), None, "")
    assert [one.state for one in partitions(programs("partitions, one inactive"))] == ["UP", "INACTIVE"]
    found = site(programs("config"))
    assert (found.cluster, found.kill_wait_seconds, found.enforced, found.warns_preempted) == (
        "lab",
        5.0,
        frozenset(),
        False,
    )


def test_a_site_without_a_database_has_no_accounts() -> None:
    found = read_limits(programs("partitions", "config", "associations without a database", "qos without a database"))
    assert (found.has_accounts, found.unknown, len(found.partitions)) == (False, (), 2)


def test_jobs_are_read_in_each_state() -> None:
    assert states("no jobs") == {}
    assert states("a job that runs") == {"4": (NodeState.RUNS, "")}
    assert states("jobs that wait, one held") == {
        "4": (NodeState.RUNS, ""),
        "5": (NodeState.ASKED, "Resources"),
        "6": (NodeState.ASKED, "JobHeldUser"),
    }
    assert states("a job that is suspended")["4"] == (NodeState.UNKNOWN, "SUSPENDED"), "its processes live"
    assert states("a job that completes")["9"] == (NodeState.ENDS, "COMPLETING")
    assert states("jobs that ended, one by its node") == {
        "4": (NodeState.ENDED, "CANCELLED"),
        "5": (NodeState.ENDED, "CANCELLED"),
        "6": (NodeState.ENDED, "CANCELLED"),
        "7": (NodeState.ENDED, "COMPLETED"),
        "8": (NodeState.ENDED, "FAILED"),
        "9": (NodeState.ENDED, "CANCELLED"),
        "10": (NodeState.RUNS, ""),
        "11": (NodeState.ENDED, "NODE_FAIL"),
    }


def test_a_job_of_two_nodes_has_their_hosts_and_loses_one_with_it(tmp_path: Path) -> None:
    request = Request(least=2, most=2, nodes_per_job=2, seconds=600.0, cpu_slots=1, python="python", node_dir=tmp_path)

    def nodes(*cases: str) -> dict[str, tuple[NodeState, str]]:
        slurm = programs(*cases, "hosts of a job of two nodes")
        (job,) = [one for one in slurm.jobs([NAME]) if one.id == "10"]
        return {node.id: (node.state, node.host) for node in JobNodes(request, tmp_path, slurm).of([job])}

    assert nodes("a job of two nodes") == {"10-1": (NodeState.RUNS, "gpu2"), "10-2": (NodeState.RUNS, "gpu3")}
    (tmp_path / FOLDER / PILOTS).mkdir(parents=True)
    for number, host in ((1, "gpu3"), (2, "gpu2")):  # tasks may begin in another order
        write_pilot(tmp_path / FOLDER, Pilot(job=f"10-{number}", node=host, host=host, began_at=1.0))
    lost = nodes("jobs that ended, one by its node")
    assert lost == {"10-1": (NodeState.ENDED, "gpu3"), "10-2": (NodeState.RUNS, "gpu2")}


def test_a_job_has_its_host_and_times_and_one_that_waits_has_none() -> None:
    (job,) = programs("a job that runs").jobs([NAME])
    assert job.host == "gpu1" and job.began_at is not None and job.ends_at == job.began_at + 600.0
    waiting = {node.id: node for node in map(node_of, programs("jobs that wait, one held").jobs([NAME]))}["5"]
    assert (waiting.host, waiting.began_at, waiting.ends_at) == ("", None, None), "an estimate is no time"


def test_a_submitted_job_has_an_id() -> None:
    assert programs("submit").submit("/lab/node.sh") == "4"
    assert "to start at" in programs("test of a job that fits").submit("/lab/node.sh", only_test=True)


@pytest.mark.parametrize(
    ("case", "words", "only_test"),
    [
        ("test of a partition that is not there", "invalid partition specified: gpus", True),
        ("test of gpus that are not there", "Requested node configuration is not available", True),
        ("test of more nodes than there are", "Requested node configuration is not available", True),
        ("a partition that takes no job", "Required partition not available", False),
    ],
)
def test_a_refusal_has_the_words_of_slurm(case: str, words: str, only_test: bool) -> None:
    with pytest.raises(EngineRefusedError, match=words):
        programs(case).submit("/lab/node.sh", only_test=only_test)


@pytest.mark.parametrize(
    ("case", "order"),
    [
        ("withdraw a job that runs", lambda slurm: slurm.withdraw("4", NAME)),
        ("signal a job that waits", lambda slurm: slurm.signal("5", NAME)),
        ("cancel a job of another name", lambda slurm: slurm.cancel("4", "eunomia-node-ffffffff")),
        ("withdraw a job that waits", lambda slurm: slurm.withdraw("6", NAME)),
        ("cancel a job that is over", lambda slurm: slurm.cancel("6", NAME)),
        ("cancel a job that is not known", lambda slurm: slurm.cancel("999999", NAME)),
    ],
)
def test_orders_that_change_nothing_are_no_errors(case: str, order: Callable[[SlurmPrograms], None]) -> None:
    order(programs(case))


def test_an_order_to_another_state_or_name_left_the_job_as_it_was() -> None:
    later = states("a job that is suspended")
    assert later["4"][0] is not NodeState.ENDED, "neither a withdrawal nor another name cancels a job that runs"
    assert later["5"] == (NodeState.ASKED, "Resources"), "a signal to the script cancels no job that waits"
    assert later["6"] == (NodeState.ENDED, "CANCELLED")


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("jobs", lambda slurm: slurm.jobs([NAME])),
        ("submit", lambda slurm: slurm.submit("/lab/node.sh")),
        ("cancel", lambda slurm: slurm.cancel("4", NAME)),
        ("nodes", lambda slurm: slurm.nodes()),
    ],
)
def test_a_controller_that_does_not_answer_is_silent(what: str, call: Callable[[SlurmPrograms], object]) -> None:
    with pytest.raises(EngineSilentError, match="Unable to contact slurm controller"):
        call(programs(f"a controller that does not answer: {what}"))


def test_every_case_of_the_recording_is_read_by_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    silent = "a controller that does not answer: "
    assert [case for case in RECORDING["answers"] if f'"{case}"' not in text and not case.startswith(silent)] == []
