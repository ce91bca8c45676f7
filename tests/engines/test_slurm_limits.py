"""Limits of partitions, accounts and QOS: read as Slurm prints them, and named before anything is submitted."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_engines.engine import EngineSilentError
from eunomia_engines.slurm.engine import findings
from eunomia_engines.slurm.limits import association_of, partition_of, qos_of, site_of, tres_of
from eunomia_engines.slurm.limits_check import SiteLimits, check_limits, read_limits, room_note, save_note
from eunomia_engines.slurm.programs import SlurmPrograms, nodes_of
from eunomia_engines.slurm.request import Request

PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=60 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED "
    "MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=gpu[1-3] PriorityTier=1 OverSubscribe=NO PreemptMode=REQUEUE "
    "State=UP TotalCPUs=24 TotalNodes=3 SelectTypeParameters=NONE"
)
# Taken to be the forms of 20.11 and 24.05 (neither seen nor read in their manuals): fields come and go, and an unknown
# state is no reason to refuse.
OTHER_VERSIONS = {
    "20.11": PARTITION.replace("PreemptMode=REQUEUE ", "").replace("GraceTime=60 ", "GraceTime=0 "),
    "24.05": PARTITION.replace("ExclusiveUser=NO", "ExclusiveTopo=NO ExclusiveUser=NO") + " TRES=cpu=24,gres/gpu=12",
}
CONFIG = """Configuration data as of 2026-11-28T23:28:13
AccountingStorageEnforce = associations,limits,qos
ClusterName             = lab
KillWait                = 30 sec
PreemptParameters       = (null)
SlurmctldHost[0]        = head
"""
NO_DATABASE = (
    "You are not running a supported accounting_storage plugin\nOnly 'accounting_storage/slurmdbd' is supported."
)


def request(**more: object) -> Request:
    """A request for two to four nodes for a day."""
    given = {"least": 2, "most": 4, "seconds": 86400.0, "gres": "gpu:4", "python": "python", "node_dir": Path("/tmp")}
    return Request(**(given | more))


def limits(
    *, partition: str = PARTITION, config: str = CONFIG, own: Sequence[str] = (), qos: Sequence[str] = ()
) -> SiteLimits:
    """What a site with accounts prints."""
    return SiteLimits(
        partitions=(partition_of(partition),),
        site=site_of(config),
        associations=tuple(map(association_of, own)),
        qualities=tuple(map(qos_of, qos)),
        has_accounts=True,
        unknown=(),
    )


def test_a_partition_and_a_site_are_read() -> None:
    one, site = partition_of(PARTITION), site_of(CONFIG)
    assert (one.name, one.state, one.least_nodes, one.most_nodes, one.grace_seconds) == ("gpu", "UP", 0, None, 60.0)
    assert (one.accounts, one.denied_accounts, one.qos, one.own_qos) == (None, frozenset(), None, "")
    assert (site.cluster, site.kill_wait_seconds, site.warns_preempted) == ("lab", 30.0, False)
    assert site.enforced == {"associations", "limits", "qos"}


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_partitions_in_the_forms_of_other_versions_are_read(version: str) -> None:
    one = partition_of(OTHER_VERSIONS[version])
    assert (one.name, one.state, one.most_nodes, one.accounts) == ("gpu", "UP", None, None)
    assert check_limits(request(), ["gpu"], limits(partition=OTHER_VERSIONS[version])) == []


def test_what_is_not_printed_is_not_known_and_limits_nothing() -> None:
    bare = limits(partition="PartitionName=gpu State=NEW_STATE MaxNodes=some GraceTime=soon", config="")
    assert bare.partitions[0].grace_seconds is None and bare.site is not None and not bare.site.enforced
    assert check_limits(request(account="any", qos="any"), ["gpu"], bare) == []
    assert "KillWait (not known)" in save_note(request(), ["gpu"], bare)


@pytest.mark.parametrize("read", [partition_of, association_of, qos_of])
def test_a_line_of_another_form_is_refused(read: object) -> None:
    with pytest.raises(EngineSilentError, match="must print"):
        read("slurm_load error")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        (("State=UP", "State=DRAIN"), {}, "partition gpu must take jobs, but got DRAIN"),
        (("State=UP", "State=INACTIVE"), {}, "partition gpu must take jobs, but got INACTIVE"),
        (("MinNodes=0", "MinNodes=2"), {}, r"must take jobs of one node \(--nodes-per-job\), but got MinNodes 2"),
        (
            ("MaxNodes=UNLIMITED", "MaxNodes=0"),
            {},
            r"must take jobs of one node \(--nodes-per-job\), but got MaxNodes 0",
        ),
        (
            ("MinNodes=0", "MinNodes=4"),
            {"nodes_per_job": 2},
            r"jobs of 2 nodes \(--nodes-per-job\), but got MinNodes 4",
        ),
        (("MaxNodes=UNLIMITED", "MaxNodes=1"), {"nodes_per_job": 2}, "jobs of 2 nodes .*, but got MaxNodes 1"),
        (
            ("AllowAccounts=ALL", "AllowAccounts=a,b"),
            {"account": "c"},
            r"--account must be one of partition gpu \(a, b\)",
        ),
        (("AllowAccounts=ALL", "DenyAccounts=c"), {"account": "c"}, "--account must be none that partition gpu denies"),
        (("AllowQos=ALL", "AllowQos=long"), {"qos": "short"}, r"--qos must be one of partition gpu \(long\)"),
    ],
)
def test_what_a_partition_does_not_take_is_refused(
    change: tuple[str, str], given: dict[str, object], said: str
) -> None:
    known = limits(partition=PARTITION.replace(*change), config="")
    with pytest.raises(InputError, match=said):
        check_limits(request(**given), ["gpu"], known)


def test_all_that_is_wrong_is_named_at_once() -> None:
    known = limits(partition=PARTITION.replace("State=UP", "State=DRAIN"), own=["lab|ml||1|||normal|normal|"])
    with pytest.raises(InputError) as caught:
        check_limits(request(), ["gpu"], known)
    assert str(caught.value).splitlines() == [
        "partition gpu must take jobs, but got DRAIN",
        "--nodes must begin with at most 1, MaxJobs of account ml, but got 2",
    ]


def test_one_of_two_partitions_that_takes_jobs_is_enough() -> None:
    other = partition_of(PARTITION.replace("PartitionName=gpu", "PartitionName=old").replace("State=UP", "State=DRAIN"))
    known = replace(limits(), partitions=(partition_of(PARTITION), other))
    assert check_limits(request(), ["gpu", "old"], known) == ["partition old must take jobs, but got DRAIN"]


def test_a_partition_that_is_down_is_noted() -> None:
    (note,) = check_limits(request(), ["gpu"], limits(partition=PARTITION.replace("State=UP", "State=DOWN")))
    assert note == "partition gpu is DOWN: jobs wait in its queue, and none starts"


@pytest.mark.parametrize(
    ("given", "own", "qos", "said"),
    [
        ({"account": "x"}, ["lab|ml|||||||"], [], r"--account must be one of yours \(ml\)"),
        ({"account": "x"}, ["far|x|||||||"], [], r"--account must be one of yours \(none\)"),
        ({"qos": "x"}, ["lab|ml||||||long,short|"], [], r"--qos must be one of account ml \(long, short\)"),
        ({}, ["lab|ml||||12:00:00|||"], [], "at most 12 h, MaxWall of account ml, but got 24 h"),
        ({}, ["lab|ml||1|||||"], [], "at most 1, MaxJobs of account ml, but got 2"),
        ({}, ["lab|ml|||1||||"], [], "at most 1, MaxSubmitJobs of account ml, but got 2"),
        ({"qos": "q"}, ["lab|ml||9||||q|"], ["q|1||||||"], "at most 1, MaxJobs of QOS q, but got 2"),
        ({}, ["lab|ml||||2-00:00:00|q|q|"], ["q|||06:00:00||||"], "at most 6 h, MaxWall of QOS q"),
        ({}, ["lab|ml||9|||||", "lab|ml|gpu|1|||||"], [], "at most 1, MaxJobs of account ml"),
    ],
)
def test_limits_of_accounts_and_qos_are_refused_by_name(
    given: dict[str, object], own: list[str], qos: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_limits(request(**given), ["gpu"], limits(own=own, qos=qos))


def test_slurm_looks_a_limit_up_in_the_qos_of_the_partition_then_of_the_job_then_in_the_account() -> None:
    partition = PARTITION.replace("QoS=N/A", "QoS=part")
    own, job = ["lab|ml||1|||q|q|"], "q|3||||||"
    assert "3 of the nodes are there at once, MaxJobs of QOS q" in _only(limits(own=own, qos=[job]))
    both = ["part|2||||||", job]
    assert "MaxJobs of QOS part of partition gpu" in _only(limits(partition=partition, own=own, qos=both))
    above = ["part|2||||||", "q|3||||DenyOnLimit,OverPartQOS||"]
    assert "MaxJobs of QOS q" in _only(limits(partition=partition, own=own, qos=above))


def _only(known: SiteLimits, **more: object) -> str:
    (note,) = check_limits(request(**more), ["gpu"], known)
    return note


def test_limits_that_slurm_does_not_enforce_are_not_limits() -> None:
    for enforced in ("none", "associations", "(null)"):
        config = CONFIG.replace("associations,limits,qos", enforced)
        assert check_limits(request(), ["gpu"], limits(config=config, own=["lab|ml||1|1|1:00|||"])) == []


def test_the_account_is_not_known_where_a_user_has_several_and_names_none() -> None:
    known = limits(own=["lab|ml||1|||||", "lab|bio||1|||||"])
    assert check_limits(request(), ["gpu"], known) == []
    with pytest.raises(InputError, match="MaxJobs of account bio"):
        check_limits(request(account="bio"), ["gpu"], known)


def test_fewer_nodes_than_the_most_are_noted() -> None:
    assert _only(limits(own=["lab|ml||3|||||"])) == "at most 3 of the nodes are there at once, MaxJobs of account ml"
    assert "one is replaced only after its end" in _only(limits(own=["lab|ml||4|||||"]))
    assert check_limits(request(), ["gpu"], limits(own=["lab|ml||5|||||"])) == []


@pytest.mark.parametrize("together", [2, 4])
def test_a_partition_takes_jobs_of_as_many_nodes_as_its_limits_say(together: int) -> None:
    partition = PARTITION.replace("MinNodes=0", "MinNodes=2").replace("MaxNodes=UNLIMITED", "MaxNodes=4")
    assert check_limits(request(least=4, nodes_per_job=together), ["gpu"], limits(partition=partition)) == []


def test_limits_on_jobs_are_of_jobs_and_not_of_their_nodes() -> None:
    two, one = limits(own=["lab|ml||2|||||"]), limits(own=["lab|ml|||1||||"])
    assert "one is replaced only after its end" in _only(two, nodes_per_job=2)
    assert "with as many jobs" in _only(two, nodes_per_job=2)
    assert check_limits(request(most=4, nodes_per_job=4, least=4), ["gpu"], two) == []
    note = "at most 2 of the nodes are there at once, MaxSubmitJobs 1 of account ml"
    assert _only(one, nodes_per_job=2) == note
    with pytest.raises(InputError, match="must begin with at most 2, MaxSubmitJobs 1 of account ml, but got 4"):
        check_limits(request(least=4, nodes_per_job=2), ["gpu"], one)


@pytest.mark.parametrize(
    ("given", "own", "qos", "said"),
    [
        (
            {"nodes_per_job": 2},
            ["lab|ml|||||||node=1"],
            [],
            r"at most 1 node, MaxTRES of account ml, but got 2 \(2 nodes",
        ),
        (
            {"nodes_per_job": 2},
            ["lab|ml|||||||gres/gpu=7"],
            [],
            r"at most 7 gres/gpu, MaxTRES of account ml, but got 8",
        ),
        ({"gres": "gpu:a:4"}, ["lab|ml|||||||gres/gpu:a=2,cpu=9"], [], "at most 2 gres/gpu:a, .*, but got 4"),
        ({"cpus": 8, "nodes_per_job": 2}, ["lab|ml|||||||cpu=15,mem=1G"], [], "at most 15 cpu, .*, but got 16"),
        ({"qos": "q"}, ["lab|ml|||||||node=9"], ["q||||||gres/gpu=2|"], "at most 2 gres/gpu, MaxTRES of QOS q"),
        (
            {"qos": "big"},
            ["lab|ml|||||||"],
            ["big|||||||node=2"],
            r"at least 2 node, MinTRES of QOS big \(--nodes-per-job\), but got 1 \(1 node a job\)",
        ),
        ({"qos": "big"}, ["lab|ml|||||||"], ["big|||||||gres/gpu=8"], "at least 8 gres/gpu, MinTRES of QOS big"),
    ],
)
def test_limits_of_a_job_are_held_by_all_its_nodes(
    given: dict[str, object], own: list[str], qos: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_limits(request(**given), ["gpu"], limits(own=own, qos=qos))


def test_a_job_of_enough_nodes_is_within_the_least_of_a_qos() -> None:
    known = limits(own=["lab|ml|||||||node=2"], qos=["big|||||||node=2,gres/gpu=8"])
    assert check_limits(request(qos="big", nodes_per_job=2), ["gpu"], known) == []


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("", {}),
        ("cpu=64,gres/gpu=8,gres/gpu:a100=4,node=2", {"cpu": 64, "gres/gpu": 8, "gres/gpu:a100": 4, "node": 2}),
        ("mem=100G,node=1", {"node": 1}),
        ("node", {}),
    ],
)
def test_amounts_in_a_job_are_read_without_those_that_have_a_unit(text: str, amounts: dict[str, int]) -> None:
    assert tres_of(text) == amounts


def test_a_cluster_with_fewer_such_nodes_is_noted() -> None:
    three = [
        nodes_of("gpu*|up|infinite|2|8|2000|idle|gpu:v100:4"),
        nodes_of("gpu*|up|infinite|1|8|2000|mix|gpu:v100:4"),
    ]
    assert room_note(request(), three) == [
        "of --nodes 2..4, the cluster has room for 3 of gpu:4; more wait in the queue"
    ]
    assert not room_note(request(gres="gpu:2"), three), "two jobs share a node"
    (note,) = room_note(request(nodes_per_job=2), three)
    assert "room for 2 of gpu:4" in note, "a second job has only one machine"
    (note,) = room_note(request(gres="gpu:2", least=4, nodes_per_job=4), three)
    assert "room for 0 of gpu:2" in note, "no two nodes of a job share a machine"
    assert not room_note(request(gres="gpu:2", most=6, nodes_per_job=3), three)


def test_a_checkpoint_may_take_as_long_as_the_site_says() -> None:
    assert save_note(request(), ["gpu"], limits()) == (
        "a checkpoint may take 60 s at the end of --time, 30 s after scancel (KillWait 30 s) or a preemption"
    )
    warned = limits(config=CONFIG.replace("(null)", "send_user_signal"))
    assert save_note(request(), ["gpu"], warned).endswith("60 s when preempted (GraceTime 60 s)")


def answering(**answers: tuple[int, str, str]) -> SlurmPrograms:
    """Programs that answer ``scontrol`` and ``sacctmgr`` by what they show."""

    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        key = next((key for key in answers if key in command), "other")
        code, out, error = answers.get(key, (1, "", "not here"))
        return subprocess.CompletedProcess(list(command), code, out, error)

    return SlurmPrograms(run, which=lambda name: name)


def test_a_site_without_accounts_has_no_limits_of_accounts() -> None:
    programs = answering(
        partition=(0, PARTITION, ""),
        config=(0, CONFIG, ""),
        associations=(1, "", NO_DATABASE),
        qos=(1, "", NO_DATABASE),
    )
    found = read_limits(programs)
    assert (found.has_accounts, found.unknown, len(found.partitions)) == (False, (), 1)


def test_limits_that_cannot_be_read_are_named_and_limit_nothing() -> None:
    programs = answering(config=(0, CONFIG, ""), associations=(1, "", "sacctmgr: error: Connection refused"))
    found = read_limits(programs)
    assert [words.partition(":")[0] for words in found.unknown] == [
        "the limits of partitions are not known",
        "the limits of accounts are not known",
    ]
    assert list(check_limits(request(account="x"), ["gpu"], found)) == list(found.unknown)


def test_the_check_of_the_engine_says_what_a_checkpoint_may_take() -> None:
    programs = answering(
        partition=(0, PARTITION.replace("MinNodes=0", "MinNodes=2"), ""),
        config=(0, CONFIG.replace("(null)", "send_user_signal"), ""),
        associations=(0, "lab|ml||4|8|1-00:00:00|||node=4\n", ""),
        qos=(0, "", ""),
        **{"--version": (0, "slurm 22.05.8", ""), "sinfo": (0, "gpu*|up|infinite|3|8|2000|idle|gpu:v100:4", "")},
    )
    texts = [one.text for one in findings(programs)]
    assert "KillWait 30 s: after scancel or a preemption, a checkpoint may take no longer" in texts
    assert "GraceTime 60 s of partition gpu comes before it when a job is preempted" in texts
    assert "account ml: MaxJobs 4, MaxSubmitJobs 8, MaxWall 24 h, MaxTRES node=4" in texts
    assert "a job in partition gpu has at least 2 nodes (--nodes-per-job)" in texts
