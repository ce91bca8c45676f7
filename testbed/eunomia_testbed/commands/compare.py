"""``eunomia compare``: compares two simulated policies metric by metric, paired by seed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import polars as pl
import typer

from eunomia.errors import EunomiaError, InputError, RunErrors
from eunomia.model.shapes import builds, value
from eunomia.words import list_of
from eunomia_testbed.commands.table import faults_told
from eunomia_testbed.metrics.intervals import Interval, interval
from eunomia_testbed.results.assumptions import assumption_sentences
from eunomia_testbed.results.facts import FailedRun, RunFacts


@value
class Metric:
    """A metric to compare: shares are compared in points, other metrics in per cent of the first policy's value."""

    name: str
    label: str
    digits: int = 0
    share: bool = False
    more_is_better: bool = False


METRICS: Final = (
    Metric(name="jct_mean_seconds", label="mean JCT s"),
    Metric(name="jct_p99_seconds", label="p99 JCT s"),
    Metric(name="rho_worst", label="worst ρ", digits=2),
    Metric(name="rho_unfair_share", label="unfair %", digits=1, share=True),
    Metric(name="makespan_seconds", label="makespan s"),
    Metric(name="utilization", label="in use %", digits=1, share=True, more_is_better=True),
    Metric(name="slot_seconds", label="GPU hours"),
    Metric(name="restarts", label="restarts"),
)


NOTHING: Final = 0.0005
"""Largest relative difference that is shown as none."""


WORLD: Final = (
    *("speeds", "unknown_models", "throughputs", "rules", "rule", "cost", "failures"),
    *("know", "error", "lie", "agents", "until", "loads", "options"),
)
"""Fields of the spec that must be equal in a comparison of policies."""


OK: Final = 0
ANSWER_IS_NO: Final = 1


@builds
class Side:
    """One of the two compared policies, with its run."""

    folder: Path
    policy: str
    name: str
    metrics: pl.DataFrame
    """Metrics of the policy, a row for each seed."""
    facts: RunFacts | None


def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Two result folders, or FOLDER:POLICY where a folder holds several policies.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as one JSON object.")] = False,
) -> int:
    """Compare two simulated policies, with intervals over seeds."""
    first, second = sides(runs)
    seeds = sorted(set(first.metrics["seed"]) & set(second.metrics["seed"]))
    failed = [each for side in (first, second) for each in _failures(side)]
    if not seeds and failed:
        rule = "policies that are compared must have come to their end"
        raise RunErrors([EunomiaError(rule, value=f"a run that failed: {each.error}") for each in failed])
    if not seeds:
        rule = "runs that are compared must have seeds in common"
        raise InputError(rule, value=f"{_seeds(first)} and {_seeds(second)}")
    alike = _alike(first, seeds) and _alike(second, seeds)
    compared = seeds[:1] if alike else seeds
    rows = [_compared(metric, first, second, compared) for metric in METRICS]
    known = [row for row in rows if row is not None]
    notes = [line for side in (first, second) for line in _faults(side)]
    others = _differences(first, second)
    assumed = _assumed(first, second)
    if as_json:
        typer.echo(
            json.dumps(
                _facts(first, second, seeds, known) | {"differs": others, "faults": notes, "assumed": assumed},
                ensure_ascii=False,
            )
        )
    else:
        typer.echo(
            "\n".join(
                [
                    *assumed,
                    *_lines(first, second, compared, known),
                    *_seeds_change_nothing(seeds, compared),
                    *others,
                    *notes,
                ]
            )
        )
    return ANSWER_IS_NO if any(_failures(side) for side in (first, second)) else OK


# -- which two


def sides(runs: list[str]) -> tuple[Side, Side]:
    """Return the two policies to compare.

    Raises:
        InputError: not a result folder, or not two policies.
    """
    found = [side for text in runs for side in _sides(text)]
    if len(found) != 2:
        known = [f"{side.folder}:{side.policy}" for side in found]
        raise InputError("a comparison must be of two policies", value=f"{len(found)}: {list_of(known)}")
    first, second = found
    if first.policy == second.policy:
        names = (first.folder.name, second.folder.name)
        if names[0] == names[1]:
            names = (str(first.folder), str(second.folder))
        return _renamed(first, names[0]), _renamed(second, names[1])
    return first, second


