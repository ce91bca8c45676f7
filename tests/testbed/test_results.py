"""A result folder: what is written is read, the same input gives the same bytes, and nothing of a user's is lost."""

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from eunomia.errors import InputError
from eunomia_testbed.results import ResultFolder, RunData, RunFacts, new_folder_name, sha256_of, summarise
from eunomia_testbed.results.columns import declared
from eunomia_testbed.results.figures import all_of
from eunomia_testbed.results.summary import Summary, held_twice
from eunomia_testbed.results.tables import KEY, TABLES, AppRow, JobRow, LeaseRow, frame_of, schema_of

DEMO = {"policy": "demo", "seed": 0}
PUBLISHED = {  # the columns that are promised to users, in order
    "jobs": "app job user model state slots_asked arrival_seconds start_seconds finish_seconds jct_seconds "
    "wait_seconds run_seconds ideal_seconds slot_seconds iterations iterations_lost restarts migrations rho",
    "apps": "app user tuner weight state jobs arrival_seconds finish_seconds jct_seconds slot_seconds placement_score "
    "rho rho_static rho_contention rho_exclusive",
    "rounds": "round time_seconds trigger free_slots busy_slots running_jobs waiting_jobs started kept grown shrunk "
    "migrated suspended gap fault",
    "leases": "app job machine slot epoch start_seconds end_seconds ended_by",
    "waits": "job start_seconds end_seconds reason stage plugin",
}


@pytest.mark.parametrize("table", PUBLISHED)
def test_published_columns_come_first_in_order(table: str) -> None:
    promised = ["policy", "seed", *PUBLISHED[table].split()]
    assert list(schema_of(table))[: len(promised)] == promised


@pytest.mark.parametrize("table", TABLES)
def test_columns_of_seconds_are_float64_and_every_column_has_a_type(table: str) -> None:
    for name, dtype in schema_of(table).items():
        assert dtype in (pl.String, pl.Int64, pl.Float64, pl.Boolean)
        assert dtype == pl.Float64 or not name.endswith("_seconds")


