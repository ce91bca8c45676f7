"""Checks of a request against the limits of partition, account and QOS, before anything is submitted."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from eunomia.errors import EunomiaError, InputError, InputErrors
from eunomia.model.shapes import value
from eunomia_engines.engine import EngineRefusedError
from eunomia_engines.slurm.limits import (
    Association,
    PartitionLimits,
    Qos,
    Site,
    associations,
    partitions,
    qualities,
    site,
)
from eunomia_engines.slurm.programs import SlurmNodes, SlurmPrograms
from eunomia_engines.slurm.request import Request, gpus_asked

NO_DATABASE: Final = "not running a supported accounting_storage"
"""Message of ``sacctmgr``, in lower case, on a site without accounting, where no account has limits."""
TAKES_NONE: Final = ("DRAIN", "INACTIVE")
"""States in which a partition accepts no new jobs; a partition that is DOWN accepts jobs but starts none."""
Read = TypeVar("Read")


@value
class SiteLimits:
    """The limits that Slurm prints; limits that it does not print are empty, and have no effect.

    Attributes:
        site: the site's configuration; None: unknown.
        has_accounts: whether Slurm has accounting; False also if that is unknown.
        unknown: messages on why limits are unknown.
    """

    partitions: Sequence[PartitionLimits]
    site: Site | None
    associations: Sequence[Association]
    qualities: Sequence[Qos]
    has_accounts: bool
    unknown: Sequence[str]


@value
class _Cap:
    """A limit, with text on what sets it."""

    most: float
    whose: str


def read_limits(programs: SlurmPrograms) -> SiteLimits:
    """Return the limits that Slurm prints; changes nothing and raises nothing."""
    unknown: list[str] = []

    def tried(read: Callable[[SlurmPrograms], Read], what: str) -> Read | None:
        try:
            return read(programs)
        except EunomiaError as error:
            unknown.append(f"{what} are not known: {error}")
            return None

    each_partition = tried(partitions, "the limits of partitions")
    this_site = tried(site, "the site's settings")
    before = len(unknown)
    own = tried(associations, "the limits of accounts")
    if any(NO_DATABASE in words.lower() for words in unknown[before:]):
        del unknown[before:]
    qos = None if own is None else tried(qualities, "the limits of QOS")
    return SiteLimits(
        partitions=each_partition or (),
        site=this_site,
        associations=own or (),
        qualities=qos or (),
        has_accounts=own is not None and qos is not None,
        unknown=tuple(unknown),
    )


def check_limits(request: Request, names: Sequence[str], limits: SiteLimits) -> Sequence[str]:
    """Return notes on how limits affect a request.

    Args:
        request: the requested nodes.
        names: partitions in which the nodes can be.
        limits: the limits that Slurm prints.

    Raises:
        InputError: in no partition can the request's jobs run, or as many as its minimum; each reason is an error.
    """
    chosen = [one for one in limits.partitions if one.name in names]
    if not chosen:
        return limits.unknown
    found = {one.name: _problems(request, one, limits) for one in chosen}
    if all(found.values()):
        every = [problem for problems in found.values() for problem in problems]
        raise every[0] if len(every) == 1 else InputErrors(every)
    notes = [str(problem) for problems in found.values() for problem in problems]
    for one in chosen:
        if not found[one.name]:
            notes += _notes(request, one, limits)
    return [*dict.fromkeys(notes), *limits.unknown]


def room_note(request: Request, here: Sequence[SlurmNodes]) -> Sequence[str]:
    """Return a note if the cluster has room for fewer nodes than requested, so that the rest wait in the queue."""
    if not request.gres:
        return ()
    kind, count = gpus_asked(request.gres)
    by_partition: dict[str, list[int]] = {}
    for one in here:
        gpus = one.gpus.get(kind, 0) if kind else sum(one.gpus.values())
        by_partition.setdefault(one.partition, []).extend([gpus // count] * one.count)
    room = max(_room(each, request) for each in by_partition.values())
    if room >= request.most:
        return ()
    asked = str(request.least) if request.least == request.most else f"{request.least}..{request.most}"
    return [f"of --nodes {asked}, the cluster has room for {room} of {request.gres}; more wait in the queue"]


def _room(machines: Sequence[int], request: Request) -> int:
    """Return the number of nodes that fit on machines, at most the request's; a job's nodes are on different ones.

    Args:
        machines: number of nodes that fit on each machine.
        request: the requested nodes.
    """
    together, jobs = request.nodes_per_job, 0
    while jobs * together < request.most and sum(min(one, jobs + 1) for one in machines) >= (jobs + 1) * together:
        jobs += 1
    return jobs * together


def save_note(request: Request, names: Sequence[str], limits: SiteLimits) -> str:
    """Return text on the number of seconds that a checkpoint may take when a node ends.

    Slurm signals a job's script ``KillWait`` before it kills a job that is cancelled or preempted. The grace time of a
    preemption comes earlier, and its start is signalled to the script only if the site sends the job's own signal.
    """
    text = f"a checkpoint may take {request.stop_seconds} s at the end of --time"
    if limits.site is None or limits.site.kill_wait_seconds is None:
        return f"{text}; after scancel or a preemption as long as KillWait (not known) lasts"
    kill_wait = limits.site.kill_wait_seconds
    text += f", {min(kill_wait, request.stop_seconds):g} s after scancel (KillWait {kill_wait:g} s)"
    grace = _grace(request, names, limits) if limits.site.warns_preempted else 0.0
    if not grace:
        return f"{text} or a preemption"
    return f"{text}, {min(kill_wait + grace, request.stop_seconds):g} s when preempted (GraceTime {grace:g} s)"


def _grace(request: Request, names: Sequence[str], limits: SiteLimits) -> float:
    """Return the grace seconds of a preemption: the named QOS's if it has one, else the partitions' shortest."""
    own = [one.grace_seconds for one in limits.qualities if one.name == request.qos and one.grace_seconds]
    found = own or [one.grace_seconds or 0.0 for one in limits.partitions if one.name in names]
    return min(found, default=0.0)


def _problems(request: Request, partition: PartitionLimits, limits: SiteLimits) -> Sequence[InputError]:
    """Return errors on why no job of a request, or fewer than its minimum at once, can run in a partition."""
    found: list[InputError] = []

    def refuse(rule: str, what: str) -> None:
        found.append(EngineRefusedError(rule, value=what))

    if partition.state in TAKES_NONE:
        refuse(f"partition {partition.name} must take jobs", partition.state)
    if bound := _other_size(request, partition):
        size = "one node" if request.nodes_per_job == 1 else f"{request.nodes_per_job} nodes"
        refuse(f"partition {partition.name} must take jobs of {size} (--nodes-per-job)", bound)
    own = _association(request, partition, limits)
    account = request.account or ("" if own is None else own.account)
    if account and partition.accounts is not None and account not in partition.accounts:
        refuse(f"--account must be one of partition {partition.name} ({_list(partition.accounts)})", f'"{account}"')
    if account in partition.denied_accounts:
        refuse(f"--account must be none that partition {partition.name} denies", f'"{account}"')
    if request.qos and partition.qos is not None and request.qos not in partition.qos:
        refuse(f"--qos must be one of partition {partition.name} ({_list(partition.qos)})", f'"{request.qos}"')
    if limits.has_accounts and _holds("associations", limits):
        accounts = {one.account for one in _here(limits)}
        if request.account and request.account not in accounts:
            refuse(f"--account must be one of yours ({_list(accounts) or 'none'})", f'"{request.account}"')
        if request.qos and own is not None and own.qos and request.qos not in own.qos:
            refuse(f"--qos must be one of account {own.account} ({', '.join(own.qos)})", f'"{request.qos}"')
    longest = _cap(request, partition, limits, lambda one: one.most_seconds)
    if longest is not None and request.seconds > longest.most:
        rule = f"--time must be at most {longest.most / 3600:g} h, MaxWall of {longest.whose}"
        refuse(rule, f"{request.seconds / 3600:g} h")
    together = request.nodes_per_job
    for name, cap in _counts(request, partition, limits):
        if cap is not None and request.least > cap.most * together:
            which = name if together == 1 else f"{name} {cap.most:g}"
            refuse(
                f"--nodes must begin with at most {cap.most * together:g}, {which} of {cap.whose}", str(request.least)
            )
    for name, amount in _in_a_job(request).items():
        most = _cap(request, partition, limits, _most_of(name))
        least = _cap(request, partition, limits, _least_of(name))
        if most is not None and amount > most.most:
            refuse(
                f"a job must have at most {most.most:g} {name}, MaxTRES of {most.whose}", f"{amount} ({_size(request)})"
            )
        if least is not None and amount < least.most:
            rule = f"a job must have at least {least.most:g} {name}, MinTRES of {least.whose} (--nodes-per-job)"
            refuse(rule, f"{amount} ({_size(request)})")
    return found


def _other_size(request: Request, partition: PartitionLimits) -> str:
    """Return the partition's limit that the number of nodes of a job breaks; empty: none."""
    if partition.least_nodes is not None and request.nodes_per_job < partition.least_nodes:
        return f"MinNodes {partition.least_nodes}"
    if partition.most_nodes is not None and request.nodes_per_job > partition.most_nodes:
        return f"MaxNodes {partition.most_nodes}"
    return ""


