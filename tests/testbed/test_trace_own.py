"""Eunomia's own traces: what is written reads back the same; and readers of strangers."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.hookspecs import hookimpl
from eunomia.platform.registry import Registry
from eunomia_testbed.traces import ReadOptions, TraceSource, read_trace, write_trace
from eunomia_testbed.traces.building import Jobs, build
from eunomia_testbed.traces.rows import Rows
from eunomia_testbed.workload import (
    AppColumns,
    JobColumns,
    Regime,
    SimulatedSearch,
    UserColumns,
    Workload,
)
from strength import examples

SAMPLES = Path(__file__).parent / "samples"


def searching() -> Workload:
    """Two apps, one a search of two trials that arrive apart, the other with batch sizes over time."""
    return Workload(
        name="w",
        users=UserColumns(id=["ann", "bob"], weight=np.array([2.0, 1.0])),
        apps=AppColumns(
            id=["s", "t"], user=np.array([1, 0]), weight=np.array([1.0, 3.0]), arrival_seconds=np.array([0.1, 7.0])
        ),
        jobs=JobColumns(
            id=["s/0", "t/0", "s/1"],
            app=np.array([0, 1, 0]),
            arrival_seconds=np.array([0.1, 7.0, 1e6 / 3]),
            least=np.array([1, 2, 1]),
            most=np.array([4, 2, 4]),
            iterations=np.array([100.0, 1e9 / 7, 100.0]),
            seconds_per_iteration=np.array([np.nan, 0.1, 1.0]),
            model=np.array([-1, 0, 1]),
            gpu_type=[None, "V100", None],
            batch_size=np.array([np.nan, 32.0, np.nan]),
            gpu_share=np.array([0.5, 1.0, 1.0]),
            adaptation=["static", "gns", "static"],
        ),
        models=("LM (batch size 10)", "ResNet, 50"),
        regimes={
            1: (
                Regime(iterations=5.0, batch_size=32.0, seconds_per_iteration=0.1),
                Regime(iterations=2.5, batch_size=64.0, seconds_per_iteration=np.nan),
            )
        },
        searches={0: SimulatedSearch(tuner="successive_halving", options={"eta": 2}, curves=((0.1, 1.0, 0.5),) * 2)},
        exclusive_seconds=np.array([1.5, np.nan, 2.0]),
        reference_type="v100",
    )


def assert_same(one: Workload, other: Workload) -> None:
    for part in ("users", "apps", "jobs"):
        for field in dataclasses.fields(getattr(one, part)):
            given, read = getattr(getattr(one, part), field.name), getattr(getattr(other, part), field.name)
            if isinstance(given, np.ndarray):
                np.testing.assert_array_equal(given, read, err_msg=field.name)
            else:
                assert (given is None and read is None) or list(given) == list(read), field.name
    assert one.models == other.models and one.searches == other.searches
    assert repr(one.regimes) == repr(other.regimes)  # NaN is not equal to itself
    assert one.reference_type == other.reference_type
    if one.exclusive_seconds is not None and other.exclusive_seconds is not None:
        np.testing.assert_array_equal(one.exclusive_seconds, other.exclusive_seconds)
    assert (one.exclusive_seconds is None) == (other.exclusive_seconds is None)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_written_trace_reads_back_the_same(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"w.{ending}"
    write_trace(searching(), path)
    read = read_trace(path, strict=True)
    assert read.source == "Eunomia" and not read.dropped
    assert_same(searching(), read)


def test_names_like_formulas_are_quoted_in_the_file_and_read_back(tmp_path: Path) -> None:
    workload = searching()
    workload.users.id[:] = ["'@bob", "=1+1"]
    workload.jobs.id[:] = ["+s/0", "-t/0", "+s/1"]
    workload.apps.id[:] = ["+s", "-t"]
    workload = dataclasses.replace(workload, models=("-1", "=cmd|x"))
    write_trace(workload, tmp_path / "w.csv")
    assert {line[:2] for line in (tmp_path / "w.csv").read_text().splitlines()[1:]} == {"'-", "'+"}
    assert_same(workload, read_trace(tmp_path / "w.csv", strict=True))


@pytest.mark.parametrize("name", ["shockwave.trace", "philly.csv", "openb_pods.csv", "gavel.trace"])
def test_traces_of_other_formats_can_be_written_in_the_format_of_eunomia(tmp_path: Path, name: str) -> None:
    workload = read_trace(SAMPLES / name)
    write_trace(workload, tmp_path / "own.csv")
    assert_same(workload, read_trace(tmp_path / "own.csv"))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1e6), st.integers(1, 64), st.floats(1e-3, 1e12), st.floats(1e-9, 1e6), st.sampled_from("ab ")
        ),
        min_size=1,
        max_size=20,
    )
)
def test_numbers_are_read_back_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple]) -> None:  # type: ignore[type-arg]
    arrivals, gpus, iterations, seconds, users = zip(*jobs, strict=True)
    workload = Workload.single_jobs(
        "w",
        ids=[f"j{number}" for number in range(len(jobs))],
        users=[f"user {user}".strip() for user in users],
        arrival_seconds=np.array(arrivals),
        gpus=np.array(gpus),
        iterations=np.array(iterations),
        seconds_per_iteration=np.array(seconds),
    )
    path = tmp_path_factory.mktemp("own") / "w.csv"
    write_trace(workload, path)
    assert_same(workload, read_trace(path))


def test_a_table_made_by_hand_needs_four_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job,arrival_seconds,most_gpus,iterations\na,5,2,100\nb,1,1,50\n")
    read = read_trace(tmp_path / "t.csv")
    assert list(read.jobs.id) == ["b/0", "a/0"] and list(read.users.id) == ["all"]
    assert np.isnan(read.jobs.seconds_per_iteration).all() and read.jobs.least.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("least_gpus", "3", "least_gpus must be at most most_gpus"),
        ("gpu_share", "1.5", "gpu_share must be at most 1"),
        ("gpu_share", "0", "gpu_share must be above 0"),
        ("seconds_per_iteration", "-1", "seconds_per_iteration must be above 0"),
        ("regimes", "[[1]]", "regimes must be JSON as the reference says"),
        ("regimes", "[]", "regimes must be JSON as the reference says"),
        ("search", '{"tuna": 1}', "search must be JSON as the reference says"),
        ("weight", "-1", "weight must be at least 0"),
        ("user_weight", "0", "user_weight must be above 0"),
    ],
)
def test_optional_columns_are_checked_too(tmp_path: Path, column: str, value: str, rule: str) -> None:
    quoted = '"' + value.replace('"', '""') + '"'
    head = f"job,arrival_seconds,most_gpus,iterations,{column}\n"
    (tmp_path / "t.csv").write_text(f"{head}a,0,2,100,{quoted}\nb,1,2,50,\n")
    (entry,) = read_trace(tmp_path / "t.csv").dropped
    assert (entry.line, entry.rule) == (2, rule)


def test_a_damaged_parquet_file_and_another_parquet_table_are_refused(tmp_path: Path) -> None:
    write_trace(searching(), tmp_path / "w.parquet")
    whole = (tmp_path / "w.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:200])
    with pytest.raises(InputError, match="a Parquet file must be whole"):
        read_trace(tmp_path / "cut.parquet")
    import polars as pl

    pl.DataFrame({"job": ["a"], "iterations": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"must have columns .* but got no arrival_seconds, most_gpus"):
        read_trace(tmp_path / "other.parquet")


def test_a_trace_is_written_only_to_a_new_file_of_a_known_format(tmp_path: Path) -> None:
    write_trace(searching(), tmp_path / "w.csv")
    with pytest.raises(InputError, match="a trace must be written to a new file"):
        write_trace(searching(), tmp_path / "w.csv")
    with pytest.raises(InputError, match=r"a trace must be written as \.csv or \.parquet"):
        write_trace(searching(), tmp_path / "w.xls")
    with pytest.raises(InputError, match="a trace must be writable"):
        write_trace(searching(), tmp_path / "nowhere" / "w.csv")


class LinesReader:
    """A stranger's format: ``GPUS SECONDS`` a line, a job a second."""

    format: ClassVar[str] = "lines"

    def matches(self, name: str, head: str) -> bool:
        return head.startswith("#lines")

    def read(self, source: TraceSource, options: ReadOptions) -> Workload:
        pairs = [line.split() for line in source.text.splitlines()[1:]]
        rows = Rows(source.name, np.arange(2, len(pairs) + 2))
        gpus = np.array([int(pair[0]) for pair in pairs])
        rows.bounds("GPUS", gpus.astype(float), least=1.0)
        jobs = Jobs(
            ids=[f"job{number}" for number in range(len(pairs))],
            arrival_seconds=np.arange(float(len(pairs))),
            gpus=gpus,
            iterations=np.array([float(pair[1]) for pair in pairs]),
            seconds_per_iteration=np.ones(len(pairs)),
        )
        return build(rows, jobs, options, source="lines")


