"""Limits that Slurm prints: those of partitions, of the site, of a user's accounts, and of QOS.

``scontrol`` prints pairs ``Name=value``, and every version adds and drops some; a pair that is missing, or whose value
has another form, is unknown (None) and limits nothing.
"""

import getpass
import re
from collections.abc import Mapping, Sequence
from typing import Final

from eunomia.model.shapes import value
from eunomia_engines.engine import EngineSilentError
from eunomia_engines.slurm.programs import SlurmPrograms, seconds_of

ASSOCIATION_FORMAT = "Cluster,Account,Partition,MaxJobs,MaxSubmitJobs,MaxWall,DefaultQOS,QOS,MaxTRES"
QOS_FORMAT = "Name,MaxJobsPU,MaxSubmitJobsPU,MaxWall,GraceTime,Flags,MaxTRES,MinTRES"
ALL = "ALL"
IMPLIED: Final = {
    "associations": ("associations",),
    "wckeys": ("associations",),
    "limits": ("associations", "limits"),
    "safe": ("associations", "limits"),
    "qos": ("associations", "qos"),
    "all": ("associations", "limits", "qos"),
}
"""What each word of ``AccountingStorageEnforce`` turns on, by the manual of slurm.conf."""


@value
class PartitionLimits:
    """A partition.

    Attributes:
        state: UP, or a state in which it starts no jobs: DOWN, DRAIN, INACTIVE; empty: unknown.
        least_nodes: minimum number of nodes of a job; None: no limit, or unknown.
        most_nodes: maximum number of nodes of a job; None: no limit, or unknown.
        grace_seconds: seconds between the signal and the kill of a preempted job; None: unknown.
        accounts: accounts that may use it; None: all, or unknown. Its groups are not read.
        denied_accounts: accounts that may not use it.
        qos: QOS that jobs in it may use; None: all, or unknown.
        own_qos: the QOS whose limits apply to all of its jobs; empty: none.
    """

    name: str
    state: str
    least_nodes: int | None
    most_nodes: int | None
    grace_seconds: float | None
    accounts: frozenset[str] | None
    denied_accounts: frozenset[str]
    qos: frozenset[str] | None
    own_qos: str


@value
class Site:
    """The site's configuration.

    Attributes:
        cluster: the cluster's name; empty: unknown.
        kill_wait_seconds: seconds from SIGTERM to SIGKILL of a job that is cancelled or over its time; None: unknown.
        enforced: which of ``associations``, ``limits`` and ``qos`` Slurm enforces; empty: none, or unknown.
        warns_preempted: whether a preempted job's script is signalled at the start of its grace time.
    """

    cluster: str
    kill_wait_seconds: float | None
    enforced: frozenset[str]
    warns_preempted: bool


@value
class Association:
    """A user's limits under an account; None: no limit.

    Attributes:
        partition: partition to which the association is limited; empty: it holds for all.
        most_jobs: maximum number of jobs that run at the same time.
        most_submitted: maximum number of jobs that run or wait at the same time.
        most_seconds: maximum time of a job.
        qos: QOS that jobs may name; a job without one uses ``default_qos``, else the first of these.
        most_tres: maximum amounts in a job, such as of ``node`` and ``gres/gpu``, by Slurm's names.
    """

    cluster: str
    account: str
    partition: str
    most_jobs: int | None
    most_submitted: int | None
    most_seconds: float | None
    default_qos: str
    qos: tuple[str, ...]
    most_tres: Mapping[str, int]


@value
class Qos:
    """A quality of service, with its limits for each user; None: no limit.

    Attributes:
        is_above_partition: whether its limits override those of the partition's own QOS.
        most_tres: maximum amounts in a job, such as of ``node`` and ``gres/gpu``, by Slurm's names.
        least_tres: minimum amounts in a job.
    """

    name: str
    most_jobs: int | None
    most_submitted: int | None
    most_seconds: float | None
    grace_seconds: float | None
    is_above_partition: bool
    most_tres: Mapping[str, int]
    least_tres: Mapping[str, int]


def partitions(programs: SlurmPrograms) -> Sequence[PartitionLimits]:
    """Return all partitions that are visible to this user."""
    return [partition_of(line) for line in _lines(programs.read("scontrol", "show", "partition", "--oneliner"))]


def site(programs: SlurmPrograms) -> Site:
    """Return the site's configuration."""
    return site_of(programs.read("scontrol", "show", "config"))