def _in_a_job(request: Request) -> dict[str, int]:
    """Return what a job has of nodes, CPUs and GPUs, by Slurm's names."""
    nodes = request.nodes_per_job
    found = {"node": nodes} if request.cpus is None else {"node": nodes, "cpu": nodes * request.cpus}
    if request.gres:
        kind, count = gpus_asked(request.gres)
        found["gres/gpu"] = nodes * count
        if kind:
            found[f"gres/gpu:{kind}"] = nodes * count
    return found


def _size(request: Request) -> str:
    return f"{request.nodes_per_job} node{'' if request.nodes_per_job == 1 else 's'} a job"


def _most_of(name: str) -> Callable[[Association | Qos], float | None]:
    return lambda one: one.most_tres.get(name)


def _least_of(name: str) -> Callable[[Association | Qos], float | None]:
    return lambda one: one.least_tres.get(name) if isinstance(one, Qos) else None


def _notes(request: Request, partition: PartitionLimits, limits: SiteLimits) -> Sequence[str]:
    """Return notes on the limits that restrict a request although it can run."""
    notes = []
    if partition.state == "DOWN":
        notes.append(f"partition {partition.name} is DOWN: jobs wait in its queue, and none starts")
    for name, cap in _counts(request, partition, limits):
        if cap is None:
            continue
        together, most = request.nodes_per_job, cap.most * request.nodes_per_job
        if request.most > most:
            which = name if together == 1 else f"{name} {cap.most:g}"
            notes.append(f"at most {most:g} of the nodes are there at once, {which} of {cap.whose}")
        elif request.most == most:
            what = "nodes" if together == 1 else "jobs"
            text = f"{name} of {cap.whose} is {cap.most:g}: with as many {what}, one is replaced only after its end"
            notes.append(text)
    return notes