class Lines:
    """The plugin that names it."""

    name = "lines_format"
    api = 1

    @hookimpl
    def eunomia_trace_readers(self) -> Mapping[str, str]:
        return {"lines": f"{__name__}:LinesReader", "philly": "nowhere:Nothing"}


class Broken:
    name = "broken_format"
    api = 1

    @hookimpl
    def eunomia_trace_readers(self) -> Mapping[str, str]:
        raise RuntimeError("no")


@pytest.mark.parametrize("wanted", [None, "lines"])
def test_a_reader_of_another_package_is_found(
    tmp_path: Path, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this())
    (tmp_path / "a.txt").write_text("#lines\n2 30\n0 10\n1 20\n")
    registry = Registry.find(installed=False).adding(Lines, Broken)
    read = read_trace(tmp_path / "a.txt", format=wanted, registry=registry)
    assert list(read.apps.id) == ["job0", "job2"] and read.source == "lines"
    assert [(entry.line, entry.rule) for entry in read.dropped] == [(3, "GPUS must be at least 1")]
    # A built-in format stays what it is.
    assert read_trace(SAMPLES / "philly.csv", format="philly", registry=registry).source == "Philly CSV"


def _this() -> object:
    import types

    module = types.ModuleType(__name__)
    module.LinesReader = LinesReader  # type: ignore[attr-defined]
    return module


def test_a_reader_of_another_package_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    class Gone:
        name = "gone"
        api = 1

        @hookimpl
        def eunomia_trace_readers(self) -> Mapping[str, str]:
            return {"gone": "nowhere_at_all:Reader"}

    registry = Registry.find(installed=False).adding(Gone)
    with pytest.raises(InputError, match='the reader of format "gone" must be importable from nowhere_at_all:Reader'):
        read_trace(SAMPLES / "philly.csv", format="gone", registry=registry)


def test_the_example_of_the_how_to_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "read-a-trace.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out == "2 ['line 3: most_gpus must be at least 1, but got 0']\n"
    assert read_trace("jobs.parquet").size == 2
