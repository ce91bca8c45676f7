"""Makes the plan of a run from a ``SimulationSpec``, without writing files."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Final

from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile, preset_keys_left_out
from eunomia.units import parse_duration
from eunomia_testbed.calls.limits import CallLimits
from eunomia_testbed.metrics.fairness import KINDS
from eunomia_testbed.performance import ByAmounts, known_of
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.results.assumptions import assumption_sentences
from eunomia_testbed.running.peers import Peer
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.simulator import Failures, Keep, MachineChange, SimulationOptions
from eunomia_testbed.simulator.machine_changes import with_all
from eunomia_testbed.simulator.options import FACTS, Fact
from eunomia_testbed.spec.cluster_file import ClusterFile, cluster_toml, read_cluster
from eunomia_testbed.spec.costs import costs_note, costs_of
from eunomia_testbed.spec.elastic import sizes_of, with_sizes
from eunomia_testbed.spec.fitting import LeftOut, fitted, size_notes
from eunomia_testbed.spec.machines_plan import machines_plan_of
from eunomia_testbed.spec.meaning import Question, settled
from eunomia_testbed.spec.outages import check_machines, failures_of
from eunomia_testbed.spec.reports import reports_of
from eunomia_testbed.spec.resampling import budget_seconds, resampling
from eunomia_testbed.spec.settings import filled, load_list, seed_list
from eunomia_testbed.spec.several import read_several, traces_of
from eunomia_testbed.spec.simulation import SimulationSpec
from eunomia_testbed.spec.source import EQUAL, Request, Source, check_owner, read_source, source_of
from eunomia_testbed.workload import Workload

SEGMENTS_UP_TO: Final = 2_000
"""Most jobs of a workload for which all running periods are logged, for the report's chart of slot holders."""
OPTION_FIELDS: Final = ("cost", "failures", "machines_plan", "know", "error", "lie", "agents", "until")
"""Fields of a spec that its field ``options`` replaces."""


def plan_of(spec: SimulationSpec) -> tuple[Plan, list[str]]:
    """Return the plan of a run, and lines of text on its workload, assumptions and notes.

    Raises:
        InputError: a value of the spec is invalid, or two values contradict each other.
    """
    where = _cluster(spec)
    peer = _peer(spec)
    changes = () if spec.machines_plan is None else machines_plan_of(spec.machines_plan, where.cluster)
    profiles, unfit = _fitted(spec, _profiles(spec, peer), with_all(where.cluster, changes))
    source = _source(spec, where)
    models = source.models if spec.models is None else spec.models
    meaning = settled(source.workloads, _question(spec, where, models))
    workloads, sized = _sized(spec, dict(meaning.workloads), where.cluster, models)
    loads = load_list(spec.loads) if isinstance(spec.loads, str) else spec.loads
    plan = Plan(
        workloads=workloads,
        cluster=where.cluster,
        cluster_text=cluster_toml(where),
        profiles=profiles,
        loads=loads,
        resampling=resampling(spec, workloads, loads),
        budget_seconds=budget_seconds(spec),
        options=_options(spec, source, where.cluster, changes),
        peer=peer,
        models=models,
        rho=_kind(spec, by_rules=peer is not None),
        unfair_above=spec.unfair_above,
        csv=spec.csv,
        inputs=source.inputs,
        command=spec.command(),
        spec=spec.given(),
        assumptions=meaning.assumptions,
        several_traces=traces_of(spec) is not None and len(workloads) > 1,
        limits=_limits(spec),
    )
    _check_plan(plan, spec)
    one_size = size_notes(profiles, list(plan.workloads.values()))
    measured = costs_note(spec.cost, plan.options.costs)
    plan = dataclasses.replace(plan, notes=(*sized, *one_size, *_unknown_speeds(plan, spec), *measured))
    notes = [*assumption_sentences(plan.assumptions), *source.notes, *_left_out(where)]
    notes += [*_of_peer(peer, spec, profiles), *_of_pairs(profiles), *plan.notes]
    notes += [f"left out (--skip-unfit): {each.text}" for each in unfit]
    machines = len(where.cluster.machines)
    slots = f"{where.cluster.gpus} slots on {machines} machine{'s' * (machines > 1)}"
    return plan, [f"{source.heading}; {slots}", *(f"  {note}" for note in notes)]


