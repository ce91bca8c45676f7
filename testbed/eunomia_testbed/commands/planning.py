"""From the flags of ``eunomia simulate`` to what is to be run; nothing is written here."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Final

from eunomia.errors import InputError
from eunomia.platform.cluster_file import ClusterFile, cluster_toml, read_cluster
from eunomia.platform.profiles import Profile
from eunomia.units import parse_duration
from eunomia.words import did_you_mean, shown
from eunomia_testbed.commands.outages import check_machines, failures_of
from eunomia_testbed.commands.settings import factors, filled, load_list, seed_list
from eunomia_testbed.commands.simulate_flags import Flags
from eunomia_testbed.commands.source import Request, Source, check_owner, read_source
from eunomia_testbed.metrics.fairness import KINDS
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Costs, Failures, Keep, Reports, SimulationOptions
from eunomia_testbed.simulator.options import Knowledge

SEGMENTS_UP_TO: Final = 2_000
"""Jobs of a workload up to which each stretch of running is kept, for the report's drawing of who held what."""
KNOWLEDGE: Final[Mapping[str, Knowledge]] = {"declared": "declared", "measured": "measured", "oracle": "oracle"}


def plan_of(flags: Flags) -> tuple[Plan, list[str]]:
    """The plan, and lines that say what was read or generated.

    Raises:
        InputError: anything that was given does not do.
    """
    where = read_cluster(_cluster_text(flags.cluster), place="--cluster")
    peer = _peer(flags.rules, flags.rule or [])
    profiles = _profiles(flags, peer)
    source = _source(flags, where)
    plan = Plan(
        workloads=source.workloads,
        cluster=where.cluster,
        cluster_text=cluster_toml(where),
        profiles=profiles,
        loads=load_list(flags.load),
        options=_options(flags, source.jobs),
        peer=peer,
        models=source.models,
        rho=_kind(flags.rho, by_rules=peer is not None),
        unfair_above=flags.unfair,
        csv=flags.csv,
        inputs=source.inputs,
        command=("eunomia", *sys.argv[1:]) if len(sys.argv) > 1 else ("eunomia", "simulate"),
    )
    plan.check()
    if flags.failures is not None:
        check_machines(plan.options.failures, (machine.name for machine in where.cluster.machines), flags.failures)
    _check_lies(plan)
    _check_searches(plan)
    if flags.strict:
        _refuse_unfit(plan)
    notes = [*source.notes, *_left_out(where)]
    return plan, [f"{source.heading}; {where.cluster.gpus} slots", *(f"  {note}" for note in notes)]


def _left_out(where: ClusterFile) -> list[str]:
    """How much of a list of machines is no part of the cluster, and why, by its first row."""
    count = len(where.left_out)
    machines = "1 machine" if count == 1 else f"{count} machines"
    return [f"{machines} of the list left out, the first: {where.left_out[0]}"] if count else []


def _cluster_text(given: str | None) -> str:
    text = given or os.environ.get("EUNOMIA_CLUSTER")
    if not text:
        rule = 'a simulation must have a cluster, such as --cluster "4x8 V100" or a cluster file'
        raise InputError(rule, value="none", place="--cluster")
    return text


def _profiles(flags: Flags, peer: Peer | None) -> dict[str, Profile]:
    settings = [text for text in flags.settings or () if not text.startswith(flags.owner)]
    check_owner(settings, flags.workload)
    made: dict[str, Profile] = {}
    for policy in flags.policy or [os.environ.get("EUNOMIA_POLICY") or "themis"]:
        profile = Profile.load(policy, settings=settings)
        if profile.name in made:
            raise InputError("policies must have different names", value=f'"{profile.name}" twice', place="--policy")
        made[profile.name] = profile if peer is None else peer.under(profile)
    return made


