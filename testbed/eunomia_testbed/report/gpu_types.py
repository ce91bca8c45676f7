"""Part on GPU types: GPU time, speed and waits of apps by type, and the apps that are slow because of their types."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from eunomia_testbed.report.part import Column, Json, Part, Table, kept_columns, rounded
from eunomia_testbed.report.sums import sums_by
from eunomia_testbed.report.view import View
from eunomia_testbed.report.words import count, duration
from eunomia_testbed.results import counting
from eunomia_testbed.results.gpu_types import AppOnTypes, apps_by_type, gpus_by_type, mean_speed

FEW_APPS: Final = 16
MOST_APPS: Final = 600
MOST_MODELS: Final = 6
"""Largest number of models that are shown separately on a GPU type; the others are summed."""
SUMS: Final = ("slot_seconds", "run_seconds", "wait_seconds")


def gpu_types(view: View) -> Part | None:
    """Make the page's part on GPU types; None: the cluster has one GPU type, or no lease is known."""
    rows = view.run.gpu_types
    gpus = gpus_by_type(view.run.facts)
    if rows.is_empty() or len({*gpus, *rows["gpu_type"]}) < 2:
        return None
    types = _types(view, gpus)
    apps = apps_by_type(view.run) or ()
    return Part(
        name="types",
        title="GPU types",
        question="Which apps ran where, and which are slow because of it?",
        html=_sentences(apps),
        data={"reference": _reference(rows), "types": types, "models": _models(view)},
        tables=[_type_table(view, types), _app_table(view, apps, [each["name"] for each in types])],
    )


def slow_sentence(apps: Sequence[AppOnTypes]) -> str:
    """Return a sentence on the number of apps slowed by their GPU types, and the app that lost most; empty: none."""
    slow = [each for each in apps if each.slow]
    if not slow:
        return ""
    most = max(slow, key=lambda each: each.lost_seconds)
    verb = "is" if len(slow) == 1 else "are"
    return (
        f"{len(slow):,} of {count(len(apps), 'app')} {verb} slow because of their GPU type: running on slower types "
        f"cost more time than waiting. The most: {most.app} lost {duration(most.lost_seconds)} of a run time of "
        f"{duration(most.run_seconds)}, {most.why}."
    )


def _sentences(apps: Sequence[AppOnTypes]) -> str:
    sentence = slow_sentence(apps) or ("No app is slow because of its GPU type." if apps else "")
    return f"<p>{html.escape(sentence)}</p>" if sentence else ""


def _reference(rows: pl.DataFrame) -> str | None:
    """Return the GPU type to which all speeds are relative; None: it is unknown, or differs between rows."""
    known = rows["reference_type"].drop_nulls().unique().to_list()
    return str(known[0]) if len(known) == 1 else None


def _types(view: View, gpus: Mapping[str, int]) -> list[Json]:
    """Return each type with its GPUs, fraction of time held, jobs, speed, and the mean wait of jobs for it."""
    rows, horizon = view.run.gpu_types, counting.horizon_seconds(view.run)
    sums = sums_by(rows, ["gpu_type"], *SUMS)
    found = {str(each["gpu_type"]): each for each in sums.iter_rows(named=True)}
    names = list(gpus) or sorted(found)
    types: list[Json] = []
    for name in names:
        mine = rows.filter(pl.col("gpu_type") == name)
        total = found.get(name, {})
        capacity = gpus.get(name, 0) * (horizon or 0.0)
        jobs = mine["job"].drop_nulls().n_unique()
        types.append(
            {
                "name": name,
                "gpus": gpus.get(name),
                "apps": mine["app"].n_unique(),
                "jobs": jobs,
                "slotSeconds": rounded(total.get("slot_seconds", 0.0), 2),
                "held": rounded(total.get("slot_seconds", 0.0) / capacity) if capacity else None,
                "speed": rounded(mean_speed(mine)),
                "run": rounded(total.get("run_seconds", 0.0), 2) if mine["run_seconds"].count() else None,
                "waited": rounded(total.get("wait_seconds", 0.0), 2),
                "wait": rounded(total.get("wait_seconds", 0.0) / jobs, 2) if jobs else None,
            }
        )
    return types


def _models(view: View) -> list[Json]:
    """Return GPU type, model and GPU-seconds; if a type has many models, the largest and the sum of the others."""
    known = view.run.jobs.select("job", "model").drop_nulls().unique("job", keep="first", maintain_order=True)
    joined = view.run.gpu_types.join(known, on="job", how="inner", maintain_order="left")
    if joined["model"].n_unique() < 2:
        return []
    sums = sums_by(joined, ["gpu_type", "model"], "slot_seconds")
    ordered = sums.sort("gpu_type", "slot_seconds", "model", descending=[False, True, False])
    found: list[Json] = []
    for name, mine in ordered.group_by("gpu_type", maintain_order=True):
        kind = str(name[0])
        head, rest = mine.head(MOST_MODELS), mine[MOST_MODELS:]
        found += [[kind, model, rounded(held, 2)] for model, held in head.select("model", "slot_seconds").iter_rows()]
        found += [[kind, f"{rest.height} others", rounded(sum(rest["slot_seconds"]), 2)]] if rest.height else []
    return found


