"""``eunomia report`` on the state folder of an arbiter that runs, and after its end."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
from tests.appmaster.serving_lab import client, eventually, floors, supervisor

__all__ = ["floors"]
WORKER = Path(__file__).parent.parent / "appmaster" / "tiny_worker.py"
SEARCH = f"""
[app]
name = "lrs"
[job]
command = "{sys.executable} train.py {{args}} --seconds 0.01"
slots = 1
max_iterations = 60
[space]
lr = {{ type = "categorical", choices = [0.1, 0.3] }}
[tuner]
metric = "val/accuracy"
sampler = "grid"
"""


def files(folder: Path) -> dict[str, str]:
    """The content of every file of a folder, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def test_a_state_folder_is_reported_while_the_arbiter_runs_and_after_its_end(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    shutil.copy(WORKER, tmp_path / "train.py")
    (tmp_path / "app.toml").write_text(SEARCH)
    with supervisor(tmp_path) as made, client(made) as arbiter:
        assert "an arbiter must have served an app to be reported, but got none yet" in run("report", "state", check=2)
        app = arbiter.submit("app.toml")
        eventually(lambda: arbiter.app("lrs").HasField("best"), "a metric")
        told = json.loads(run("report", "state", "--out", "during", "--json"))
        assert (told["schema"], told["live"], told["out"]) == ("eunomia/report@1", True, "during")
        page = Path(told["report"]).read_text()
        assert "he arbiter still ran when this page was written" in page
        assert app.wait("2m").state == "finished", "the report changed nothing"
    before = files(tmp_path / "state")
    said = run("report", "state")
    assert files(tmp_path / "state") == before
    (out,) = (tmp_path / "eunomia-out").glob("report-*")
    assert said == f"tables and page: {out.relative_to(tmp_path)}/report.html\n"
    assert "he arbiter still ran" not in (out / "report.html").read_text()
    (row,) = pl.read_parquet(out / "apps.parquet").to_dicts()
    assert (row["app"], row["state"], row["jobs"]) == ("lrs", "finished", 2)
    assert sorted(pl.read_parquet(out / "trials.parquet")["iterations"].to_list()) == [60, 60]
    assert json.loads((out / "run.json").read_text())["ended"] == "finished"
    assert (out / "summary.csv").read_text().count("\n") >= 2

    assert "--out must name a new folder" in run("report", "state", "--out", "during", check=2)
    run("report", "state", "--out", "during", "--overwrite")
    for place in ("state", "state/out", "."):
        said = run("report", "state", "--out", place, "--overwrite", check=2)
        assert "--out must be apart from the state folder state" in said
    shutil.copytree(tmp_path / "state", tmp_path / "other", symlinks=True)
    said = run("report", "state", "--out", "other", "--overwrite", check=2)
    assert "--overwrite must name a folder that an earlier run left" in said
    assert files(tmp_path / "other") == before


def test_the_error_for_a_folder_that_is_not_a_state_folder_names_it(tmp_path: Path, run: Callable[..., str]) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text("{}")
    (tmp_path / "file").write_text("")
    rule = "a state folder must be one that `eunomia serve` writes, with journal.sqlite, but got"
    for name, what in {
        "absent": "no such folder",
        "plain": "none of it",
        "results": "a folder of results, which has its own page",
        "file": "a file",
        "x" * 300: "File name too long",
    }.items():
        assert f"{rule} {what} ({name})" in run("report", name, check=2)
    (tmp_path / "plain" / "journal.sqlite").write_text("no database at all")
    said = run("report", "plain", check=2)
    assert "plain/journal.sqlite" in said
    assert not (tmp_path / "eunomia-out").exists()
