"""``eunomia compare``: compares two simulated policies metric by metric, paired by draw."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import polars as pl
import typer

from eunomia.errors import EunomiaError, InputError, RunErrors
from eunomia.model.shapes import builds, value
from eunomia.words import list_of
from eunomia_appmaster.csv_cells import plain_frame
from eunomia_testbed.commands.table import faults_told
from eunomia_testbed.evidence.draws import NO_DRAWS, DrawKind, Draws, draws_of_seeds
from eunomia_testbed.evidence.evidence import RESAMPLES, Evidence
from eunomia_testbed.evidence.intervals import Estimate
from eunomia_testbed.evidence.wording import method
from eunomia_testbed.results.assumptions import assumption_sentences
from eunomia_testbed.results.facts import FailedRun, RunFacts


@value
class Metric:
    """A metric to compare, by the change in per cent of the first policy's value, or for shares in points."""

    name: str
    label: str
    digits: int = 0
    share: bool = False
    more_is_better: bool = False
    difference: bool = False
    """Whether policies are compared by difference instead of by ratio, since the metric may be 0."""


def _of_rho() -> list[Metric]:
    """Return the metrics for each kind of ρ: worst, 99th and 90th percentile, and the fraction of apps above 1."""
    shown = {"themis": "ρ", "static": "static ρ", "contention": "contention ρ"}
    ways = (("worst", "worst {}", False), ("p99", "p99 of {}", False), ("p90", "p90 of {}", False))
    return [
        Metric(name=f"rho_{kind}_{way}", label=label.format(name), digits=0 if share else 2, share=share)
        for kind, name in shown.items()
        for way, label, share in (*ways, ("above_1_share", "{} > 1 %", True))
    ]


METRICS: Final = (
    Metric(name="jct_mean_seconds", label="mean JCT s"),
    Metric(name="jct_p99_seconds", label="p99 JCT s"),
    Metric(name="makespan_seconds", label="makespan s"),
    *_of_rho(),
    Metric(name="rho_unfair_share", label="unfair %", digits=1, share=True),
    Metric(name="utilization", label="in use %", digits=1, share=True, more_is_better=True),
    Metric(name="work_while_waiting", label="work while waiting", digits=2, more_is_better=True),
    Metric(name="slot_seconds", label="GPU hours"),
    Metric(name="moves_per_job", label="moves a job", digits=2, difference=True),
)


NOTHING: Final = 0.0005
"""Largest relative difference that counts as no difference."""


WORLD: Final = (
    *("speeds", "unknown_models", "throughputs", "rules", "rule", "cost", "failures", "machines_plan"),
    *("know", "error", "lie", "agents", "until", "loads", "options"),
)
"""Fields of the spec that must be equal in a comparison of policies."""


OK: Final = 0
ANSWER_IS_NO: Final = 1


@builds
class Side:
    """One of the two policies in a comparison, with the data of its run."""

    folder: Path
    policy: str
    name: str
    metrics: pl.DataFrame
    """Metrics of the policy, a row for each seed."""
    facts: RunFacts | None
    resamples: pl.DataFrame
    """Metrics of the policy, a row for each resample of the trace; empty: none was made."""