def _limits(spec: SimulationSpec) -> CallLimits:
    """Return the limits on the time of a plugin's call."""
    return CallLimits(
        cpu_seconds=parse_duration(spec.call_cpu, name="call-cpu", place=spec.place("call_cpu")),
        wall_seconds=parse_duration(spec.call_wall, name="call-wall", place=spec.place("call_wall")),
    )


def _question(spec: SimulationSpec, where: ClusterFile, models: PerformanceModel | None) -> Question:
    return Question(
        cluster=where.cluster,
        models=models,
        equal=spec.speeds == EQUAL and spec.models is None,
        unknown_models=spec.unknown_models,
        place=spec.place,
    )


def _check_plan(plan: Plan, spec: SimulationSpec) -> None:
    """Check that the parts of a plan do not contradict each other."""
    plan.check()
    if not 0.0 < spec.unfair_above < float("inf"):
        rule, place = "unfair must be a positive number", spec.place("unfair_above")
        raise InputError(rule, value=str(spec.unfair_above), place=place)
    if spec.failures is not None:
        there = with_all(plan.cluster, plan.options.machines).machines
        check_machines(plan.options.failures, (machine.name for machine in there), spec.failures)
    _check_searches(plan)
    for workload in {id(each): each for each in plan.workloads.values()}.values() if plan.peer is not None else ():
        plan.options_of(workload)  # the peer's rules reject workloads that they cannot run
    _check_amounts(plan, spec)
    _check_least(plan)
    if spec.strict:
        _refuse_unfit(plan)


def _check_amounts(plan: Plan, spec: SimulationSpec) -> None:
    """Check that the speeds include rates by CPUs and memory, if app masters are to know these rates."""
    if "amounts" not in plan.options.reports.facts:
        return
    models = plan.models
    for workload in plan.workloads.values():
        if not isinstance(models, ByAmounts) or not known_of(models, _looked_up(workload)):
            rule = "rates by CPUs and memory must be in --speeds where app masters know amounts"
            raise InputError(rule, value=f'none of the models of "{workload.name}"', place=spec.place("know"))


def _looked_up(workload: Workload) -> list[str]:
    """Return the names of models whose speeds the jobs use: those of the trace, and assumed ones."""
    return [*workload.models, *(name for name in workload.assumed_speeds.values() if name is not None)]


def _check_least(plan: Plan) -> None:
    """Check that every elastic job has a speed at its smallest size, which any policy may give it."""
    if plan.models is None:
        return
    from eunomia_testbed.simulator.progress.truth import Speeds

    for workload in {id(each): each for each in plan.workloads.values()}.values():
        found = Speeds(workload, plan.cluster, plan.models).without_least()
        if found is not None:
            raise InputError(found.rule, value=found.value, place=f"{workload.name}, job {workload.jobs.id[found.job]}")


def _unknown_speeds(plan: Plan, spec: SimulationSpec) -> tuple[str, ...]:
    """Return a sentence if policies do not know the given speeds, although these differ by size or GPU type."""
    models, reports = plan.models, plan.options.reports
    if models is None or (spec.speeds is None and spec.models is None):
        return ()
    workloads = {id(each): each for each in plan.workloads.values() if known_of(models, _looked_up(each))}.values()
    elastic = any(bool((each.jobs.least < each.jobs.most).any()) for each in workloads)
    differ: dict[Fact, bool] = {"sizes": elastic, "types": bool(workloads) and len(plan.cluster.gpu_types) > 1}
    missing = {fact for fact, counts in differ.items() if counts} - reports.facts
    if not missing:
        return ()
    words = ",".join(fact for fact in FACTS if fact in reports.facts | missing)
    known = "do not know" if reports.know == "declared" else "know only by measurement"
    by = " and ".join(text for fact, text in (("sizes", "size"), ("types", "GPU type")) if fact in missing)
    return (f"policies {known} the speeds of {spec.place('speeds')} by {by}: --know {words} lets them know these",)


def _of_pairs(profiles: Mapping[str, Profile]) -> list[str]:
    """Return notes on policies ``A+B``: their parts are plugins, without the settings of the presets A and B."""
    return [
        f"{name}: {part} is the plugin, without {', '.join(keys)} of the preset {part}"
        for name, profile in profiles.items()
        for part, keys in preset_keys_left_out(name, profile.registry).items()
    ]


