"""``eunomia clean`` removes folders of ended apps, never of running ones, and follows no link."""

import dataclasses
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appmaster.service_lab import Lab, eventually
from eunomia.cli import run
from eunomia.errors import EunomiaError, InputError
from eunomia.units import Seconds
from eunomia_appmaster.app.cleaning import bytes_of, remove_all_but_best, remove_app
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.commands.clean import check_may_remove
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service.clean_rule import clean_once


def _write(path: Path) -> None:
    path.write_bytes(b"state")


def trial(folder: Path) -> None:
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "events").write_bytes(b"x" * 10_000)
    for name in ("best", "checkpoints"):
        store = JobCheckpoints(folder / name, keep=1)
        store.begin(1, 1)
        store.save(3, _write, incarnation=1)


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    for number in ("1", "2"):
        trial(tmp_path / "apps" / "ana" / number)
    (tmp_path / "apps" / "ana" / "trials.csv").write_text("job\n")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("mine")
    (tmp_path / "apps" / "ana" / "1" / "logs" / "link").symlink_to(precious)
    (tmp_path / "apps" / "ana" / "3").symlink_to(precious)
    return tmp_path / "apps"


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_app_folder_is_removed_but_not_the_targets_of_its_links(apps: Path) -> None:
    assert bytes_of(apps / "ana") >= 20_000
    before = bytes_of(apps / "ana")
    (apps / "ana" / "linked").hardlink_to(apps / "ana" / "1" / "logs" / "events")
    assert bytes_of(apps / "ana") == before, "a file with two names takes its space once"
    remove_app(apps, "ana")
    assert not (apps / "ana").exists()
    assert (apps.parent / "precious" / "thesis").read_text() == "mine"
    remove_app(apps, "ana")  # gone already


def test_every_checkpoint_except_the_best_is_removed(apps: Path) -> None:
    remove_all_but_best(apps, "ana", "ana/2")
    kept = {f"2/best/a1-i1-g1/000003.{ending}" for ending in ("pt", "json")}
    assert names(apps / "ana") - {"3/thesis"} == {"trials.csv", *kept}
    assert (apps.parent / "precious" / "thesis").read_text() == "mine"
    remove_all_but_best(apps, "ana", "")
    assert names(apps / "ana") - {"3/thesis"} == {"trials.csv"}


def test_an_app_folder_that_is_a_link_is_not_followed(apps: Path) -> None:
    (apps / "bob").symlink_to(apps.parent / "precious")
    with pytest.raises(EunomiaError, match="a folder must be a folder, no link"):
        remove_all_but_best(apps, "bob", "bob/1")
    remove_app(apps, "bob")
    assert not (apps / "bob").is_symlink()
    assert (apps.parent / "precious" / "thesis").read_text() == "mine"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    one = Lab(tmp_path).ready()
    try:
        yield one
    finally:
        one.close()


class Command:
    """``eunomia clean`` in this process, with the lab's address and token."""

    def __init__(self, lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        token = lab.folder / "operator"
        token.write_text(lab.arbiter.service.tokens.operator)
        monkeypatch.setenv("EUNOMIA_ADDRESS", lab.arbiter.address)
        monkeypatch.setenv("EUNOMIA_TOKEN_FILE", str(token))
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        code = run(["clean", *words])
        shown = self._capsys.readouterr()
        return code, shown.out + shown.err


def test_the_command_lists_and_then_removes_only_ended_apps(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = Command(lab, capsys, monkeypatch)
    lab.submit("over")
    lab.submit("runs")
    lab.client().Cancel(pb.CancelRequest(app="over"), metadata=lab.operator)
    eventually(lambda: lab.app("over").state == "cancelled", "cancelled")
    folders = lab.folder / "state" / "apps"
    assert (folders / "over").is_dir() and (folders / "runs").is_dir()

    code, text = clean("--older-than", "0s", "--dry-run", "--json")
    listed = json.loads(next(line for line in text.splitlines() if line.startswith("{")))  # beside the arbiter's log
    assert code == 0 and [row["app"] for row in listed["apps"]] == ["over"]
    assert "no folder of an app that ended 30d ago or earlier (--older-than)" in clean("--yes")[1]
    code, text = clean("runs", "--older-than", "0s", "--yes")
    assert code == 2 and "an app must have ended to be removed, but got runs is " in text
    assert clean("--older-than", "0s")[0] == 0  # answered with no
    wrong = (("--older-than", "30"), ("--older-than", "-1d"), ("--older-than", "0s", "--keep", "all"), ("nosuch",))
    assert [clean(*words, "--yes")[0] for words in wrong] == [2] * len(wrong)
    assert (folders / "over").is_dir()
    code, text = clean("--older-than", "0s")  # no more input: not removed
    assert code == 2 and "the question must be answered, or --yes be given, but got the end of the input" in text
    assert (folders / "over").is_dir()
    code, text = clean("--older-than", "0s", "--yes")
    assert code == 0 and "1 folder, " in text and "removed 1 folder\n" in text
    assert not (folders / "over").exists() and (folders / "runs").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="another account is needed")
def test_an_account_without_write_permission_is_told_to_ask_the_operator(apps: Path) -> None:
    check_may_remove(apps)
    apps.chmod(0o711)
    os.seteuid(65534)
    try:
        with pytest.raises(InputError, match=r"must run under the arbiter's account \(ask the operator"):
            check_may_remove(apps)
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("keep_best", [False, True])
def test_serve_removes_only_apps_that_ended_longer_ago_than_the_limit(lab: Lab, keep_best: bool) -> None:
    service = lab.arbiter.service
    service.settings = dataclasses.replace(service.settings, clean_keep_best=keep_best, clean_after=Seconds(0.0))
    for name in ("over", "again", "runs"):
        lab.submit(name)
    folders = lab.folder / "state" / "apps"
    for name in ("over", "runs"):
        trial(folders / name / "1")
    for name in ("over", "again"):
        lab.client().Cancel(pb.CancelRequest(app=name), metadata=lab.operator)
        lab.launcher.master(name, 1, lpb.APP_MASTER_COMPLETED)
    lab.launcher.report()
    assert not any(service.has_master(app) for app in service.apps if app.over)
    outside = lab.folder / "precious"
    (folders / "again").rename(outside)
    (folders / "again").symlink_to(outside)
    lab.arbiter.run(clean_once(service, 3600.0))
    assert (folders / "over" / "1").is_dir(), "it ended less than an hour ago"
    lab.arbiter.run(clean_once(service, 0.0))
    assert (folders / "over").exists() is keep_best and not (folders / "over" / "1").exists()
    assert (folders / "over" / "app.toml").exists() is keep_best
    assert (folders / "runs" / "1").is_dir() and (outside / "app.toml").exists()
    lab.arbiter.run(clean_once(service, 0.0))
    assert lab.app("over").state == "cancelled"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"clean_older_than": "30"}, "--clean-older-than must be"),
        ({"clean_older_than": "-1d"}, "--clean-older-than must be"),
        ({"clean_older_than": "30d", "clean_keep": "all"}, "--clean-keep must be best"),
        ({"clean_keep": "best"}, "--clean-keep needs --clean-older-than"),
    ],
)
def test_an_invalid_age_or_choice_of_files_is_refused(flags: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        assert ServeFlags.model_validate(flags).arbiter_options
    assert said in str(refused.value)
    chosen = ServeFlags(clean_older_than="30d", clean_keep="best").arbiter_options
    assert chosen[chosen.index("--clean-older-than-seconds") + 1] == str(30 * 86400.0) and "--clean-keep-best" in chosen