def _type_table(view: View, types: Sequence[Json]) -> Table:
    rows: list[list[Json]] = [
        [
            each[name]
            for name in ("name", "gpus", "apps", "jobs", "slotSeconds", "held", "speed", "run", "waited", "wait")
        ]
        for each in types
    ]
    waits = view.waits["seconds"].sum() if view.waits.height else 0.0
    without = float(waits) - sum(each["waited"] for each in types)
    if without > 0.5:
        rows.append(["none: no GPU followed", *[None] * 7, rounded(without, 2), None])
    reference = _reference(view.run.gpu_types)
    columns = [
        Column(label="GPU type"),
        Column(label="GPUs", kind="number"),
        Column(label="apps", kind="number", hint="that held GPUs of this type"),
        Column(label="jobs", kind="number"),
        Column(label="GPU time", kind="seconds", digits=1, hint="held, busy or idle"),
        Column(label="held", kind="percent", hint="of the time of its GPUs"),
        Column(label=_speed_label(reference), kind="number", digits=2, hint="mean over the GPU time held"),
        Column(label="run time", kind="seconds", digits=1, hint="of all jobs"),
        Column(label="waited for it", kind="seconds", digits=1, hint="by all jobs, before they got GPUs of this type"),
        Column(label="a job", kind="seconds", digits=1, hint="mean wait before GPUs of this type"),
    ]
    return kept_columns(Table(title="By GPU type", columns=columns, rows=rows))


def _speed_label(reference: str | None) -> str:
    return f"speed against {reference}" if reference else "speed against its own type"


def _app_table(view: View, apps: Sequence[AppOnTypes], names: Sequence[str]) -> Table:
    """Return a row for each app with its GPU time by type; the apps that lost most to slower types come first."""
    rows, most = view.run.gpu_types, view.most(MOST_APPS)
    by_app = {each.app: each for each in apps}
    lost = {each.app: each.lost_seconds for each in apps}
    order = sorted(rows["app"].unique().to_list(), key=lambda app: (-lost.get(app, 0.0), app))
    shown = order[:most]
    few = rows.filter(pl.col("app").is_in(shown))
    held = {(app, kind): spent for app, kind, _, spent in sums_by(few, ["app", "gpu_type"], "slot_seconds").iter_rows()}
    models = _models_of(view, shown)
    listed: list[list[Json]] = []
    for app in shown:
        found = by_app.get(app)
        facts: list[object] = [app, models.get(app), *(held.get((app, name)) for name in names)]
        if found is None:
            facts += [None] * 5
        else:
            facts += [found.run_seconds, found.wait_seconds, found.speed_mean, found.lost_seconds, _why(found)]
        listed.append([rounded(each) for each in facts])
    columns = [
        Column(label="app", kind="app"),
        Column(label="model"),
        *(Column(label=f"on {name}", kind="seconds", digits=1, hint="GPU time held on this type") for name in names),
        Column(label="run time", kind="seconds", digits=1, hint="of its jobs"),
        Column(label="waited", kind="seconds", digits=1, hint="its jobs' waiting added up"),
        Column(label=_speed_label(_reference(rows)), kind="number", digits=2, hint="mean over the GPU time held"),
        Column(label="lost to its types", kind="seconds", digits=1, hint="of the run time; below 0: saved"),
        Column(label="slow because"),
    ]
    title = "Apps by GPU type" if len(order) <= most else f"Apps by GPU type, {len(shown)} of {len(order):,}"
    return kept_columns(Table(title=title, columns=columns, rows=listed, app=0, folded=len(shown) > FEW_APPS))


def _why(app: AppOnTypes) -> str | None:
    """Return type and speed of a slow app, such as ``K80 at 0.25 of V100``; None: its GPU types do not slow it down."""
    return f"{app.gpu_type} at {app.speed:.2f} of {app.reference_type}" if app.slow else None


def _models_of(view: View, apps: Sequence[str]) -> dict[str, str]:
    """Return the models that each app trains, as text."""
    mine = view.run.jobs.filter(pl.col("app").is_in(list(apps)) & pl.col("model").is_not_null())
    found = mine.group_by("app").agg(pl.col("model").unique().sort()).iter_rows()
    return {app: ", ".join(models) for app, models in found}