def _of_peer(peer: Peer | None, spec: SimulationSpec, profiles: Mapping[str, Profile]) -> list[str]:
    """Return notes on defaults that a peer's rules change, and on differences from the peer."""
    if peer is None:
        return []
    implied = ["app masters know all rates (--know oracle), since --know is not given"] if spec.know is None else []
    if spec.options is not None:
        implied = []
    overruled = peer.overruled(spec.settings)
    return [f"rules of {peer.name}: {each}" for each in (*implied, *overruled, *peer.notes(profiles))]


def _left_out(where: ClusterFile) -> list[str]:
    """Return a note on the number of left-out machines, with the reason for the first one."""
    count = len(where.left_out)
    machines = "1 machine" if count == 1 else f"{count} machines"
    return [f"{machines} of the list left out, the first: {where.left_out[0]}"] if count else []


def _cluster(spec: SimulationSpec) -> ClusterFile:
    given = spec.cluster or os.environ.get("EUNOMIA_CLUSTER")
    if not given:
        rule = 'a simulation must have a cluster, such as --cluster "4x8 V100" or a cluster file'
        raise InputError(rule, value="none", place=spec.place("cluster"))
    if isinstance(given, Cluster):
        return ClusterFile(cluster=given, bandwidth_gib={})
    return read_cluster(given, place=spec.place("cluster"))


def _profiles(spec: SimulationSpec, peer: Peer | None) -> dict[str, Profile]:
    settings = [text for text in spec.settings if not text.startswith(spec.owner)]
    check_owner(settings, spec.workload if isinstance(spec.workload, str) else None)
    made: dict[str, Profile] = {}
    place = spec.place("policies")
    asked = (os.environ.get("EUNOMIA_POLICY") or "themis",) if spec.policies is None else spec.policies
    if settings and any(isinstance(policy, Profile) for policy in asked):
        rule = "settings must stand with policies that are given by name"
        raise InputError(rule, value=f'"{settings[0]}"', place=spec.place("settings"))
    errors: list[InputError] = []
    for policy in asked:
        try:
            profile = policy if isinstance(policy, Profile) else Profile.load(policy, settings=settings, flag=place)
        except InputError as error:
            errors += error.errors if isinstance(error, InputErrors) else [error]
            continue
        if profile.name in made:
            raise InputError("policies must have different names", value=f'"{profile.name}" twice', place=place)
        made[profile.name] = profile if peer is None else peer.under(profile)
    if errors:
        raise InputErrors(errors) if len(errors) > 1 else errors[0]
    return made


def _sized(
    spec: SimulationSpec, workloads: dict[int, Workload], cluster: Cluster, models: PerformanceModel | None
) -> tuple[dict[int, Workload], tuple[str, ...]]:
    """Return the workloads with the sizes of ``--elastic``, and a sentence on the sizes."""
    if spec.elastic is None:
        return workloads, ()
    sizes = sizes_of(spec.elastic, cluster, place=spec.place("elastic"))
    made, said = with_sizes(workloads, sizes, cluster, models)
    return made, (said,)


def _fitted(
    spec: SimulationSpec, profiles: dict[str, Profile], cluster: Cluster
) -> tuple[dict[str, Profile], list[LeftOut]]:
    """Return the policies that suit the cluster, and those that ``--skip-unfit`` leaves out.

    Raises:
        InputErrors: some policies do not suit without ``--skip-unfit``, or no policy suits.
    """
    kept, left = fitted(profiles, cluster)
    if left and not (spec.skip_unfit and kept):
        rule, way = "a policy must suit the cluster", "" if spec.skip_unfit else "; --skip-unfit leaves it out"
        place = spec.place("policies")
        raise InputErrors([InputError(rule, value=f"{each.text}{way}", place=place) for each in left])
    return kept, left


def _source(spec: SimulationSpec, where: ClusterFile) -> Source:
    seeds = (spec.seed,) if spec.seeds is None else spec.seeds
    seeds = seed_list(seeds) if isinstance(seeds, str) else seeds
    request = Request(
        trace=spec.trace if isinstance(spec.trace, str) else None,
        workload=spec.workload if isinstance(spec.workload, str) else None,
        format=spec.format,
        throughputs=spec.throughputs,
        speeds=spec.speeds,
        options=tuple(text.removeprefix(spec.owner) for text in spec.settings if text.startswith(spec.owner)),
        strict=spec.strict,
        by_rules=spec.rules is not None,
    )
    several = traces_of(spec)
    if several is not None:
        return read_several(several, request, where)
    if spec.workload is None or isinstance(spec.workload, str | Sequence):
        return read_source(request, where, seeds)
    return source_of(spec.workload, request, where, seeds)