def _sides(text: str) -> list[Side]:
    folder, wanted = Path(text), ""
    if not folder.is_dir():
        before, _, wanted = text.rpartition(":")
        folder = Path(before or text)
    path = folder / "summary.csv"
    if not path.is_file():
        rule = "a run must be a folder with a summary.csv, such as eunomia simulate leaves"
        raise InputError(rule, value=f'"{text}"')
    metrics = pl.read_csv(path, infer_schema_length=None)
    policies = metrics["policy"].unique(maintain_order=True).to_list() if metrics.width else []
    if wanted and wanted not in policies:
        raise InputError(f"a policy of {folder} must be one of {', '.join(policies)}", value=f'"{wanted}"')
    facts = folder / "run.json"
    read = RunFacts.from_json(facts.read_text(encoding="utf-8")) if facts.is_file() else None
    if "failure" in metrics.columns:
        metrics = metrics.filter(pl.col("failure").is_null())
    return [
        Side(folder=folder, policy=policy, name=policy, metrics=metrics.filter(pl.col("policy") == policy), facts=read)
        for policy in policies
        if not wanted or policy == wanted
    ]


def _renamed(side: Side, name: str) -> Side:
    return Side(folder=side.folder, policy=side.policy, name=name, metrics=side.metrics, facts=side.facts)


def _failures(side: Side) -> list[FailedRun]:
    """Return the policy's runs that failed."""
    return [] if side.facts is None else [each for each in side.facts.failures if each.policy == side.policy]


def _faults(side: Side) -> list[str]:
    """Return a line for each run of the policy that failed, or in which faults of a plugin were tolerated."""
    failed = [f"{side.name}, seed {each.seed}: failed: {each.error}" for each in _failures(side)]
    known = {"faults", "first_fault", "fallback_round"} <= set(side.metrics.columns)
    return failed + (faults_told(side.metrics) if known else [])


def _seeds(side: Side) -> str:
    return ", ".join(map(str, side.metrics["seed"].to_list())) or "none"


# -- what is found


@value
class Compared:
    """A metric of both policies, and the second's difference from the first: relative, or absolute for shares."""

    metric: Metric
    first: float
    second: float
    difference: Interval
    verdict: str