def compare(
    runs: Annotated[
        list[str], typer.Argument(help="Two result folders, or FOLDER:POLICY where a folder holds several policies.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as one JSON object.")] = False,
) -> int:
    """Compare two simulated policies, with intervals over seeds, resamples or traces."""
    first, second = sides(runs)
    seeds = _common_seeds(first, second)
    failed = [each for side in (first, second) for each in _failures(side)]
    if not seeds and failed:
        rule = "policies that are compared must have come to their end"
        raise RunErrors([EunomiaError(rule, value=f"a run that failed: {each.error}") for each in failed])
    if not seeds:
        rule = "runs that are compared must have seeds in common"
        raise InputError(rule, value=f"{_seeds(first)} and {_seeds(second)}")
    alike = _alike(first, seeds) and _alike(second, seeds)
    compared = seeds[:1] if alike else seeds
    evidence = _joint(first, second, compared)
    rows = [_compared(metric, first, second, evidence) for metric in METRICS]
    known = [row for row in rows if row is not None]
    notes = [line for side in (first, second) for line in _faults(side)]
    others = _differences(first, second)
    assumed = _assumed(first, second)
    if as_json:
        typer.echo(
            json.dumps(
                _facts(first, second, seeds, evidence, known)
                | {"differs": others, "faults": notes, "assumed": assumed},
                ensure_ascii=False,
            )
        )
    else:
        typer.echo(
            "\n".join(
                [
                    *assumed,
                    *_lines(first, second, evidence.draws, known),
                    *_seeds_change_nothing(seeds, compared),
                    *([] if alike else [method(evidence.draws)]),
                    *others,
                    *notes,
                ]
            )
        )
    return ANSWER_IS_NO if any(_failures(side) for side in (first, second)) else OK


def _common_seeds(first: Side, second: Side) -> list[int]:
    """Return the seeds to compare: those of both sides, or if one policy has no randomness, those of the other."""
    mine, others = (set(side.metrics["seed"].to_list()) for side in (first, second))
    if _is_fixed(first) != _is_fixed(second) and mine and others:
        return sorted(others if _is_fixed(first) else mine)
    return sorted(mine & others)


def _is_fixed(side: Side) -> bool:
    return side.facts is not None and side.policy in side.facts.draws.fixed


# -- the two sides


def sides(runs: list[str]) -> tuple[Side, Side]:
    """Return the two policies to compare.

    Raises:
        InputError: a path is not a result folder, or the arguments do not name two policies.
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
    metrics = plain_frame(pl.read_csv(path, infer_schema_length=None))
    policies = metrics["policy"].unique(maintain_order=True).to_list() if metrics.width else []
    if wanted and wanted not in policies:
        raise InputError(f"a policy of {folder} must be one of {', '.join(policies)}", value=f'"{wanted}"')
    facts = folder / "run.json"
    read = RunFacts.from_json(facts.read_text(encoding="utf-8")) if facts.is_file() else None
    if "failure" in metrics.columns:
        metrics = metrics.filter(pl.col("failure").is_null())
    drawn = pl.read_parquet(folder / RESAMPLES) if (folder / RESAMPLES).is_file() else metrics.clear()
    return [
        Side(
            folder=folder,
            policy=policy,
            name=policy,
            metrics=metrics.filter(pl.col("policy") == policy),
            facts=read,
            resamples=drawn.filter(pl.col("policy") == policy),
        )
        for policy in policies
        if not wanted or policy == wanted
    ]


def _renamed(side: Side, name: str) -> Side:
    return dataclasses.replace(side, name=name)


def _failures(side: Side) -> list[FailedRun]:
    """Return the policy's runs that failed."""
    return [] if side.facts is None else [each for each in side.facts.failures if each.policy == side.policy]


def _faults(side: Side) -> list[str]:
    """Return a line for each of the policy's runs that failed or tolerated faults of a plugin."""
    failed = [f"{side.name}, seed {each.seed}: failed: {each.error}" for each in _failures(side)]
    known = {"faults", "first_fault", "fallback_round"} <= set(side.metrics.columns)
    return failed + (faults_told(side.metrics) if known else [])


def _seeds(side: Side) -> str:
    return ", ".join(map(str, side.metrics["seed"].to_list())) or "none"


# -- the comparison


def _draws(side: Side) -> Draws:
    return draws_of_seeds(side.metrics.height) if side.facts is None else side.facts.draws