def _counts(request: Request, partition: PartitionLimits, limits: SiteLimits) -> Sequence[tuple[str, _Cap | None]]:
    """Return the limits on the number of simultaneous jobs, by Slurm's names of the limits."""
    return (
        ("MaxJobs", _cap(request, partition, limits, lambda one: one.most_jobs)),
        ("MaxSubmitJobs", _cap(request, partition, limits, lambda one: one.most_submitted)),
    )


def _cap(
    request: Request,
    partition: PartitionLimits,
    limits: SiteLimits,
    field: Callable[[Association | Qos], float | None],
) -> _Cap | None:
    """Return a limit: of the partition's QOS, else of the job's QOS, else of the account, as Slurm looks them up.

    Source: the page "Resource Limits" of Slurm's manual, "Hierarchy". None: there is no limit, it is unknown, or Slurm
    does not enforce limits here.
    """
    if not _holds("limits", limits):
        return None
    own = _association(request, partition, limits)
    by_name = {one.name: one for one in limits.qualities}
    of_job = by_name.get(request.qos or ("" if own is None else own.default_qos))
    of_partition = by_name.get(partition.own_qos)
    order: list[tuple[str, Association | Qos]] = [
        *([] if of_partition is None else [(f"QOS {of_partition.name} of partition {partition.name}", of_partition)]),
        *([] if of_job is None else [(f"QOS {of_job.name}", of_job)]),
    ]
    if of_job is not None and of_job.is_above_partition:
        order.reverse()
    if own is not None:
        order.append((f"account {own.account}", own))
    for whose, one in order:
        most = field(one)
        if most is not None:
            return _Cap(most=float(most), whose=whose)
    return None


def _holds(what: str, limits: SiteLimits) -> bool:
    return limits.site is not None and what in limits.site.enforced


def _here(limits: SiteLimits) -> Sequence[Association]:
    """Return the user's associations on this cluster."""
    cluster = "" if limits.site is None else limits.site.cluster
    return [one for one in limits.associations if not cluster or one.cluster == cluster]


def _association(request: Request, partition: PartitionLimits, limits: SiteLimits) -> Association | None:
    """Return the association under which jobs run; None: it is unknown."""
    found = [one for one in _here(limits) if one.partition in ("", partition.name)]
    if request.account:
        found = [one for one in found if one.account == request.account]
    elif len({one.account for one in found}) > 1:  # Slurm uses the default account, which is not read
        return None
    return max(found, key=lambda one: one.partition != "", default=None)


def _list(names: "frozenset[str] | set[str]") -> str:
    return ", ".join(sorted(names))