def associations(programs: SlurmPrograms) -> Sequence[Association]:
    """Return this user's associations; ``sacctmgr`` fails on a site without an accounting database."""
    what = ("show", "associations", f"user={getpass.getuser()}", f"format={ASSOCIATION_FORMAT}")
    return [association_of(line) for line in _lines(programs.read("sacctmgr", "--noheader", "--parsable2", *what))]


def qualities(programs: SlurmPrograms) -> Sequence[Qos]:
    """Return all QOS of the site."""
    what = ("show", "qos", f"format={QOS_FORMAT}")
    return [qos_of(line) for line in _lines(programs.read("sacctmgr", "--noheader", "--parsable2", *what))]


def partition_of(line: str) -> PartitionLimits:
    """Parse the partition in a line of ``scontrol show partition --oneliner``.

    Raises:
        EngineSilentError: the line names no partition.
    """
    found = _pairs(line)
    if "PartitionName" not in found:
        raise EngineSilentError("scontrol must print a partition in each line", value=f'"{line[:200]}"')
    own_qos = found.get("QoS", "")
    return PartitionLimits(
        name=found["PartitionName"],
        state=found.get("State", ""),
        least_nodes=_whole(found.get("MinNodes", "")),
        most_nodes=_whole(found.get("MaxNodes", "")),
        grace_seconds=_seconds(found.get("GraceTime", "")),
        accounts=_names(found.get("AllowAccounts", ALL)),
        denied_accounts=_names(found.get("DenyAccounts", ALL)) or frozenset(),
        qos=_names(found.get("AllowQos", ALL)),
        own_qos="" if own_qos in ("N/A", "(null)") else own_qos,
    )


def site_of(text: str) -> Site:
    """Parse the site's configuration from the text of ``scontrol show config``."""
    found = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE))
    enforced = set(found.get("AccountingStorageEnforce", "").lower().split(","))
    return Site(
        cluster=found.get("ClusterName", ""),
        kill_wait_seconds=_seconds(found.get("KillWait", "")),
        enforced=frozenset().union(*(IMPLIED.get(word, ()) for word in enforced)),
        warns_preempted="send_user_signal" in found.get("PreemptParameters", "").lower().split(","),
    )


def association_of(line: str) -> Association:
    """Parse the association in a line of ``ASSOCIATION_FORMAT``.

    Raises:
        EngineSilentError: the line has another form.
    """
    cluster, account, partition, jobs, submitted, wall, default, qos, most_tres = _fields(line, 9)
    return Association(
        cluster=cluster,
        account=account,
        partition=partition,
        most_jobs=_whole(jobs),
        most_submitted=_whole(submitted),
        most_seconds=seconds_of(wall),
        default_qos=default,
        qos=tuple(name for name in qos.split(",") if name),
        most_tres=tres_of(most_tres),
    )


def qos_of(line: str) -> Qos:
    """Parse the QOS in a line of ``QOS_FORMAT``.

    Raises:
        EngineSilentError: the line has another form.
    """
    name, jobs, submitted, wall, grace, flags, most_tres, least_tres = _fields(line, 8)
    return Qos(
        name=name,
        most_jobs=_whole(jobs),
        most_submitted=_whole(submitted),
        most_seconds=seconds_of(wall),
        grace_seconds=_seconds(grace),
        is_above_partition="overpartqos" in flags.lower().split(","),
        most_tres=tres_of(most_tres),
        least_tres=tres_of(least_tres),
    )


def tres_of(text: str) -> Mapping[str, int]:
    """Parse amounts such as ``cpu=64,gres/gpu=8,node=2``, without those that have a unit (``mem=100G``)."""
    parts = (part.rpartition("=") for part in text.split(","))
    return {name: int(amount) for name, _, amount in parts if name and amount.isdecimal()}


def _lines(text: str) -> Sequence[str]:
    return [line for line in text.splitlines() if line.strip()]


def _pairs(line: str) -> Mapping[str, str]:
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)


def _fields(line: str, count: int) -> list[str]:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != count:
        raise EngineSilentError("sacctmgr must print the fields that were asked for", value=f'"{line[:200]}"')
    return parts


def _names(text: str) -> frozenset[str] | None:
    return None if text.upper() == ALL or not text else frozenset(text.split(","))


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _seconds(text: str) -> float | None:
    """Parse ``30``, ``30 sec`` or ``00:00:30`` to seconds; None: the text has another form."""
    if found := re.fullmatch(r"(\d+)(?: sec)?", text):
        return float(found.group(1))
    return seconds_of(text) if ":" in text else None