def _source(flags: Flags, where: ClusterFile) -> Source:
    mine = tuple(text.removeprefix(flags.owner) for text in flags.settings or () if text.startswith(flags.owner))
    request = Request(
        trace=flags.trace,
        workload=flags.workload,
        format=flags.trace_format,
        throughputs=flags.throughputs,
        speeds=flags.speeds,
        options=mine,
        strict=flags.strict,
        by_rules=flags.rules is not None,
    )
    return read_source(request, where, (flags.seed,) if flags.seeds is None else seed_list(flags.seeds))


def _peer(rules: str | None, settings: list[str]) -> Peer | None:
    if rules is None and settings:
        raise InputError("--rule must stand with --rules", value=f'"{settings[0]}"', place="--rule")
    return None if rules is None else Peer.named(rules, lambda kind: filled(kind, settings, "--rule"))


def _options(flags: Flags, jobs: int) -> SimulationOptions:
    know = flags.know or ("declared" if flags.rules is None else "oracle")  # peers' policies are told all rates
    if know not in KNOWLEDGE:
        raise InputError("know must be declared, measured or oracle", value=f'"{know}"', place="--know")
    if flags.rules is not None and (flags.cost or flags.failures):
        given, flag = (flags.cost[0], "--cost") if flags.cost else (flags.failures, "--failures")
        rule = f"{flag} must stand without --rules: these have their own cost of a restart (--rule restart=20s)"
        raise InputError(rule, value=given, place=flag)
    options = SimulationOptions(
        costs=filled(Costs, flags.cost or [], "--cost", durations=True),
        failures=None if flags.failures is None else failures_of(flags.failures),
        reports=Reports(know=KNOWLEDGE[know], error=flags.error, lies=factors(flags.lie or [], "--lie")),
        agents=flags.agents,
        plain=flags.plain,
        tolerate_faults=flags.tolerate_faults,
        keep=Keep(segments=jobs <= SEGMENTS_UP_TO),
        until=float("inf") if flags.until is None else parse_duration(flags.until, name="until", place="--until"),
    )
    _check(options)
    if not 0.0 < flags.unfair < float("inf"):
        raise InputError("unfair must be a positive number", value=str(flags.unfair), place="--unfair")
    return options


def _check(options: SimulationOptions) -> None:
    """Refuse what cannot be, by the flag that said it."""
    try:
        options.check()
    except InputError as error:
        name = error.rule.partition(" ")[0]
        among_failures = name in {field.name for field in dataclasses.fields(Failures)}
        flag = "--error" if name == "error" else "--failures" if among_failures else "--cost"
        raise InputError(error.rule, value=error.value, place=error.place or flag) from None


def _kind(rho: str | None, *, by_rules: bool) -> str:
    """The kind of rho to be judged by: a peer's own where its rules hold."""
    if rho is None:
        return "static" if by_rules else "themis"
    if rho not in KINDS:
        raise InputError(f"rho must be one of {', '.join(KINDS)}", value=f'"{rho}"', place="--rho")
    return rho


def _check_lies(plan: Plan) -> None:
    """A lie of an app that is in no workload would be of no effect."""
    lies = plan.options.reports.lies
    known = {app for workload in plan.workloads.values() for app in workload.apps.id} if lies else set()
    for app in lies:
        if app not in known:
            value = f"{shown(app)}{did_you_mean(app, known)}"
            raise InputError("a lie must be of an app of the workload", value=value, place="--lie")


def _check_searches(plan: Plan) -> None:
    workloads = {id(each): each for each in plan.workloads.values() if each.searches}
    if workloads:
        from eunomia_testbed.simulator.searches import check_searches

        for workload in workloads.values():
            check_searches(workload)


def _refuse_unfit(plan: Plan) -> None:
    """Under ``--strict`` a job that can never run here is an error."""
    from eunomia_testbed.simulator.truth import Speeds

    for workload in {id(each): each for each in plan.workloads.values()}.values():
        for unfit in Speeds(workload, plan.cluster, plan.models).unfit()[:1]:
            raise InputError(unfit.rule, value=unfit.value, place=f"{workload.name}, job {workload.jobs.id[unfit.job]}")
