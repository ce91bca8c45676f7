"""What Slurm's programs print is read: as 22.05.8 prints it, and as manuals of other versions have it (not seen)."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engines.recorded_slurm import RecordedLab

from eunomia.errors import InputError
from eunomia_engines.engine import EngineRefusedError, EngineSilentError, NodeState
from eunomia_engines.slurm.programs import (
    SlurmPrograms,
    gpus_of,
    job_of,
    nodes_of,
    seconds_of,
    time_of,
)
from eunomia_engines.slurm.states import STATES, node_of

RUNNING = "13|RUNNING|eunomia-node-0bc588a6|gpu|gpu1|1795909739|1795909740|1795910340|None"
PENDING = "16|PENDING|eunomia-node-0bc588a6|gpu||1795910005|0|N/A|Resources"
CANCELLED = "12|CANCELLED|eunomia-node-0bc588a6|gpu|gpu1|1795909739|1795909740|1795909790|None"


def answering(text: str = "", *, code: int = 0, error: str = "") -> SlurmPrograms:
    """Programs that give one answer to each call."""

    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(list(command), code, text, error)

    return SlurmPrograms(run)


def test_a_running_job_has_its_host_and_its_end() -> None:
    node = node_of(job_of(RUNNING))
    assert (node.id, node.state, node.host, node.why) == ("13", NodeState.RUNS, "gpu1", "")
    assert (node.began_at, node.ends_at) == (1795909740.0, 1795910340.0)


def test_a_pending_job_has_a_reason_and_no_end() -> None:
    node = node_of(job_of(PENDING))
    assert (node.state, node.why, node.host, node.began_at, node.ends_at) == (
        NodeState.ASKED,
        "Resources",
        "",
        None,
        None,
    )


def test_a_cancelled_job_has_ended_by_the_word_of_slurm() -> None:
    node = node_of(job_of(CANCELLED))
    assert (node.state, node.why) == (NodeState.ENDED, "CANCELLED")


@pytest.mark.parametrize("state", ["SUSPENDED", "STOPPED", "POWER_UP_NODE", "", "LAUNCH_FAILED"])
def test_a_state_that_is_not_in_the_table_is_unknown_and_does_not_count_as_ended(state: str) -> None:
    assert node_of(job_of(PENDING.replace("PENDING", state))).state is NodeState.UNKNOWN


def test_each_state_of_the_manual_that_is_in_the_table_ends_runs_or_waits() -> None:
    assert {NodeState.ASKED, NodeState.RUNS, NodeState.ENDS, NodeState.ENDED} == set(STATES.values())


def test_a_reason_may_contain_the_separator() -> None:
    assert job_of(PENDING.replace("Resources", "ReqNodeNotAvail, Reserved for a|b")).reason == (
        "ReqNodeNotAvail, Reserved for a|b"
    )


@pytest.mark.parametrize("line", ["", "13", "slurm_load_jobs error", "13|RUNNING|name"])
def test_a_line_of_another_form_means_that_nothing_is_known(line: str) -> None:
    with pytest.raises(EngineSilentError, match="squeue must print the fields"):
        job_of(line)


def test_nodes_of_a_partition_have_their_gpus() -> None:
    found = nodes_of("gpu*|up|infinite|2|8|2000|idle|gpu:v100:4")
    assert (found.partition, found.is_default, found.is_up, found.limit_seconds) == ("gpu", True, True, None)
    assert (found.count, found.cpus, found.memory_mib, found.state, found.gpus) == (2, 8, 2000, "idle", {"v100": 4})


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:v100:4", {"v100": 4}),
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),  # by the manuals of 20.11 to 24.05
        ("gpu:a100:2(S:0),gpu:a100:2(S:1),mps:400", {"a100": 4}),
        ("gpu:a100_1g.5gb:7", {"a100_1g.5gb": 7}),
        ("(null)", {}),
        ("", {}),
        ("gpu", {}),
    ],
)
def test_gpus_of_a_gres_text(text: str, gpus: dict[str, int]) -> None:
    assert gpus_of(text) == gpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800.0),
        ("2:30", 150.0),
        ("1:00:00", 3600.0),
        ("1-12", 129600.0),
        ("2-00:30", 174600.0),
        ("1-00:00:01", 86401.0),
        ("infinite", None),
        ("UNLIMITED", None),
        ("n/a", None),
    ],
)
def test_time_limits_are_read_as_the_manual_of_sbatch_writes_them(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["N/A", "Unknown", "0", "", "2026-11-28T23:28:13"])
def test_a_time_that_is_no_unix_time_is_not_known(text: str) -> None:
    assert time_of(text) is None


def test_the_id_of_a_job_is_read_with_and_without_a_cluster() -> None:
    assert answering("4711\n").submit("x") == "4711"
    assert answering("4711;north\n").submit("x") == "4711"
    with pytest.raises(EngineRefusedError, match="id of a job"):
        answering("Submitted batch job 4711\n").submit("x")


def test_a_refusal_quotes_the_error_message_of_slurm() -> None:
    words = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed"
    with pytest.raises(EngineRefusedError, match="invalid partition specified: nope"):
        answering(code=1, error=words).submit("x")


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "squeue: error: Socket timed out on send/recv operation",
    ],
)
def test_a_controller_that_does_not_answer_refuses_nothing(words: str) -> None:
    with pytest.raises(EngineSilentError):
        answering(code=1, error=words).jobs(["eunomia-node-0bc588a6"])


def test_a_job_that_is_over_can_be_cancelled_without_effect_and_only_by_its_number() -> None:
    answering(code=1, error="scancel: error: Kill job error on job id 12: Invalid job id specified").cancel("12", "x")
    with pytest.raises(InputError, match="must be named by its number"):
        answering().cancel("--user=root", "x")


def test_a_program_that_is_not_here_is_named() -> None:
    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        raise FileNotFoundError(command[0])

    with pytest.raises(InputError, match="squeue must be here"):
        SlurmPrograms(run).jobs(["x"])


def test_jobs_before_the_one_that_slurm_refuses_are_those_that_were_asked_for(tmp_path: Path) -> None:
    lab = RecordedLab(tmp_path)
    engine = lab.kind.engine(lab.states[0])
    lab.slurm.most_jobs = 2
    assert engine.ask(3) == ["12", "13"]
    assert [node.id for node in engine.nodes()] == ["12", "13"]
    with pytest.raises(EngineRefusedError):
        engine.ask(1)
