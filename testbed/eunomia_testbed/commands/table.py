"""The table that ends a simulation's output: a row for each policy, with means over seeds."""

from collections.abc import Sequence

import polars as pl

from eunomia_testbed.results.facts import RunFacts
from eunomia_testbed.running.many import deciding_seconds
from eunomia_testbed.running.summing import known, mean_of

LEGEND = {
    "themis": "Themis': the time alone x apps over its life",
    "static": "Gavel's and Shockwave's static one: the time alone x jobs per GPU",
    "contention": "the time alone x jobs per GPU over its life",
    "exclusive": "the time alone",
}


def table_lines(metrics: pl.DataFrame, timings: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return the lines of the table, with policies in the order of the facts.

    Args:
        metrics: a row for each policy and seed, as in ``summary.csv``.
        timings: the table ``timings``.
        facts: facts of the run.
    """
    heads = ["makespan s", "mean JCT s", "p99 JCT s", "worst ρ", f"ρ>{facts.unfair_above:g} %", "in use %"]
    heads += ["restarts", "deciding s"]
    done = set(metrics["policy"].to_list()) if metrics.width else set()
    failed = {each.policy for each in facts.failures}
    rows = [
        (_shown_name(metrics, policy), _row(metrics, timings, policy))
        if policy in done
        else (f"{policy}: failed", ["-"] * len(heads))
        for policy in facts.profiles
        if policy in done | failed
    ]
    first = max([18, *(len(name) + 1 for name, _ in rows)])
    lines = [f"{'policy':<{first}}" + "".join(f"   {head:>{_width(head)}}" for head in heads)]
    for policy, cells in rows:
        lines.append(
            f"{policy:<{first}}"
            + "".join(f"   {cell:>{_width(head)}}" for head, cell in zip(heads, cells, strict=True))
        )
    return [line.rstrip() for line in lines]


def _shown_name(metrics: pl.DataFrame, policy: str) -> str:
    """Return the policy's name, followed by the first round in which its fallback decided, if any."""
    since = known(metrics.filter(pl.col("policy") == policy)["fallback_round"].to_list())
    return f"{policy} (fallback from round {min(since):.0f})" if since else policy


def faults_told(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each run with tolerated faults: the first fault, and the fallback's first round."""
    lines = []
    for row in metrics.filter(pl.col("faults") > 0).iter_rows(named=True):
        since = row["fallback_round"]
        decided = "" if since is None else f"; the fallback decided from round {since} on"
        rounds = f"{row['faults']} of {row['rounds']} rounds with a fault"
        first = f", the first: {row['first_fault']}" if row["first_fault"] else ""
        lines.append(f"{row['policy']}, seed {row['seed']}: {rounds}{first}{decided}")
    return lines


def notes_of(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return notes below the table: the kind of rho, the number of seeds, and failures."""
    seeds = f"; means of {len(facts.seeds)} seeds" if len(facts.seeds) > 1 else ""
    lines = [f"ρ: finish time over that on an equal share of one's own ({LEGEND[facts.rho]}); at most 1 is fair{seeds}"]
    lines += [f"{each.policy}, seed {each.seed}: failed: {each.error}" for each in facts.failures]
    if metrics.is_empty():
        return lines
    done = {policy: metrics.filter(pl.col("policy") == policy).height for policy in facts.profiles}
    failed = [each.policy for each in facts.failures]
    lines += [
        f"{policy}: {count or 'none'} of {len(facts.seeds)} seeds done"
        for policy, count in done.items()
        if count + failed.count(policy) < len(facts.seeds)
    ]
    unfinished = metrics.filter(pl.col("apps_finished") < pl.col("apps"))
    until = facts.spec.get("until")
    why = f"; --until {until} cut the run off" if until else "; see dropped.csv for jobs that could not go on"
    for row in unfinished.iter_rows(named=True):
        left = row["apps"] - row["apps_finished"]
        lines.append(f"{row['policy']}, seed {row['seed']}: {left} of {row['apps']} apps did not finish{why}")
    return lines + slower_alone(metrics, facts) + free_resizes(metrics, facts) + probed(metrics) + faults_told(metrics)


def slower_alone(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return a line for each policy of which Themis' rho counts sublinear speed-up against apps."""
    if facts.rho != "themis" or "apps_slower_alone" not in metrics.columns:
        return []
    found = metrics.filter(pl.col("apps_slower_alone") > 0).group_by("policy", maintain_order=True)
    return [
        f"{policy}: {slower} of {apps} apps take longer alone than Themis' linear speed-up gives, which raises their ρ "
        "under any policy; --rho contention judges by the time alone"
        for policy, slower, apps in found.agg(pl.col("apps_slower_alone").max(), pl.col("apps").max()).iter_rows()
    ]


def free_resizes(metrics: pl.DataFrame, facts: RunFacts) -> list[str]:
    """Return a line for each policy with resizes, in a run whose costs leave resizes free."""
    if not facts.resizes_free or "resizes" not in metrics.columns:
        return []
    counted = metrics.group_by("policy", maintain_order=True).agg(pl.col("resizes").sum()).filter(pl.col("resizes") > 0)
    return [
        f"{policy}: {resizes} resizes took no time, although starts or saves do: --cost pause=30s gives each a time"
        for policy, resizes in counted.iter_rows()
    ]


def probed(metrics: pl.DataFrame) -> list[str]:
    """Return a line for each policy that had jobs measured by probes, each of which costs two restarts."""
    if "probes" not in metrics.columns:
        return []
    counted = metrics.group_by("policy", maintain_order=True).agg(pl.col("probes").sum(), pl.col("jobs").sum())
    return [
        f"{policy}: {probes} probes in all, {probes / jobs:.1f} a job, each with two restarts"
        for policy, probes, jobs in counted.filter(pl.col("probes") > 0).iter_rows()
    ]


def _row(metrics: pl.DataFrame, timings: pl.DataFrame, policy: str) -> list[str]:
    mine = metrics.filter(pl.col("policy") == policy)
    deciding = known([deciding_seconds(timings, policy, seed) for seed in mine["seed"].to_list()])
    return [
        _shown(mine, "makespan_seconds", 0),
        _shown(mine, "jct_mean_seconds", 0),
        _shown(mine, "jct_p99_seconds", 0),
        _shown(mine, "rho_worst", 3),
        _shown(mine, "rho_unfair_share", 1, 100.0),
        _shown(mine, "utilization", 1, 100.0),
        _shown(mine, "restarts", 0),
        _digits(sum(deciding) / len(deciding), 2) if deciding else "-",
    ]


def _shown(mine: pl.DataFrame, name: str, digits: int, scale: float = 1.0) -> str:
    found = mean_of(mine, name)
    return "-" if found is None else _digits(found.mean * scale, digits)


def _digits(number: float, digits: int) -> str:
    return f"{number:.{digits}f}"


def _width(head: str) -> int:
    return max(7, len(head))


def json_rows(metrics: pl.DataFrame, timings: pl.DataFrame) -> Sequence[dict[str, object]]:
    """Return every metric of each policy and seed, with the CPU seconds of decisions."""
    return [
        {**row, "deciding_seconds": deciding_seconds(timings, row["policy"], row["seed"])}
        for row in metrics.iter_rows(named=True)
    ]