def _joint(first: Side, second: Side, seeds: list[int]) -> Evidence:
    """Return the joint evidence of both sides, with the sides' names in place of the policies' names.

    Raises:
        InputError: the runs are draws of different kinds, or resamples of different traces.
    """
    one, other = _draws(first), _draws(second)
    resampled = bool({DrawKind.RESAMPLES, DrawKind.WINDOWS} & {one.kind, other.kind})
    if (resampled or DrawKind.TRACES in (one.kind, other.kind)) and _drawn_as(one) != _drawn_as(other):
        rule = "runs that are compared must be draws of one kind: the same resamples of one trace, or seeds"
        raise InputError(rule, value=f"{first.name}: {_drawn_as(one)}; {second.name}: {_drawn_as(other)}")
    if resampled:
        drawn = [_called(side, side.resamples) for side in (first, second)]
        if one.kind is DrawKind.WINDOWS:
            return Evidence(draws=one, drawn=pl.concat(drawn, how="diagonal"))
        whole = [_called(side, side.metrics) for side in (first, second)]
        return Evidence(draws=one, drawn=pl.concat(drawn, how="diagonal"), whole=pl.concat(whole, how="diagonal"))
    chosen = [
        _called(side, side.metrics if _is_fixed(side) else side.metrics.filter(pl.col("seed").is_in(seeds)))
        for side in (first, second)
    ]
    kind = one.kind if one.kind is other.kind and one.kind is not DrawKind.ONE else DrawKind.SEEDS
    fixed = tuple(side.name for side in (first, second) if _is_fixed(side))
    draws = dataclasses.replace(one, kind=kind, count=len(seeds), fixed=fixed) if len(seeds) > 1 else NO_DRAWS
    return Evidence(draws=draws, drawn=pl.concat(chosen, how="diagonal_relaxed"))