def _peer(spec: SimulationSpec) -> Peer | None:
    if spec.rules is None and spec.rule:
        place = spec.place("rule")
        raise InputError("--rule must stand with --rules", value=f'"{spec.rule[0]}"', place=place)
    if spec.rules is None or isinstance(spec.rules, Peer):
        return spec.rules
    return Peer.named(spec.rules, lambda kind: filled(kind, spec.rule, spec.place("rule")))


def _options(
    spec: SimulationSpec, source: Source, where: Cluster, machines: tuple[MachineChange, ...]
) -> SimulationOptions:
    if spec.options is not None:
        return _given_options(spec, spec.options)
    if spec.rules is not None and (spec.cost or spec.failures or spec.machines_plan):
        given, flag = (spec.cost[0], "--cost") if spec.cost else (spec.failures, "--failures")
        if not given:
            rule = "--machines-plan must stand without --rules: these know no machine that joins or leaves"
            raise InputError(rule, value=spec.machines_plan, place="--machines-plan")
        rule = f"{flag} must stand without --rules: these have their own cost of a restart (--rule restart=20s)"
        raise InputError(rule, value=given, place=flag)
    until = spec.place("until")
    apps = {app for workload in source.workloads.values() for app in workload.apps.id}
    options = SimulationOptions(
        costs=costs_of(spec.cost, spec.place("cost")),
        failures=None if spec.failures is None else failures_of(spec.failures),
        machines=machines,
        reports=reports_of(spec, apps, where.gpu_types),
        agents=spec.agents,
        plain=spec.plain,
        tolerate_faults=spec.tolerate_faults,
        keep=Keep(segments=source.jobs <= SEGMENTS_UP_TO),
        until=float("inf") if spec.until is None else parse_duration(spec.until, name="until", place=until),
    )
    _check(options, spec)
    return options


def _given_options(spec: SimulationSpec, options: SimulationOptions) -> SimulationOptions:
    """Return the options of a script, combined with the flags that may accompany them."""
    twice = [name for name in OPTION_FIELDS if name in spec.given()]
    if twice:
        rule = "options must not stand with a field that they replace"
        raise InputError(rule, value=f"options and {', '.join(twice)}", place=spec.place(twice[0]))
    return dataclasses.replace(
        options,
        plain=options.plain or spec.plain,
        tolerate_faults=options.tolerate_faults or spec.tolerate_faults,
    )


def _check(options: SimulationOptions, spec: SimulationSpec) -> None:
    """Check the options; an error names the flag of the invalid one."""
    try:
        options.check()
    except InputError as error:
        name = error.rule.partition(" ")[0]
        among_failures = name in {field.name for field in dataclasses.fields(Failures)}
        of_reports = next((flag for flag in ("error", "lie", "know") if flag in (name, *error.rule.split()[:2])), None)
        field = of_reports or ("failures" if among_failures else "cost")
        raise InputError(error.rule, value=error.value, place=error.place or spec.place(field)) from None


def _kind(spec: SimulationSpec, *, by_rules: bool) -> str:
    """Return the kind of rho by which apps are judged; the default is that of the peer under a peer's rules."""
    if spec.rho is None:
        return "static" if by_rules else "themis"
    if spec.rho not in KINDS:
        raise InputError(f"rho must be one of {', '.join(KINDS)}", value=f'"{spec.rho}"', place=spec.place("rho"))
    return spec.rho


def _check_searches(plan: Plan) -> None:
    workloads = {id(each): each for each in plan.workloads.values() if each.searches}
    if workloads:
        from eunomia_testbed.simulator.apps.searches import check_searches

        for workload in workloads.values():
            check_searches(workload)


def _refuse_unfit(plan: Plan) -> None:
    """Check, under ``--strict``, that every job can run on the cluster."""
    from eunomia_testbed.simulator.progress.truth import Speeds

    for workload in {id(each): each for each in plan.workloads.values()}.values():
        for unfit in Speeds(workload, plan.cluster, plan.models).unfit()[:1]:
            raise InputError(unfit.rule, value=unfit.value, place=f"{workload.name}, job {workload.jobs.id[unfit.job]}")
