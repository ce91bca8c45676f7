"""``eunomia profiles`` against a state folder: what an arbiter's journal keeps of kinds whose jobs have ended."""

import json
from pathlib import Path

import pytest
from tests.appmaster.journal_lab import Run

from eunomia import Locality, cli
from eunomia.contract.events import AppArrived, AppFinished, JobAdded, RateMeasured
from eunomia.units import AppId, JobId, UserId
from eunomia_appmaster.service.kind_profile_files import load_profile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = Run(tmp_path)
    run.step(AppArrived(app=AppId("a"), user=UserId("u")))
    run.step(JobAdded(job=JobId("a/1"), app=AppId("a"), least=2, most=2, kind="resnet"))
    where = {"gpus": 2, "gpu_type": "cpu", "locality": Locality.ISLAND, "date": "2026-11-23"}
    run.step(RateMeasured(job=JobId("a/1"), rate=2.5, **where))  # type: ignore[arg-type]
    run.step(AppFinished(app=AppId("a")))
    run.journal.close()
    return tmp_path


def test_a_kind_can_be_listed_shown_and_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(("profiles", "list", str(folder), "--json")) == 0
    assert json.loads(capsys.readouterr().out)["kinds"] == [{"kind": "resnet", "points": 1}]
    assert cli.run(("profiles", "show", str(folder), "resnet", "--json")) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    where = {"gpus": 2, "gpu_type": "cpu", "locality": "island"}
    assert point == where | {"rate": 2.5, "known": "measured", "machine": "box", "date": "2026-11-23"}
    assert cli.run(("profiles", "export", str(folder), "resnet", str(folder / "resnet.toml"))) == 0
    kind, (rate,) = load_profile(folder / "resnet.toml")
    assert (kind, rate.gpus, rate.rate, rate.machine) == ("resnet", 2, 2.5, "box")
    capsys.readouterr()
    assert cli.run(("profiles", "check", str(folder / "resnet.toml"))) == 0
    assert "box" in capsys.readouterr().out


def test_an_unknown_kind_and_an_existing_output_file_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(("profiles", "show", str(folder), "bert")) == 2
    assert 'a kind must be one with known rates (resnet), but got "bert"' in capsys.readouterr().err
    (folder / "resnet.toml").write_text("mine")
    assert cli.run(("profiles", "export", str(folder), "resnet", str(folder / "resnet.toml"))) == 2
    assert (folder / "resnet.toml").read_text() == "mine"
