"""The verdict on apps beside which there was no other app, and on slots while no job waited."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia_testbed.report import render
from eunomia_testbed.report.company import lone_apps
from eunomia_testbed.report.fairness import fairness
from eunomia_testbed.report.verdict import verdict
from eunomia_testbed.report.view import View, whole_of
from eunomia_testbed.results import ResultFolder, RunData, RunFacts
from eunomia_testbed.results.tables import AppRow, EventRow, JobRow, LeaseRow, WaitRow

KEY = {"policy": "p", "seed": 0}
Lives = dict[str, tuple[float, float | None]]


def written(
    folder: Path,
    lives: Lives,
    *,
    rho: dict[str, float] | None = None,
    waits: tuple[tuple[str, float, float, str], ...] = (),
    leases: tuple[tuple[str, int, float, float], ...] = (),
    resumed: dict[str, float] | None = None,
) -> RunData:
    """A live run on two slots; times in seconds."""
    there = ResultFolder.create(folder / "run", overwrite=True)
    there.write_facts(RunFacts(kind="serve", command=("x",), slots=2))
    apps = [
        AppRow(
            app=app,
            state="finished" if end is not None else "live",
            arrival_seconds=start,
            finish_seconds=end,
            jct_seconds=None if end is None else end - start,
            rho=(rho or {}).get(app),
        )
        for app, (start, end) in lives.items()
    ]
    there.write("apps", apps, **KEY)
    there.write("jobs", [JobRow(app=app, job=f"{app}/1", state="finished") for app in lives], **KEY)
    rows = [WaitRow(job=job, start_seconds=at, end_seconds=end, reason=why) for job, at, end, why in waits]
    there.write("waits", rows, **KEY)
    held = [
        LeaseRow(
            app=app, job=f"{app}/1", machine="m", slot=slot, start_seconds=at, end_seconds=end, ended_by="released"
        )
        for app, slot, at, end in leases
    ]
    there.write("leases", held, **KEY)
    events = [EventRow(time_seconds=at, kind="app.resumed", app=app, text="") for app, at in (resumed or {}).items()]
    there.write("events", events, **KEY)
    return RunData.load(there.path)


def said(run: RunData, question: str) -> tuple[str, str]:
    """The mark of an answer, and its sentences."""
    view: View = whole_of(run).views[0]
    part = verdict(view)
    assert part is not None
    found = re.search(rf'<li class="(\w+)"><p class="asks">{re.escape(question)}</p>(.*?)</li>', part.html)
    assert found is not None
    return found[1], re.sub(r"<[^>]*>", " ", found[2])


LIVES = st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(1, 12)), min_size=1, max_size=7)


@given(LIVES)
def test_an_app_was_alone_if_its_lifetime_overlaps_no_other(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int | None]]
) -> None:
    lives: Lives = {
        f"a{at}": (float(start), None if long is None else float(start + long))
        for at, (start, long) in enumerate(drawn)
    }
    run = written(tmp_path_factory.mktemp("lives"), lives)

    def meet(one: str, other: str) -> bool:
        (start, end), (begun, over) = lives[one], lives[other]
        return (end is None or begun < end) and (over is None or start < over)

    assert lone_apps(run) == {one for one in lives if not any(meet(one, other) for other in lives if other != one)}


def test_a_resumed_app_counts_as_present_before_and_after_its_pause_but_not_between(tmp_path: Path) -> None:
    leases = (("a", 0, 0.0, 10.0), ("b", 0, 20.0, 30.0), ("a", 0, 50.0, 60.0))
    lives: Lives = {"a": (0.0, 60.0), "b": (20.0, 30.0)}
    assert lone_apps(written(tmp_path, lives, leases=leases, resumed={"a": 50.0})) == {"a", "b"}
    lives["b"] = (5.0, 30.0)
    assert lone_apps(written(tmp_path, lives, leases=leases, resumed={"a": 50.0})) == {"a"}  # judged by its last life
    lives["b"] = (20.0, 55.0)
    assert lone_apps(written(tmp_path, lives, leases=leases, resumed={"a": 50.0})) == frozenset()


def test_apps_that_never_overlapped_have_no_mark_and_waited_for_their_own_trials(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        {"a": (0.0, 10.0), "b": (20.0, 30.0)},
        rho={"a": 5.98, "b": 0.9},
        waits=(("a/1", 2.0, 8.0, "outranked"), ("a/2", 0.0, 2.0, "outranked")),
        leases=(("a", 0, 0.0, 2.0), ("a", 0, 8.0, 10.0)),
    )
    mark, text = said(run, "Was it fair?")
    assert mark == "plain"
    assert "No other app was there to share with" in text
    assert "ρ is 5.98" in text
    assert "8.0 s in all, 100.0 % of it because its own trials came first" in text
    assert "others" not in text
    page = render(run)
    assert "then waited 6.0 s because its own trials came first" in page
    assert "others came first" not in page
    part = fairness(whole_of(run).views[0])
    assert part is not None
    assert "its own trials came first" in part.tables[0].rows[0]


def test_the_mark_follows_the_worst_app_that_ran_together_with_others(tmp_path: Path) -> None:
    lives: Lives = {"a": (0.0, 10.0), "b": (20.0, 30.0), "c": (25.0, 40.0)}
    waits = (("a/1", 0.0, 8.0, "outranked"), ("b/1", 20.0, 22.0, "outranked"))
    mark, text = said(written(tmp_path, lives, rho={"a": 5.98, "b": 1.2, "c": 0.9}, waits=waits), "Was it fair?")
    assert mark == "poor"
    assert "Worst ρ 1.20, b" in text
    assert "because others came first" in text
    assert "no other app was there to share with over the life of 1 app, the worst ρ of them 5.98" in text
    mark, _ = said(written(tmp_path, lives, rho={"a": 5.98, "b": 1.0, "c": 0.9}), "Was it fair?")
    assert mark == "good"
    mark, _ = said(written(tmp_path, lives, rho={"a": 0.5, "b": 1.6, "c": 0.9}), "Was it fair?")
    assert mark == "bad"


def test_a_live_run_is_marked_by_its_slot_use_while_jobs_waited(tmp_path: Path) -> None:
    leases = (("a", 0, 0.0, 10.0), ("a", 1, 5.0, 10.0), ("b", 0, 400.0, 410.0))
    waits = (("a/1", 0.0, 10.0, "outranked"), ("a/2", 2.0, 10.0, "outbid"), ("b/1", 200.0, 300.0, "paused_by_app"))
    run = written(tmp_path, {"a": (0.0, 10.0), "b": (390.0, 410.0)}, leases=leases, waits=waits)
    mark, text = said(run, "Were the slots busy?")
    assert (mark, "75.0 % busy while jobs waited" in text) == ("poor", True)
    assert "3.0 % were held" in text  # 25 of 820 slot-seconds


def test_slots_have_no_mark_if_no_job_waited(tmp_path: Path) -> None:
    run = written(tmp_path, {"a": (0.0, 10.0), "b": (390.0, 400.0)}, leases=(("a", 0, 0.0, 10.0),))
    mark, text = said(run, "Were the slots busy?")
    assert mark == "plain"
    assert "Slots held 1.2 %" in text
    assert "no job is known to have waited" in text.lower()