def test_rows_are_read_as_written_with_null_for_unknown_values(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write("jobs", [JobRow(app="a", job="a/1", state="finished", iterations=0, rho=0.5)], **DEMO)
    (row,) = RunData.load(folder.path).jobs.iter_rows(named=True)
    assert (row["policy"], row["job"], row["iterations"], row["rho"]) == ("demo", "a/1", 0, 0.5)
    assert row["user"] is None
    assert row["finish_seconds"] is None


def test_missing_tables_are_empty_with_their_schema(tmp_path: Path) -> None:
    run = RunData.load(ResultFolder.create(tmp_path / "run").path)
    for table in TABLES:
        assert run.table(table).is_empty()
        assert run.table(table).schema == schema_of(table)
    assert run.records == {}
    assert run.facts is None
    assert summarise(run).is_empty()


def test_the_same_input_gives_the_same_bytes(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    one, two = write_sample(tmp_path / "one", csv=True), write_sample(tmp_path / "two", csv=True)
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(names) > 2 * len(TABLES)
    assert names == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_csv_files_have_the_same_content_as_parquet_files(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "run", csv=True)
    for table in ("jobs", "leases", "metrics"):
        read = pl.read_csv(folder / f"{table}.csv", schema=schema_of(table))
        assert read.equals(pl.read_parquet(folder / f"{table}.parquet"))
    assert (folder / "plugins" / "themis.csv").exists()


def test_policies_share_a_table_and_a_second_write_replaces_rows_of_its_policy(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    for policy, state in (("las", "failed"), ("fifo", "finished"), ("las", "finished")):
        folder.write("apps", [AppRow(app="a", state=state)], policy=policy, seed=0)
        folder.write_record("las_queue", [{"round": 1, "state": state}], policy=policy, seed=0)
    run = RunData.load(folder.path)
    assert run.apps.select("policy", "state").rows() == [("fifo", "finished"), ("las", "finished")]
    assert run.only("las", 0).records["las_queue"]["state"].to_list() == ["finished"]
    assert run.runs() == [("fifo", 0), ("las", 0)]


def test_a_failed_write_leaves_the_earlier_table(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write("apps", [AppRow(app="a", state="finished")], **DEMO)
    with pytest.raises(InputError, match="table apps must have the columns"):
        folder.write_frame("apps", frame_of("jobs", [], **DEMO))
    assert RunData.load(folder.path).apps.height == 1
    assert not list(folder.path.glob(".*.part"))


def test_tables_of_an_earlier_version_are_read_and_unknown_ones_are_not(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write("jobs", [JobRow(app="a", job="a/1", state="finished", rho=0.5)], **DEMO)
    path = folder.path / "jobs.parquet"
    pl.read_parquet(path).drop("placement_score", "rho_static").write_parquet(path)
    (row,) = RunData.load(folder.path).jobs.iter_rows(named=True)
    assert (row["rho"], row["placement_score"]) == (0.5, None)
    assert RunData.load(folder.path).jobs.schema == schema_of("jobs")
    pl.DataFrame({"policy": ["demo"], "seed": [0], "mood": ["good"]}).write_parquet(path)
    with pytest.raises(InputError, match="table jobs must have the columns"):
        RunData.load(folder.path)


def test_an_existing_folder_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(
        InputError, match=r"--out must name a new folder, unless --overwrite is given, but got the existing folder"
    ):
        ResultFolder.create(path)
    with pytest.raises(InputError, match=r"--overwrite must name a folder that an earlier run left"):
        ResultFolder.create(path, overwrite=True)
    assert (path / "thesis.tex").read_text() == "years of work"


def test_overwriting_a_folder_removes_everything_of_the_earlier_run(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(RunFacts(kind="demo", command=("eunomia", "demo")))
    folder.write("apps", [AppRow(app="a", state="finished")], **DEMO)
    assert RunData.load(ResultFolder.create(folder.path, overwrite=True).path).apps.is_empty()


def test_the_link_latest_points_to_the_newest_folder(tmp_path: Path) -> None:
    for name in ("demo-1", "demo-2"):
        ResultFolder.create(tmp_path / name)
    assert (tmp_path / "latest").readlink() == Path("demo-2")


def test_a_file_named_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("mine")
    ResultFolder.create(tmp_path / "demo-1")
    assert (tmp_path / "latest").read_text() == "mine"


def test_the_name_of_a_result_folder_has_its_time_in_utc() -> None:
    assert new_folder_name("demo", datetime(2026, 11, 20, 14, 15, 30, tzinfo=UTC)) == "demo-20261120T141530Z"


def test_facts_of_a_run_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_bytes(b"abc")
    facts = RunFacts(
        kind="demo", command=("eunomia", "demo"), seeds=(1, 2), inputs=(sha256_of(tmp_path / "app.toml"),),
        profiles={"themis": "x = 1\n", "../../up": "y = 2\n"}, cluster="machines = []\n",
    )  # fmt: skip
    assert facts.inputs[0].sha256.startswith("ba7816bf8f01cfea414140de5dae2223")
    folder = ResultFolder.create(tmp_path / "run")
    folder.write_facts(facts)
    assert RunData.load(folder.path).facts == facts
    assert (folder.path / "profiles" / "themis.toml").read_text() == "x = 1\n"
    assert {path.parent for path in tmp_path.rglob("*up.toml")} == {folder.path / "profiles"}


def test_plugin_names_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    with pytest.raises(InputError, match="a plugin's name must match"):
        folder.write_record("../up", [{"round": 1}], **DEMO)


def test_the_summary_equals_figures_counted_by_hand(tmp_path: Path) -> None:
    folder = ResultFolder.create(tmp_path / "run")
    apps = [("a", "finished", 10.0, 0.9), ("b", "finished", 20.0, 1.2), ("c", "failed", None, None)]
    folder.write(
        "apps",
        [AppRow(app=app, state=state, finish_seconds=end, jct_seconds=end, rho=rho) for app, state, end, rho in apps],
        **DEMO,
    )
    lease = LeaseRow(app="a", machine="m", slot=0, epoch=1, start_seconds=0.0, end_seconds=10.0)
    folder.write("leases", [lease, dataclasses.replace(lease, epoch=2, slot=1, start_seconds=5.0)], **DEMO)
    (row,) = folder.write_summary().iter_rows(named=True)
    assert (row["apps"], row["apps_finished"], row["rho_worst"], row["rho_worst_app"]) == (3, 2, 1.2, "b")
    assert (row["jct_mean_seconds"], row["makespan_seconds"]) == (15.0, 20.0)
    assert (row["rho_above_1_share"], row["rho_unfair_share"]) == (0.5, 0.5)
    assert (row["slots"], row["slot_seconds"], row["slots_in_use_share"]) == (2, 15.0, 15 / 40)
    assert (row["restarts"], row["iterations_lost"]) == (None, None)  # no job is known, so neither is this
    assert (folder.path / "summary.csv").read_text().startswith("policy,seed,apps,apps_finished,")


@pytest.mark.parametrize(
    ("second", "twice"),
    [
        ((0, "m", 10.0, 12.0), 0),
        ((0, "m", 9.0, 12.0), 1),
        ((0, "m", None, None), 0),
        ((1, "m", 9.0, 12.0), 0),
        ((0, "n", 9.0, 12.0), 0),
        ((0, "m", 20.0, None), 0),
    ],
)
def test_slots_held_twice_are_counted(second: tuple[int, str, float | None, float | None], twice: int) -> None:
    slot, machine, start, end = second
    leases = [LeaseRow(app="a", machine="m", slot=0, epoch=1, start_seconds=0.0, end_seconds=10.0)]
    if start is not None:
        leases.append(LeaseRow(app="b", machine=machine, slot=slot, epoch=2, start_seconds=start, end_seconds=end))
    assert held_twice(frame_of("leases", leases, **DEMO)) == twice


def test_an_open_lease_counts_as_holding_its_slot() -> None:
    leases = [
        LeaseRow(app="a", machine="m", slot=0, epoch=1, start_seconds=0.0),
        LeaseRow(app="b", machine="m", slot=0, epoch=2, start_seconds=10.0, end_seconds=12.0),
    ]
    assert held_twice(frame_of("leases", leases, **DEMO)) == 1


def test_importing_the_testbed_does_not_import_polars() -> None:
    code = "import eunomia_testbed, sys; sys.exit('polars' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )


def test_the_reference_lists_every_table_as_declared() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", Path(__file__).parents[1] / "make_reference.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = (Path(__file__).parents[2] / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    assert text == made.results_page(text), "write it again: python tests/make_reference.py"
    for table in TABLES:
        assert f"### {table}\n" in text


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_declared_with_a_meaning(table: str) -> None:
    specs = declared(TABLES[table])
    assert list(specs) == [name for name in schema_of(table) if name not in KEY]
    for name, spec in specs.items():
        assert spec.meaning and not spec.meaning.endswith(".")
        assert (spec.unit == "s") == (name.endswith("_seconds") and not name.endswith("slot_seconds")), name


def test_every_figure_of_a_column_is_in_the_summary() -> None:
    figures = [figure.name for _, _, _, figure in all_of()]
    undeclared = set(Summary.__dataclass_fields__) - {"policy", "seed"} - declared(Summary).keys()
    assert len(figures) == len(set(figures))
    assert set(figures) == {name for name in undeclared if "_by_" not in name}


def test_examples_of_the_reference_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    reading, writing = re.findall(r"```python(?: sketch)?\n(.*?)```", text, re.DOTALL)
    exec(writing, {})
    exec(reading, {})
    assert (tmp_path / "eunomia-out" / "latest" / "report.html").is_file()


def test_two_folders_created_in_one_second_have_different_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now = datetime(2026, 11, 25, 16, 17, 33, tzinfo=UTC)
    for name in ("simulate-20261125T161733Z", "simulate-20261125T161733Z-2", "simulate-20261125T161733Z-3"):
        assert new_folder_name("simulate", now) == name
        (tmp_path / "eunomia-out" / name).mkdir(parents=True)