def _called(side: Side, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(policy=pl.lit(side.name))


def _drawn_as(draws: Draws) -> str:
    """Return as text how the runs were drawn; comparable runs have equal texts."""
    if draws.kind is DrawKind.RESAMPLES:
        block = f"{draws.block_apps} apps" if draws.block_seconds is None else f"{draws.block_seconds:g} s"
        return f"resamples of {draws.source} in blocks of {block}, seed {draws.seed}"
    if draws.kind is DrawKind.WINDOWS:
        return f"{draws.count} windows of {draws.source}"
    if draws.kind is DrawKind.ONE:
        return "one run"
    return f"traces {draws.source}" if draws.kind is DrawKind.TRACES else draws.kind.value


@value
class Compared:
    """The values of a metric for both policies, and the difference of the second from the first.

    The difference is ln(second / first), or second - first for shares and metrics that may be 0.
    """

    metric: Metric
    first: float
    second: float
    difference: Estimate
    relative: bool
    verdict: str


def _compared(metric: Metric, first: Side, second: Side, evidence: Evidence) -> Compared | None:
    figures = [evidence.figure(side.name, metric.name) for side in (first, second)]
    relative = not metric.share and not metric.difference
    compare = evidence.ratio if relative else evidence.difference
    found = compare(first.name, second.name, metric.name)
    if found is None or figures[0] is None or figures[1] is None:
        return None
    return Compared(
        metric=metric,
        first=figures[0].value,
        second=figures[1].value,
        difference=found,
        relative=relative,
        verdict=_verdict(metric, found, first.name, second.name),
    )


def _alike(side: Side, seeds: list[int]) -> bool:
    """Return whether several seeds gave equal values of every metric, so that nothing in the runs is random."""
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


def _verdict(metric: Metric, difference: Estimate, first: str, second: str) -> str:
    """Return as text which policy is better, if the interval shows it; without one, only whether both are equal."""
    if not difference.known:
        return "equal" if abs(difference.value) < NOTHING else ""
    if abs(difference.value) < NOTHING and difference.low == difference.high:
        return "equal"
    if difference.holds_zero:
        return "no difference shown"
    if difference.near_zero:
        return "tied, an end is near 0"
    better = second if (difference.value > 0.0) == metric.more_is_better else first
    return f"{better} is better"


# -- the screen


def _lines(first: Side, second: Side, draws: Draws, rows: list[Compared]) -> list[str]:
    what = "one run" if not draws.shows_chance else f"{draws.count} {draws.kind.value}"
    heading = f"{_same(first, second)}, {what}"
    label = max(33, len(heading) + 2)
    widths = [max(8, len(side.name) + 2) for side in (first, second)]
    against = f"{second.name} against {first.name}"
    interval_told = " (95 % interval)" if draws.shows_chance else ""
    head = f"{heading:<{label}}{first.name:>{widths[0]}}{second.name:>{widths[1]}}   {against}{interval_told}"
    return [head, *(_line(row, label, widths) for row in rows)]


def _line(row: Compared, label: int, widths: list[int]) -> str:
    scale = 100.0 if row.metric.share else 1 / 3600 if row.metric.name == "slot_seconds" else 1.0
    shown = [f"{each * scale:.{row.metric.digits}f}" for each in (row.first, row.second)]
    both = f"{shown[0]:>{widths[0]}}{shown[1]:>{widths[1]}}"
    return f"{row.metric.label:<{label}}{both}   {_difference(row)}   {row.verdict}"


def _difference(row: Compared) -> str:
    ends = (row.difference.low, row.difference.high)
    unit = "%" if row.relative else "pts" if row.metric.share else ""
    mean = (
        f"{_number(row, row.difference.value):>7} {unit:<3}".rstrip()
        if unit != "pts"
        else (f"{_number(row, row.difference.value):>7} pts")
    )
    if ends[0] is None or ends[1] is None:
        return mean
    return f"{mean} ({_number(row, ends[0]):>5} to {_number(row, ends[1]):>5})"


def _number(row: Compared, difference: float) -> str:
    """Return a difference as text, in per cent, percentage points or the metric's own unit."""
    if row.relative:
        return f"{100.0 * math.expm1(difference):+.1f}"
    return f"{difference * 100:+.1f}" if row.metric.share else f"{difference:+.2f}"


def _same(first: Side, second: Side) -> str:
    """Return as text whether both runs have the same trace, cluster and kind of ρ; only policies should differ."""
    if first.facts is None or second.facts is None:
        return "trace and cluster not known"
    trace = [(each.sha256) for each in first.facts.inputs] == [(each.sha256) for each in second.facts.inputs]
    cluster = first.facts.cluster == second.facts.cluster
    judged = first.facts.rho == second.facts.rho
    others = [word for word, same in (("TRACE", trace), ("CLUSTER", cluster), ("ρ", judged)) if not same]
    return f"ANOTHER {' AND '.join(others)}" if others else "same trace and cluster"


def _differences(first: Side, second: Side) -> list[str]:
    """Return a line for each field of ``WORLD`` in which the specs of the two runs differ."""
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
    """Return the assumptions on speeds as sentences: once if both runs share them, otherwise by side."""
    one, other = (assumption_sentences(side.facts.assumptions) if side.facts else [] for side in (first, second))
    if one == other:
        return one
    return [f"{side.name}: {line}" for side, lines in ((first, one), (second, other)) for line in lines]


def _facts(first: Side, second: Side, seeds: list[int], evidence: Evidence, rows: list[Compared]) -> dict[str, Any]:
    return {
        "schema": "eunomia/compare@1",
        "first": {"run": str(first.folder), "policy": first.policy},
        "second": {"run": str(second.folder), "policy": second.policy},
        "seeds": seeds,
        "same": _same(first, second) == "same trace and cluster",
        "draws": evidence.draws.to_plain(),
        "confidence": 0.95,
        "rows": [
            {
                "metric": row.metric.name,
                "first": row.first,
                "second": row.second,
                "difference": _plain(row, row.difference.value),
                "low": _plain(row, row.difference.low),
                "high": _plain(row, row.difference.high),
                "relative": row.relative,
                "verdict": row.verdict,
            }
            for row in rows
        ],
    }


def _plain(row: Compared, difference: float | None) -> float | None:
    """Return a difference for JSON: second / first - 1 for relative metrics."""
    return None if difference is None else math.expm1(difference) if row.relative else difference
