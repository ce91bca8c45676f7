"""A stranger's metric, brought by one file, is in the tables, the summary and the page."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import eunomia_testbed
from eunomia import Metric, hookimpl
from eunomia.errors import InputError
from eunomia.platform.registry import Registry
from eunomia_testbed.metrics.conformance import MetricsConformance
from eunomia_testbed.report import write_report
from eunomia_testbed.results import RunData, summarise
from eunomia_testbed.results.plugin_metrics import metrics_of, with_metrics

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-metric.md"
COMMAND = ("simulate", "--workload", "gavel", "--set", "gavel.jobs=12", "--set", "gavel.interarrival=200s",
           "--cluster", "1x8 V100", "--no-progress", "-q")  # fmt: skip


def plugin_of_the_guide(folder: Path) -> Path:
    """Writes the plugin file of the how-to."""
    path = folder / "tail.py"
    path.write_text(GUIDE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], encoding="utf-8")
    return path


def run(*arguments: str, before: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Runs `eunomia` in a process of its own, since a process keeps its plugins; ``before`` leads its path."""
    return subprocess.run(
        [sys.executable, "-m", "eunomia", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, before), *sys.path])},
        check=False,
    )


@pytest.mark.parametrize("processes", ["1", "2"])
def test_one_file_adds_a_metric_to_tables_summary_and_page(tmp_path: Path, processes: str) -> None:
    plugin, out = plugin_of_the_guide(tmp_path), tmp_path / "out"
    policies = ("--policy", "fifo", "--policy", "las", "--seeds", "0-1", "-j", processes)
    done = run(*COMMAND, *policies, "--plugin-path", str(plugin), "--out", str(out))
    assert done.returncode == 0, done.stderr
    read = RunData.load(out)
    expected = read.jobs["jct_seconds"] - read.jobs["run_seconds"]
    assert read.jobs["not_running_seconds"].to_list() == pytest.approx(expected.to_list())
    assert read.jobs["not_running_seconds"].max() > 0.0
    summary = pl.read_csv(out / "summary.csv")
    for row in summary.iter_rows(named=True):
        mine = read.only(row["policy"], row["seed"]).jobs["not_running_seconds"]
        assert row["not_running_mean_seconds"] == pytest.approx(mine.mean())
        assert row["not_running_p99_seconds"] == pytest.approx(mine.quantile(0.99, "linear"))
    page = write_report(out).read_text(encoding="utf-8")
    for label in ("mean not running", "p99 not running", "between arrival and finish, in s"):
        assert label in page
    declared = json.loads((out / "columns.json").read_text(encoding="utf-8"))
    assert declared["jobs"]["not_running_seconds"]["unit"] == "s"


