"""The demo's screen and its last table, as text."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from eunomia_appmaster.explaining.activity import Line
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.demo.screen import Screen, about_seconds, end_lines, event_lines, letters, title_of
from eunomia_testbed.live_runs.live_run import Look
from eunomia_testbed.live_runs.outcome import AppOutcome, DemoOutcome
from eunomia_testbed.live_runs.record import LiveRecord, News
from eunomia_testbed.live_runs.rounds import Round

ROW = {
    "round": 14, "decided_at": 1070.0, "app": "mlp", "bidder": True, "rho_now": 1.2, "asked_least": 1,
    "rho_least": 1.01, "gain": 1.188, "won_slots": 1, "rho_won": 1.01, "c": 0.87, "kept_slots": 1,
    "leftover_slots": 0, "bid_rows": "1: 1.01",
    "offered_slots": 2, "bidders": 2, "apps": 4, "solved_by": "counts", "gap": 0.0,
}  # fmt: skip
LOSER = ROW | {"app": "cnn", "won_slots": 0, "rho_won": None, "c": None, "kept_slots": 0, "leftover_slots": 1}


def auction() -> Round:
    return Round(
        number=14, at=1069.9, decided_at=1070.0, causes=("lease_ended",), running=2, waiting=3, busy=2, shown_to=3,
        records={"themis": [ROW, LOSER]},
    )  # fmt: skip


def line(event: str, at: float, slots: tuple[int, ...] = (0,), step: int = 40) -> Line:
    return Line(at=at, app="mlp", job="mlp/3", event=event, slots=slots, step=step, incarnation=1)


def look(at: float, *lines: Line) -> Look:
    standing = pb.Standing(last="mlp/3 resumed at 40")
    app = pb.App(app="mlp", state="running", tuner="successive_halving", rho=1.01, slots=1, max_slots=4, running=1,
                 waiting=2, best=0.964, standing=standing)  # fmt: skip
    other = pb.App(app="cnn", state="waiting", tuner="none", max_slots=1, waiting=1)
    slot = pb.SlotView(
        gpu=0, state="held", app="mlp", job="mlp/3", iterations_done=412.4, iterations=540, ends_in_seconds=2
    )
    return Look(
        at=at, apps=(app, other), slots=(slot, pb.SlotView(gpu=1, state="free")), news=News(steps=(), lines=lines)
    )


def text_of(screen: Screen, seen: Look) -> list[str]:
    console = Console(file=io.StringIO(), width=150, force_terminal=False)
    console.print(screen.draw(seen))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_screen_shows_slots_apps_and_the_last_auction(tmp_path: Path) -> None:
    record = LiveRecord(tmp_path)
    screen = Screen(record, title="Eunomia demo", about_seconds=120.0, started_at=1000.0)
    text_of(screen, look(1060.0, line("start", 1059.0)))
    text_of(screen, look(1062.0, line("running", 1061.0)))
    record.rounds.rounds.append(auction())
    lines = text_of(screen, look(1074.0, line("suspended", 1073.0)))
    assert lines[0] == "Eunomia demo"
    assert "01:14 of about 02:00" in lines[1]
    assert "Now 1 job runs on 1 of 2 slots, 3 wait; 0 of 2 apps are over." in lines
    assert any(each.startswith("Searches and trainings of real models share") for each in lines)
    slot = next(each for each in lines if each.startswith("0 "))
    assert slot.split() == ["0", "mlp/3", "412", "of", "540", "2", "s", "~M·"]
    assert next(each for each in lines if each.startswith("M mlp ")).split()[2:5] == ["successive_halving", "1.01", "1"]
    assert "auction 14: 2 slots offered to the 3 worst-off of 4 apps, 4 s ago" in lines
    bids = [each.split() for each in lines[lines.index(next(e for e in lines if e.startswith("bidder"))) + 1 :]]
    assert bids[0] == ["M", "mlp", "1.20", "1", "slot", "1.01", "1.19", "1", "0.13"]
    explained = " ".join(lines)
    assert all(f"{column}" in explained for column in ("ρ: finish time over", "gain = ρ now / ρ then", "pays 1 - c: "))
    assert bids[1] == ["C", "cnn", "1.20", "1", "slot", "1.01", "1.19", "0", "+1", "-"]


def test_the_estimate_of_the_end_follows_the_progress_of_the_apps() -> None:
    def apps(*done: float) -> list[pb.App]:
        return [pb.App(state="finished" if share == 1.0 else "running", done=share) for share in done]

    assert about_seconds(apps(0.0, 0.0), 1.0, 130.0) == 130.0
    assert about_seconds(apps(0.5, 0.5), 130.0, 130.0) == 0.5 * 130.0 + 0.5 * 260.0
    # A run that takes twice as long as usual is never over before its apps are.
    assert about_seconds(apps(0.9, 1.0), 400.0, 130.0) > 400.0
    assert about_seconds(apps(1.0, 1.0), 111.0, 130.0) == 111.0


def test_the_screen_shows_how_long_the_worker_of_a_slot_has_been_silent(tmp_path: Path) -> None:
    silent = look(1060.0)
    silent.slots[0].reported_seconds_ago = 240.0
    lines = text_of(Screen(LiveRecord(tmp_path), title="demo", about_seconds=120.0, started_at=1000.0), silent)
    assert any("412 of 540, 240 s old " in each for each in lines)


def test_without_a_terminal_each_event_is_printed_on_a_line(tmp_path: Path) -> None:
    seen = look(1074.0, line("suspended", 1073.0), line("saved", 1072.9), line("resumed", 1073.5, step=96))
    assert event_lines(seen, LiveRecord(tmp_path), 1000.0) == [
        "01:13  mlp/3 suspended at 40",
        "01:13  mlp/3 resumed at 96",
    ]


def test_each_app_has_its_own_letter_on_the_screen() -> None:
    assert letters(["mlp", "cnn", "more", "m"]) == {"cnn": "C", "m": "M", "mlp": "L", "more": "O"}


@pytest.mark.parametrize("offered", [1, 2])
def test_the_title_states_the_number_of_offered_slots(offered: int) -> None:
    made = auction()
    made.records["themis"] = [ROW | {"offered_slots": offered}]
    assert f"{offered} slot{'' if offered == 1 else 's'} offered" in title_of(made)


def outcome(**changes: object) -> DemoOutcome:
    app = AppOutcome(
        app="mlp", state="finished", rho=0.96, jct_seconds=131.0, slot_seconds=133.2, trials=8, metric="val/accuracy",
        best=0.981, best_job="mlp/6", best_params="lr 0.071", suspended=6, twice=0,
    )  # fmt: skip
    facts: dict[str, object] = {
        "apps": (app,), "seconds": 147.0, "auctions": 27, "paid": 22, "contested": 20, "suspensions": 17, "resumed": 17,
        "in_use": 0.937, "held_twice": (), "twice_at_most": 0, "faults": (),
    }  # fmt: skip
    return DemoOutcome(**(facts | changes))  # type: ignore[arg-type]


def test_the_last_table_has_the_results_of_each_app() -> None:
    lines = end_lines(outcome(), "out/report.html")
    assert " ".join(lines[1].split()) == "mlp finished 0.96 131 s 133 s 8 0.981 mlp/6 lr 0.071 6 0"
    assert lines[-2] == (
        "1 app finished in 02:27 · 27 auctions, 22 with payments · 17 suspensions, all resumed · "
        "slots in use 93.7 % · no slot held twice"
    )
    assert lines[-1] == "Report   out/report.html"


def test_the_last_lines_report_suspensions_and_slots_with_two_holders() -> None:
    said = end_lines(outcome(resumed=16, held_twice=("slot 1: a/1 and b/1 ran there at once",)), "r")[-2]
    assert "17 suspensions, 16 of them resumed" in said and said.endswith("slot 1: a/1 and b/1 ran there at once")
    assert "no suspensions" in end_lines(outcome(suspensions=0, resumed=0), "r")[-2]
