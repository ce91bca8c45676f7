"""The table at the end of a simulation's output: a row for each policy with intervals, and a line for each goal."""

from collections.abc import Callable, Sequence

import polars as pl

from eunomia_testbed.evidence.draws import DrawKind
from eunomia_testbed.evidence.evidence import Evidence
from eunomia_testbed.evidence.judging import judge, policies_by_load
from eunomia_testbed.evidence.wording import lines_of, method, seconds_in, unit_of, with_interval
from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.running.many import deciding_seconds
from eunomia_testbed.running.summing import known

LEGEND = {
    "themis": "Themis': the time alone x apps over its life",
    "static": "Gavel's and Shockwave's static one: the time alone x jobs per GPU",
    "contention": "the time alone x jobs per GPU over its life",
    "exclusive": "the time alone",
}


def table_lines(metrics: pl.DataFrame, timings: pl.DataFrame, facts: RunFacts, evidence: Evidence) -> list[str]:
    """Return the lines of the table, with policies in the order of the facts.

    Args:
        metrics: a row for each policy and seed, as in ``summary.csv``.
        timings: the table ``timings``.
        facts: facts of the run.
        evidence: the figures with their intervals.
    """
    done = set(metrics["policy"].to_list()) if metrics.width else set()
    failed = {each.policy for each in facts.failures}
    shown = [policy for policy in facts.profiles if policy in done | failed]
    columns = _columns(evidence, facts, [policy for policy in shown if policy in done])
    columns["deciding"] = lambda policy: _deciding(metrics, timings, policy)
    names = {policy: _shown_name(metrics, policy) if policy in done else f"{policy}: failed" for policy in shown}
    cells = {policy: [column(policy) if policy in done else "-" for column in columns.values()] for policy in shown}
    first = max([18, *(len(name) + 1 for name in names.values())])
    widths = [max(len(head), *(len(mine[at]) for mine in cells.values()), 0) for at, head in enumerate(columns)]
    lines = [
        f"{'policy':<{first}}" + "".join(f"   {head:<{width}}" for head, width in zip(columns, widths, strict=True))
    ]
    for policy in shown:
        row = "".join(f"   {cell:<{width}}" for cell, width in zip(cells[policy], widths, strict=True))
        lines.append(f"{names[policy]:<{first}}{row}")
    return [line.rstrip() for line in lines]


def _columns(evidence: Evidence, facts: RunFacts, policies: Sequence[str]) -> dict[str, Callable[[str], str]]:
    """Return for each column heading a function from a policy to the text of its cell; all times have one unit."""
    figure = evidence.figure
    known = [found.value for each in policies if (found := figure(each, "jct_mean_seconds")) is not None]
    unit = unit_of(min(known, default=0.0))
    show = seconds_in(unit)
    other = "contention" if facts.rho != "contention" else "static"
    return {
        "mean JCT": lambda policy: with_interval(figure(policy, "jct_mean_seconds"), show, unit),
        "p99 JCT": lambda policy: with_interval(figure(policy, "jct_p99_seconds"), show, unit),
        "end": lambda policy: with_interval(figure(policy, "makespan_seconds"), show, unit),
        f"{_rho_named(facts.rho)}: p90, > 1, worst here": lambda policy: _rho(evidence, policy, facts.rho, worst=True),
        f"{_rho_named(other)}: p90, > 1": lambda policy: _rho(evidence, policy, other, worst=False),
        "in use": lambda policy: with_interval(figure(policy, "utilization"), _percent),
        "moves a job": lambda policy: with_interval(figure(policy, "moves_per_job"), lambda number: f"{number:.1f}"),
    }


def _rho_named(kind: str) -> str:
    return "ρ" if kind == "themis" else f"{kind} ρ"


def _rho(evidence: Evidence, policy: str, kind: str, *, worst: bool) -> str:
    """Return as text the 90th percentile of ρ with its interval, the fraction of apps above 1, and the worst ρ."""
    above, most = (evidence.figure(policy, f"rho_{kind}_{way}") for way in ("above_1_share", "worst"))
    parts = [with_interval(evidence.figure(policy, f"rho_{kind}_p90"), lambda number: f"{number:.2f}")]
    parts.append("-" if above is None else _percent(above.value))
    parts += ["-" if most is None else f"{most.value:.2f}"] if worst else []
    return ", ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _deciding(metrics: pl.DataFrame, timings: pl.DataFrame, policy: str) -> str:
    """Return the CPU seconds of the arbiter's decisions as text, the mean over seeds."""
    seeds = metrics.filter(pl.col("policy") == policy)["seed"].to_list()
    found = known([deciding_seconds(timings, policy, seed) for seed in seeds])
    return f"{sum(found) / len(found):.2f} s" if found else "-"


def answer_lines(evidence: Evidence, facts: RunFacts) -> list[str]:
    """Return a line for each goal with its answer, and a line on how the intervals were made; empty: one policy.

    Args:
        evidence: the figures with their intervals.
        facts: facts of the run, which name the policies and their loads.
    """
    lines: list[str] = []
    by_load = policies_by_load(facts)
    for load, policies in by_load.items():
        if len(policies) < 2:
            continue
        answers = judge(evidence, policies, kind=facts.rho)
        by_goal = lines_of(answers, evidence.draws)
        width = max((len(line.label) for line in by_goal), default=0)
        lines += [f"At {load:g} times the load:"] if len(by_load) > 1 else []
        lines += [f"{line.label:<{width}}   {line.text}" for line in by_goal]
        lines += [
            f"{each.policy}: {each.finished} of {each.apps} apps finished, and no goal compares it"
            for each in answers.unfinished
        ]
    return [*lines, method(evidence.draws)] if lines else []