def test_the_page_of_a_single_policy_shows_the_metric(tmp_path: Path) -> None:
    plugin, out = plugin_of_the_guide(tmp_path), tmp_path / "out"
    done = run(*COMMAND, "--policy", "fifo", "--plugin-path", str(plugin), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "Metrics of plugins" in (out / "report.html").read_text(encoding="utf-8")


def test_without_plugins_a_result_folder_declares_no_extra_columns(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(*COMMAND, "--policy", "fifo", "--no-report", "--out", str(out)).returncode == 0
    assert not (out / "columns.json").exists()


def test_a_metric_that_fails_ends_the_run_and_names_its_plugin(tmp_path: Path) -> None:
    plugin, out = tmp_path / "bad.py", tmp_path / "out"
    plugin.write_text(
        "from eunomia import Metric, hookimpl\n"
        "class Bad:\n"
        "    name, api = 'bad', 1\n"
        "    @hookimpl\n"
        "    def eunomia_metrics(self):\n"
        "        return [Metric(name='x', table='jobs', unit='', meaning='none', compute=self.wrong)]\n"
        "    def wrong(self, tables):\n"
        "        return tables['jobs']['nope']\n"
    )
    done = run(*COMMAND, "--policy", "fifo", "--plugin-path", str(plugin), "--out", str(out))
    assert done.returncode == 1
    assert 'metric "x" must be computed without an error' in done.stderr
    assert "plugin bad" in done.stderr
    assert "Traceback" not in done.stderr


def changed(path: Path, before: str, after: str) -> None:
    """Changes one place of a source file."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_adding_a_metric_to_the_tree_changes_two_source_files(tmp_path: Path) -> None:
    """Schema, frame, summary, reference and page follow from a declaration and a value."""
    tree = tmp_path / "testbed"
    shutil.copytree(Path(eunomia_testbed.__file__).parent, tree / "eunomia_testbed")
    declaration = (
        "    gang_seconds: Annotated[\n"
        "        float | None, col('s', 'gang times JCT', figure('gang_mean_seconds', 'mean', 'mean gang time'))\n"
        "    ] = None\n"
    )
    place = "    busy_slot_seconds: Annotated["
    changed(tree / "eunomia_testbed" / "results" / "tables.py", place, declaration + place)
    judged = tree / "eunomia_testbed" / "metrics" / "judged.py"
    field = "    busy_slot_seconds: Reals\n"
    changed(judged, field, f"    gang_seconds: Reals\n{field}")
    changed(
        judged,
        "            placement_score=score,\n",
        "            placement_score=score, gang_seconds=jct * jobs.most,\n",
    )
    out = tmp_path / "out"
    done = run(*COMMAND, "--policy", "fifo", "--policy", "las", "--out", str(out), before=[tree])
    assert done.returncode == 0, done.stderr
    jobs, summary = pl.read_parquet(out / "jobs.parquet"), pl.read_csv(out / "summary.csv")
    expected = (jobs["slots_asked"] * jobs["jct_seconds"]).to_list()
    assert jobs["gang_seconds"].to_list() == pytest.approx(expected)
    assert summary["gang_mean_seconds"].mean() == pytest.approx(jobs["gang_seconds"].mean())
    assert "mean gang time" in (out / "report.html").read_text(encoding="utf-8")


def test_a_metric_with_an_existing_column_name_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    plugin, out = plugin_of_the_guide(tmp_path), tmp_path / "out"
    changed(plugin, '"not_running_seconds"', '"jct_seconds"')
    done = run(*COMMAND, "--policy", "fifo", "--plugin-path", str(plugin), "--out", str(out))
    assert done.returncode == 2
    assert 'a metric must have a name that no column of jobs has, but got "jct_seconds" (plugin tail)' in done.stderr
    assert not out.exists()


class Jobs:
    """The share of each app's jobs that finished."""

    name, api = "finished_jobs", 1

    @hookimpl
    def eunomia_metrics(self) -> Sequence[Metric]:
        """One metric by app."""
        return [
            Metric(
                name="finished_share",
                table="apps",
                unit="share",
                meaning="of the app's jobs: those that finished",
                compute=self.shares,
                summary=("mean", "min"),
                better="high",
            )
        ]

    def shares(self, tables: Mapping[str, pl.DataFrame]) -> pl.Series:
        """By app."""
        done = tables["jobs"].group_by("app").agg((pl.col("state") == "finished").mean().alias("done"))
        return tables["apps"].join(done, on="app", how="left", maintain_order="left")["done"]


class TestFinishedJobs(MetricsConformance):
    """The suite holds for it."""

    plugin = Jobs


def plugin_with(**fields: Any) -> type[Any]:
    """A plugin with one metric, correct but for these fields."""
    right: dict[str, Any] = {"name": "x", "table": "jobs", "unit": "", "meaning": "ones"}
    right["compute"] = lambda tables: [1.0] * tables["jobs"].height

    class One:
        """A metric."""

        name, api = "one", 1

        @hookimpl
        def eunomia_metrics(self) -> Sequence[Metric]:
            return [Metric(**right | fields)]

    return One


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"name": "X"}, "a metric's name must match"),
        ({"table": "job"}, "a metric's table must be one of jobs, apps"),
        ({"name": "rho"}, "a metric must have a name that no column of jobs has"),
        ({"name": "x_seconds"}, 'a metric whose unit is "s", and no other'),
        ({"unit": "s"}, 'a metric whose unit is "s", and no other'),
        ({"summary": ("mode",)}, "summary must be of mean, median"),
        ({"better": "more"}, "better must be low, high or None"),
        ({"name": "queue_length", "summary": ("mean",)}, "a figure of a metric must have a name that no column"),
    ],
)
def test_a_metric_that_breaks_a_rule_is_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        metrics_of(Registry.find(installed=False).adding(plugin_with(**fields)))


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (lambda tables: [1.0], "must have one value for each row of jobs, but got 1 for 4 rows"),
        (lambda tables: ["a"] * 4, "must be computed without an error"),
    ],
)
def test_the_suite_finds_wrong_columns(compute: Any, said: str) -> None:
    suite = type("Suite", (MetricsConformance,), {"plugin": plugin_with(compute=compute)})()
    with pytest.raises(AssertionError, match=said):
        suite.test_every_row_gets_a_value()


def test_the_suite_finds_values_that_change() -> None:
    values = iter(range(100))
    suite = type("Suite", (MetricsConformance,), {})()
    type(suite).plugin = plugin_with(compute=lambda tables: [next(values)] * tables["jobs"].height)
    with pytest.raises(AssertionError, match="must give equal values for equal tables"):
        suite.test_equal_tables_give_equal_values()


def test_two_plugins_cannot_use_the_same_metric_name() -> None:
    other = type("Other", (plugin_with(),), {"name": "other"})
    with pytest.raises(InputError, match='names of their own, and plugin "one" has this one'):
        metrics_of(Registry.find(installed=False).adding(plugin_with(), other))


def test_a_table_that_a_run_lacks_gets_no_metric() -> None:
    metrics = metrics_of(Registry.find(installed=False).adding(plugin_with(table="queue")))
    tables = with_metrics({"jobs": pl.DataFrame({"job": ["a"]})}, metrics)
    assert [frame.columns for frame in tables.values()] == [["job"]]


def test_figures_of_a_metric_come_after_those_of_the_summary(tmp_path: Path) -> None:
    plugin, out = plugin_of_the_guide(tmp_path), tmp_path / "out"
    assert run(*COMMAND, "--policy", "fifo", "--plugin-path", str(plugin), "--out", str(out)).returncode == 0
    assert summarise(RunData.load(out)).columns[-2:] == ["not_running_mean_seconds", "not_running_p99_seconds"]
