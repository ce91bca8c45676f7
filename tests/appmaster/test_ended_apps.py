"""Apps that ended long ago are read from the journal in pages, so that a list of them takes bounded memory."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from appmaster.service_lab import Lab, eventually
from eunomia.journal.journal import Journal
from eunomia_appmaster import Client
from eunomia_appmaster import client as client_module
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.protocol.pages import PAGE
from eunomia_appmaster.service import ended_apps
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.ended_apps import EndedApps


def journaled(path: Path, apps: int) -> EndedApps:
    """A journal with so many apps, of which every tenth lives."""
    with Journal.open(path, durable=False) as journal:
        for number in range(apps):
            app = App(
                name=f"a{number}", user="u", weight=1.0, tuner="none", trials=1, least=1, most=1, submitted_at=0.0,
                arrived_at=float(number),
            )  # fmt: skip
            if number % 10:
                app.end("finished", "", float(number))
            journal.note(app.note())
    return EndedApps(path)


def pages(archive: EndedApps) -> Iterator[list[str]]:
    """Names by page, the last page first."""
    apps, before = archive.page(())
    yield [app.name for app in apps]
    while before:
        apps, before = archive.page((), before)
        yield [app.name for app in apps]


def test_pages_follow_each_other_back_to_the_first_app(tmp_path: Path) -> None:
    archive = journaled(tmp_path / "journal.sqlite", 2 * PAGE + 50)
    every = [f"a{number}" for number in range(2 * PAGE + 50) if number % 10]
    found = list(pages(archive))
    assert [name for page in reversed(found) for name in page] == every == [app.name for app in archive.all_except(())]
    assert [len(page) for page in found] == [0.9 * PAGE, 0.9 * PAGE, 45]
    known = frozenset(every[:-5])
    assert [app.name for app in archive.page(known)[0]] == every[-5:]


def test_the_memory_of_a_page_does_not_depend_on_the_number_of_apps(tmp_path: Path) -> None:
    peaks = []
    for apps in (2 * PAGE, 10 * PAGE):
        archive = journaled(tmp_path / f"{apps}" / "journal.sqlite", apps)
        archive.page(())
        tracemalloc.start()
        archive.page(())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_a_client_joins_the_pages_in_order_of_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ended_apps, client_module):
        monkeypatch.setattr(module, "PAGE", 2)
    names = [f"a{number}" for number in range(7)]
    lab = Lab(tmp_path, keep_apps=1).ready()
    try:
        lab.submit("lives")
        for name in names:
            lab.submit(name)
            eventually(lambda name=name: (name, 1) in lab.launcher.started)
            lab.client().Cancel(pb.CancelRequest(app=name), metadata=lab.operator)
            lab.launcher.master(name, 1, lpb.APP_MASTER_COMPLETED, exit=lpb.Exit(code=0))
        eventually(lambda: lab.arbiter.call(lambda: len(list(lab.arbiter.service.apps))) == 2)
        (tmp_path / "token").write_text(lab.arbiter.service.tokens.operator)
        (tmp_path / "token").chmod(0o600)
        with Client(lab.arbiter.address, token_file=tmp_path / "token") as client:
            assert [app.app for app in client.list().apps] == ["lives", *names]
            assert [app.app for app in client.list(ended=False).apps] == ["lives"]
            assert [app.app for app in client.list(app="a0").apps] == ["a0"]
            monkeypatch.setattr(client_module, "MOST_LISTED", 4)
            assert [app.app for app in client.list().apps] == ["lives", *names[-4:]]
        earlier = lab.client().List(pb.ListRequest(ended=True), metadata=lab.operator)
        assert [app.app for app in earlier.apps] == ["lives", *names], "as clients of earlier versions ask"
    finally:
        lab.close()