def _shown_name(metrics: pl.DataFrame, policy: str) -> str:
    """Return the policy's name, followed by the first round in which its fallback decided, if any."""
    since = known(metrics.filter(pl.col("policy") == policy)["fallback_round"].to_list())
    return f"{policy} (fallback from round {min(since):.0f})" if since else policy


def faults_told(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each run with tolerated faults: the first fault, and the fallback's first round, if any."""
    lines = []
    for row in metrics.filter(pl.col("faults") > 0).iter_rows(named=True):
        since = row["fallback_round"]
        decided = "" if since is None else f"; the fallback decided from round {since} on"
        rounds = f"{row['faults']} of {row['rounds']} rounds with a fault"
        first = f", the first: {row['first_fault']}" if row["first_fault"] else ""
        lines.append(f"{row['policy']}, seed {row['seed']}: {rounds}{first}{decided}")
    return lines


def notes_of(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return the notes below the table: the kind of ρ, the seeds, failed runs, unfinished apps, and free changes."""
    draws = facts.draws
    seeds = f"; means of {draws.count} seeds" if draws.kind is DrawKind.SEEDS else ""
    lines = [f"ρ: finish time over that on an equal share of one's own ({LEGEND[facts.rho]}); at most 1 is fair{seeds}"]
    if draws.fixed and len(facts.seeds) > 1:
        lines.append(f"{', '.join(draws.fixed)}: nothing is drawn by chance, so one seed was simulated")
    lines += [f"{each.run}: failed: {each.error}" for each in facts.failures]
    if metrics.is_empty():
        return lines
    done = {policy: metrics.filter(pl.col("policy") == policy).height for policy in facts.profiles}
    failed = [each.policy for each in facts.failures if not each.resampled]
    lines += [
        f"{policy}: {count or 'none'} of {len(facts.seeds)} seeds done"
        for policy, count in done.items()
        if count + failed.count(policy) < len(facts.seeds) and policy not in facts.draws.fixed
    ]
    unfinished = metrics.filter(pl.col("apps_finished") < pl.col("apps") - pl.col("apps_left_out"))
    until = facts.spec.get("until")
    why = f"; --until {until} cut the run off" if until else "; see dropped.csv for jobs that could not go on"
    for row in unfinished.iter_rows(named=True):
        fit = row["apps"] - row["apps_left_out"]
        left = fit - row["apps_finished"]
        lines.append(f"{row['policy']}, seed {row['seed']}: {left} of {fit} apps did not finish{why}")
    lines += slower_alone(metrics, facts) + slow_by_type(metrics) + free_resizes(metrics, facts)
    return lines + probed(metrics) + faults_told(metrics)


def slower_alone(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return a line on apps whose Themis ρ is high under any policy since their speedup is sublinear; empty: none."""
    if facts.rho != "themis" or "apps_slower_alone" not in metrics.columns:
        return []
    found = known(metrics.filter(pl.col("apps_slower_alone") > 0)["apps_slower_alone"].to_list())
    if not found:
        return []
    least, most = min(found), max(found)
    count = f"{most:.0f}" if least == most else f"{least:.0f} to {most:.0f}"
    apps = max(known(metrics["apps"].to_list()))
    return [
        f"{count} of {apps:.0f} apps take longer alone than Themis' linear speed-up gives, which raises their ρ under "
        "any policy; --rho contention judges by the time alone"
    ]


def slow_by_type(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each policy under which apps are slow because of their GPU types."""
    if "apps_slow_by_type" not in metrics.columns:
        return []
    found = metrics.filter(pl.col("apps_slow_by_type") > 0).group_by("policy", maintain_order=True)
    return [
        f"{policy}: {slow} of {apps} apps are slow because of their GPU type, which cost them more time than waiting "
        f"(mean speed {speed:.2f} of the reference type's; gpu_types.parquet)"
        for policy, slow, apps, speed in found.agg(
            pl.col("apps_slow_by_type").sum(), pl.col("apps").sum(), pl.col("type_speed_mean").mean()
        ).iter_rows()
    ]


def free_resizes(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return a line for each policy that resized jobs, in a run whose costs do not charge for resizes."""
    if not facts.resizes_free or "resizes" not in metrics.columns:
        return []
    counted = metrics.group_by("policy", maintain_order=True).agg(pl.col("resizes").sum()).filter(pl.col("resizes") > 0)
    return [
        f"{policy}: {resizes} resizes took no time, although starts or saves do: --cost pause=30s gives each a time"
        for policy, resizes in counted.iter_rows()
    ]


def probed(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each policy that measures jobs by probes, with the number of probes and their cost."""
    if "probes" not in metrics.columns:
        return []
    counted = metrics.group_by("policy", maintain_order=True).agg(pl.col("probes").sum(), pl.col("jobs").sum())
    return [
        f"{policy}: {probes} probes in all, {probes / jobs:.1f} a job, each with two restarts or two resizes"
        for policy, probes, jobs in counted.filter(pl.col("probes") > 0).iter_rows()
    ]


def json_rows(metrics: pl.DataFrame, timings: pl.DataFrame) -> Sequence[dict[str, object]]:
    """Return a row for each policy and seed, with every metric and the CPU seconds of decisions."""
    return [
        {**row, "deciding_seconds": deciding_seconds(timings, row["policy"], row["seed"])}
        for row in metrics.iter_rows(named=True)
    ]
