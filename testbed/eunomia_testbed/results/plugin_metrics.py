"""Metrics that plugins declare by the hook ``eunomia_metrics``: checks them, and adds them to a run's tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import polars as pl

from eunomia.contract.metrics import Metric
from eunomia.errors import EunomiaError, InputError, PluginError
from eunomia.model.shapes import value
from eunomia.platform.checking import hooks_of
from eunomia.platform.registry import DEFAULT_PLUGINS, Registry
from eunomia_testbed.results.added import Added
from eunomia_testbed.results.columns import AGGREGATES, Better, ColumnSpec, Figure
from eunomia_testbed.results.figures import all_of
from eunomia_testbed.results.summary import Summary
from eunomia_testbed.results.tables import TABLES, schema_of

HOOK: Final = "eunomia_metrics"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_OF_PLUGINS: Final = {aggregate: aggregate for aggregate in AGGREGATES if aggregate != "time_mean"}


@value
class PluginMetric:
    """A metric and the plugin that declares it."""

    plugin: str
    metric: Metric


def metrics_of(registry: Registry) -> tuple[PluginMetric, ...]:
    """Return the metrics of all plugins in the registry, ordered by plugin.

    Raises:
        InputError: a plugin fails, or one of its metrics is invalid.
    """
    found = [each for name in registry.names if name not in DEFAULT_PLUGINS for each in _metrics_of(name, registry)]
    known: dict[str, str] = {}
    for each in found:
        before = known.setdefault(each.metric.name, each.plugin)
        if before != each.plugin:
            rule = f'metrics must have names of their own, and plugin "{before}" has this one'
            raise InputError(rule, value=f'"{each.metric.name}"', place=each.plugin)
    return tuple(found)


def added_by(registries: Iterable[Registry]) -> Added:
    """Return the declarations of the columns that plugins add, by table and name."""
    added: dict[str, dict[str, ColumnSpec]] = {}
    for registry in dict.fromkeys(registries):
        for each in metrics_of(registry):
            added.setdefault(each.metric.table, {})[each.metric.name] = _declared(each.metric)
    return added


def with_metrics(tables: Mapping[str, pl.DataFrame], metrics: Sequence[PluginMetric]) -> Mapping[str, pl.DataFrame]:
    """Return the tables with the columns of plugins; metrics of tables that the run lacks are skipped."""
    return _Measured(tables, metrics) if metrics else tables


class _Measured(Mapping[str, pl.DataFrame]):
    """Tables with the columns of plugins, computed on access."""

    def __init__(self, tables: Mapping[str, pl.DataFrame], metrics: Sequence[PluginMetric]) -> None:
        self._tables, self._metrics = tables, metrics

    def __getitem__(self, table: str) -> pl.DataFrame:
        frame = self._tables[table]
        mine = [each for each in self._metrics if each.metric.table == table]
        return frame.with_columns([_column(each, self._tables, frame.height) for each in mine])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _column(each: PluginMetric, tables: Mapping[str, pl.DataFrame], height: int) -> pl.Series:
    """Return a metric's values as a float64 column, with null for unknown values."""
    name = each.metric.name
    rule = f'metric "{name}" must be computed without an error'
    try:
        found = each.metric.compute(tables)
        series = found if isinstance(found, pl.Series) else pl.Series(name, found, strict=False)
        made = series.alias(name).cast(pl.Float64).fill_nan(None)
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise PluginError(rule, value=text, place=f"plugin {each.plugin}") from error
    if made.len() != height:
        rule = f'metric "{name}" must have one value for each row of {each.metric.table}'
        raise PluginError(rule, value=f"{made.len()} for {height} rows", place=f"plugin {each.plugin}")
    return made


def _metrics_of(name: str, registry: Registry) -> list[PluginMetric]:
    kind = registry.listed(name).plugin
    if kind is None or HOOK not in hooks_of(kind):
        return []
    try:
        given = list(registry.make(name, {}, alias=name, place=".".join).eunomia_metrics())
    except EunomiaError:
        raise
    except Exception as error:
        rule = f"{HOOK} must list metrics without an error"
        raise InputError(rule, value=f"{type(error).__name__}: {error}", place=f"plugin {name}") from error
    for metric in given:
        _check(metric, name)
    return [PluginMetric(plugin=name, metric=metric) for metric in given]


def _check(metric: Any, plugin: str) -> None:
    """Check a metric's type, name, table, unit, direction and figures; otherwise raise ``InputError``."""
    place = f"plugin {plugin}"
    if not isinstance(metric, Metric):
        raise InputError(f"{HOOK} must list eunomia.Metric", value=type(metric).__name__, place=place)
    if not _NAME.fullmatch(metric.name):
        raise InputError("a metric's name must match [a-z][a-z0-9_]*", value=f'"{metric.name}"', place=place)
    if metric.table not in TABLES:
        rule = f"a metric's table must be one of {', '.join(TABLES)}"
        raise InputError(rule, value=f'"{metric.table}"', place=place)
    if metric.name in schema_of(metric.table):
        rule = f"a metric must have a name that no column of {metric.table} has"
        raise InputError(rule, value=f'"{metric.name}"', place=place)
    if (metric.unit == "s") != metric.name.endswith("_seconds"):
        rule = 'a metric whose unit is "s", and no other, must have a name that ends with _seconds'
        raise InputError(rule, value=f'"{metric.name}" in "{metric.unit}"', place=place)
    if metric.better is not None and metric.better not in get_args(Better):
        raise InputError("better must be low, high or None", value=repr(metric.better), place=place)
    for aggregate in metric.summary:
        if aggregate not in _OF_PLUGINS:
            raise InputError(f"summary must be of {', '.join(_OF_PLUGINS)}", value=f'"{aggregate}"', place=place)
    taken = {*Summary.__dataclass_fields__, *(figure.name for _, _, _, figure in all_of())}
    for figure in _declared(metric).summary:
        if figure.name in taken:
            rule = "a figure of a metric must have a name that no column of summary.csv has"
            raise InputError(rule, value=f'"{figure.name}"', place=place)


def _declared(metric: Metric) -> ColumnSpec:
    stem = metric.name.removesuffix("_seconds")
    end = metric.name.removeprefix(stem)
    words = stem.replace("_", " ")
    figures = [
        Figure(
            name=f"{stem}_{aggregate}{end}",
            aggregate=_OF_PLUGINS[aggregate],
            label=f"{aggregate} {words}",
            better=metric.better,
        )
        for aggregate in _OF_PLUGINS
        if aggregate in metric.summary
    ]
    return ColumnSpec(unit=metric.unit, meaning=metric.meaning, summary=tuple(figures), better=metric.better)
