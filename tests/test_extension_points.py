"""A kind of transition, a trace format and an elasticity, each added to a copy of the tree, touch few source files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core/eunomia", "solvers/eunomia_solvers", "plugins/eunomia_plugins", "appmaster/eunomia_appmaster",
            "engines/eunomia_engines", "hpo_adapters/eunomia_hpo_adapters", "testbed/eunomia_testbed")  # fmt: skip


class Tree:
    """A copy of the seven packages, and which of its files were changed or added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for package in PACKAGES:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, folder / package, ignore=ignore)

    def change(self, name: str, before: str, after: str) -> None:
        """Changes one place of a source file."""
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, (before, text.count(before))
        path.write_text(text.replace(before, after), encoding="utf-8")
        self.touched.add(name)

    def add(self, name: str, text: str) -> None:
        """Adds a source file."""
        (self.folder / name).write_text(text, encoding="utf-8")
        self.touched.add(name)

    def simulate(self, *arguments: str) -> Path:
        """Runs `eunomia simulate` with the copy's code; returns the folder of its results."""
        return simulated(
            self.folder / "out", *arguments, roots=[str(self.folder / each.split("/")[0]) for each in PACKAGES]
        )


def simulated(out: Path, *arguments: str, roots: list[str] | None = None) -> Path:
    """Runs `eunomia simulate` in a process of its own, since a process keeps its plugins."""
    command = [sys.executable, "-m", "eunomia", "simulate", *arguments, "--no-progress", "-q", "--out", str(out)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*(roots or []), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


ELASTIC = "job,arrival_seconds,least_gpus,most_gpus,iterations,seconds_per_iteration\n" + "".join(
    f"j{job},{job * 40},1,{1 + job % 8},{200 + 90 * (job % 5)},1\n" for job in range(20)
)
HALF = '''"""Every job runs at half its most GPUs."""

import numpy as np

from eunomia import Contract, Feature, Menus, Stage, hookimpl
from eunomia_plugins.elasticity.curves import linear_curves, one_gpu_rate


class Half:
    name, api = "half", 1
    contracts = {Stage.ELASTICITY: Contract(gives=frozenset({Feature.RATES}))}

    @hookimpl
    def eunomia_elasticity(self, snapshot):
        rows = np.arange(snapshot.jobs.most.size, dtype=np.int32)
        points = linear_curves(rows, snapshot.jobs.most // 2, one_gpu_rate(snapshot, rows))
        curve = np.full(rows.size, -1, np.int32)
        curve[snapshot.active] = snapshot.active
        return Menus(curve=curve, points=points, one_size=False)
'''
PROFILE = 'extends = "default"\n\n[stages]\nelasticity = "half"\n'
TRACE = "job a at 10 for 100\njob b at 20 for 50\n"
OWN_TRACE = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration\n" + "".join(
    f"{job},{at},4,{iterations},1\n" for job, at, iterations in (("a", 0, 100), ("b", 10, 50))
)
READER = '''"""A line a job: its name, its arrival in seconds and its iterations, on one GPU."""

from eunomia_testbed.traces.own import OwnReader
from eunomia_testbed.traces.source import TraceSource


class SentenceReader:
    format = "sentence"

    def matches(self, name, head):
        return head.startswith("job ")

    def read(self, source, options):
        words = [line.split() for line in source.text.splitlines()]
        head = "job,arrival_seconds,most_gpus,iterations,seconds_per_iteration"
        rows = [head, *(f"{w[1]},{w[3]},1,{w[5]},1" for w in words)]
        return OwnReader().read(TraceSource(source.name, "\\n".join(rows).encode()), options)
'''


def half_of_a_gang(folder: Path, *arguments: str, tree: Tree | None = None) -> list[int]:
    """Sizes of the leases of two gangs of four under the elasticity ``half``."""
    trace, profile = folder / "trace.csv", folder / "half.toml"
    trace.write_text(OWN_TRACE, encoding="utf-8")
    profile.write_text(PROFILE, encoding="utf-8")
    given = (str(trace), "--cluster", "1x4 V100", "--policy", str(profile), *arguments)
    out = simulated(folder / "out", *given) if tree is None else tree.simulate(*given)
    return pl.read_parquet(out / "leases.parquet").group_by("job").len()["len"].to_list()


def test_adding_an_elasticity_to_the_tree_changes_two_source_files(tree: Tree, tmp_path: Path) -> None:
    tree.add("plugins/eunomia_plugins/elasticity/half.py", HALF)
    entry = '    "range": "eunomia_plugins.elasticity.range:Range",\n'
    registry = "core/eunomia/platform/registry.py"
    tree.change(registry, entry, entry + '    "half": "eunomia_plugins.elasticity.half:Half",\n')
    assert half_of_a_gang(tmp_path, tree=tree) == [2, 2]
    assert len(tree.touched) == 2


def test_an_elasticity_outside_of_the_tree_is_one_file(tmp_path: Path) -> None:
    plugin = tmp_path / "half.py"
    plugin.write_text(HALF, encoding="utf-8")
    assert half_of_a_gang(tmp_path, "--plugin-path", str(plugin)) == [2, 2]


def test_adding_a_trace_format_to_the_tree_changes_two_source_files(tree: Tree, tmp_path: Path) -> None:
    tree.add("testbed/eunomia_testbed/traces/sentence.py", READER)
    entry = '    "swf": "eunomia_testbed.traces.swf:SwfReader",\n'
    formats = "testbed/eunomia_testbed/traces/formats.py"
    tree.change(formats, entry, entry + '    "sentence": "eunomia_testbed.traces.sentence:SentenceReader",\n')
    trace = tmp_path / "jobs.txt"
    trace.write_text(TRACE, encoding="utf-8")
    out = tree.simulate(str(trace), "--cluster", "1x4 V100", "--policy", "fifo")
    assert pl.read_parquet(out / "jobs.parquet")["arrival_seconds"].to_list() == [10.0, 20.0]
    assert len(tree.touched) == 2


def test_adding_a_kind_of_transition_changes_at_most_three_source_files(tree: Tree, tmp_path: Path) -> None:
    """A job that gets more GPUs is stopped for a pause: a kind of its own, which the table of rounds leaves out."""
    trace = tmp_path / "elastic.csv"
    trace.write_text(ELASTIC, encoding="utf-8")
    arguments = (str(trace), "--cluster", "2x4 V100", "--policy", "max_min", "--cost", "join=5s", "--cost", "pause=8s")
    before = simulated(tmp_path / "before", *arguments)
    kinds = "core/eunomia/contract/decisions.py"
    entry = '    SUSPEND = "suspend", '
    effect = '    WIDEN = "widen", Effect(past="widened", charge=Charge.PAUSE, counted=False)\n'
    tree.change(kinds, entry, effect + entry)
    tree.change(kinds, "else TransitionKind.GROW", "else TransitionKind.WIDEN")
    after = tree.simulate(*arguments)
    grown = [pl.read_parquet(out / "rounds.parquet")["grown"].sum() for out in (before, after)]
    assert grown[0] > 0 == grown[1]
    ended = [pl.read_parquet(out / "jobs.parquet")["finish_seconds"].to_list() for out in (before, after)]
    assert ended[0] != ended[1] and None not in ended[1]
    assert len(tree.touched) <= 3