def _compared(metric: Metric, first: Side, second: Side, seeds: list[int]) -> Compared | None:
    one, other = _values(first, metric.name), _values(second, metric.name)
    pairs = [
        (a, b)
        for a, b in ((one.get(seed), other.get(seed)) for seed in seeds)
        if a is not None and b is not None and (metric.share or a != 0.0 or b == 0.0)
    ]
    differences = [b - a if metric.share else (b / a - 1.0 if a else 0.0) for a, b in pairs]
    found = interval(differences)
    if found is None:
        return None
    means = [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
    return Compared(
        metric=metric,
        first=means[0],
        second=means[1],
        difference=found,
        verdict=_verdict(metric, found, first.name, second.name),
    )


def _alike(side: Side, seeds: list[int]) -> bool:
    """Return whether several seeds gave equal values of every metric, so that nothing in the run is random."""
    found = [_values(side, metric.name) for metric in METRICS]
    return len(seeds) > 1 and all(len({values.get(seed) for seed in seeds}) == 1 for values in found)


def _seeds_change_nothing(seeds: list[int], compared: list[int]) -> list[str]:
    if len(seeds) == len(compared):
        return []
    return [
        f"All {len(seeds)} seeds gave the same values: nothing in these runs is drawn by chance, so one is compared."
    ]


def _values(side: Side, name: str) -> Mapping[int, float | None]:
    if name not in side.metrics.columns:
        return {}
    column = side.metrics[name].cast(pl.Float64, strict=False)
    return dict(zip(side.metrics["seed"].to_list(), column.to_list(), strict=True))


def _verdict(metric: Metric, difference: Interval, first: str, second: str) -> str:
    """State which policy is better as far as the seeds show; a single seed cannot show chance."""
    if difference.count > 1 and difference.holds_zero:
        return "no difference shown"
    if abs(difference.mean) < NOTHING:
        return "equal"
    better = second if (difference.mean > 0.0) == metric.more_is_better else first
    return f"{better} is better" + (" (one seed)" if difference.count == 1 else "")


# -- the screen


def _lines(first: Side, second: Side, seeds: list[int], rows: list[Compared]) -> list[str]:
    heading = f"{_same(first, second)}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    label = max(33, len(heading) + 2)
    widths = [max(8, len(side.name) + 2) for side in (first, second)]
    against = f"{second.name} against {first.name}"
    interval_told = " (95 % interval)" if len(seeds) > 1 else ""
    head = f"{heading:<{label}}{first.name:>{widths[0]}}{second.name:>{widths[1]}}   {against}{interval_told}"
    return [head, *(_line(row, label, widths) for row in rows)]


def _line(row: Compared, label: int, widths: list[int]) -> str:
    scale = 100.0 if row.metric.share else 1 / 3600 if row.metric.name == "slot_seconds" else 1.0
    shown = [f"{each * scale:.{row.metric.digits}f}" for each in (row.first, row.second)]
    both = f"{shown[0]:>{widths[0]}}{shown[1]:>{widths[1]}}"
    return f"{row.metric.label:<{label}}{both}   {_difference(row)}   {row.verdict}"


def _difference(row: Compared) -> str:
    unit = "pts" if row.metric.share else "%"
    mean = (
        f"{row.difference.mean * 100:+6.1f} {unit:<3}" if row.metric.share else f"{row.difference.mean * 100:+6.1f} %"
    )
    if row.difference.low is None or row.difference.high is None:
        return mean
    low, high = (f"{each * 100:+.1f}" for each in (row.difference.low, row.difference.high))
    return f"{mean} ({low:>5} to {high:>5})"


def _same(first: Side, second: Side) -> str:
    """List the settings that both runs share; only the policies should differ."""
    if first.facts is None or second.facts is None:
        return "trace and cluster not known"
    trace = [(each.sha256) for each in first.facts.inputs] == [(each.sha256) for each in second.facts.inputs]
    cluster = first.facts.cluster == second.facts.cluster
    judged = first.facts.rho == second.facts.rho
    others = [word for word, same in (("TRACE", trace), ("CLUSTER", cluster), ("ρ", judged)) if not same]
    return f"ANOTHER {' AND '.join(others)}" if others else "same trace and cluster"


def _differences(first: Side, second: Side) -> list[str]:
    """List the spec fields other than policies in which the runs differ, one line each."""
    if first.facts is None or second.facts is None or not (first.facts.spec and second.facts.spec):
        return []
    one, other = first.facts.spec, second.facts.spec
    return [
        f"{name} differs: {_written(one.get(name))} against {_written(other.get(name))}"
        for name in WORLD
        if one.get(name) != other.get(name)
    ]


def _written(given: object) -> str:
    return "the default" if given is None else ", ".join(map(str, given)) if isinstance(given, list) else str(given)


def _assumed(first: Side, second: Side) -> list[str]:
    """Return what both runs assumed of speeds, or what each of them did."""
    one, other = (assumption_sentences(side.facts.assumptions) if side.facts else [] for side in (first, second))
    if one == other:
        return one
    return [f"{side.name}: {line}" for side, lines in ((first, one), (second, other)) for line in lines]


def _facts(first: Side, second: Side, seeds: list[int], rows: list[Compared]) -> dict[str, Any]:
    return {
        "schema": "eunomia/compare@1",
        "first": {"run": str(first.folder), "policy": first.policy},
        "second": {"run": str(second.folder), "policy": second.policy},
        "seeds": seeds,
        "same": _same(first, second) == "same trace and cluster",
        "confidence": 0.95,
        "rows": [
            {
                "metric": row.metric.name,
                "first": row.first,
                "second": row.second,
                "difference": row.difference.mean,
                "low": row.difference.low,
                "high": row.difference.high,
                "relative": not row.metric.share,
                "verdict": row.verdict,
            }
            for row in rows
        ],
    }
