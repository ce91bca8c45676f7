"""Draws the demo's screen as lines of text: jobs on slots, progress of apps, and the last auction."""

import math
from collections import deque
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.text import Text

from eunomia_appmaster.explaining.activity import ENDS, RESIZED, Line
from eunomia_appmaster.explaining.failures import failed_in_words
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_testbed.live_runs.live_run import Look
from eunomia_testbed.live_runs.outcome import AppOutcome, DemoOutcome
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.rounds import Round
from eunomia_testbed.report.words import count, percent

MARK_SECONDS = 2.0
MARKS = 30
"""Number of marks in a slot's history, which covers the last minute."""
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
"""The colours of Okabe and Ito, assigned to apps in order of their names, as in the report."""
BUSY, IDLE = "~", "·"
OVER = ("finished", "failed", "cancelled")
LEAST_LEFT_SECONDS = 5.0
"""Least remaining time that is shown while an app runs, in seconds."""
GOING_ON = "Searches and trainings of real models share this machine's slots. A job without a slot is saved and waits."
HOW = "Every few seconds leases end, and the policy decides which jobs run next."
HOW_WITH_AUCTIONS = "Every few seconds leases end, and the free slots are auctioned to the apps that are worst off."
COLUMNS_OF_AN_AUCTION = (
    "ρ: finish time over that on an equal share of one's own; at most 1 is fair. An app bids its ρ now and its ρ then,",
    "with the slots it asks for; gain = ρ now / ρ then. The slots go where the product of all gains is largest.",
    "pays 1 - c: the part of its win that a winner gives up for what the others lose by it; it makes honest bids best.",
)


def clock(seconds: float) -> str:
    """Format seconds as minutes and seconds, such as 01:12."""
    whole = max(0, int(seconds))
    return f"{whole // 60:02d}:{whole % 60:02d}"


def letters(apps: Iterable[str]) -> dict[str, str]:
    """Return by app a distinct capital letter: the first unused one of its name, else of the alphabet; ``?``: none."""
    taken: dict[str, str] = {}
    for app in sorted(apps):
        free = [letter for letter in [*app.upper(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"] if letter.isalpha()]
        taken[app] = next((letter for letter in free if letter not in taken.values()), "?")
    return taken


def about_seconds(apps: Sequence[pb.App], passed: float, usual: float) -> float:
    """Estimate a run's total seconds from ``passed`` seconds and the apps' progress; without progress, ``usual``."""
    done = [1.0 if app.state in OVER else min(max(app.done, 0.0), 1.0) for app in apps]
    share = sum(done) / len(done) if done else 0.0
    if done and share >= 1.0:
        return max(passed, 1.0)
    # As progress grows, the weight shifts from the usual duration to the one extrapolated from this run.
    by_itself = passed / share if share > 0.0 else usual
    return max((1.0 - share) * usual + share * by_itself, passed + LEAST_LEFT_SECONDS)


def _now_in_words(look: Look) -> str:
    apps = [app for app in look.apps if app.state not in OVER]
    busy, over = sum(bool(view.job) for view in look.slots), len(look.apps) - len(apps)
    jobs, waiting = sum(app.running for app in apps), sum(app.waiting + app.paused for app in apps)
    return (
        f"Now {count(jobs, 'job')} run{'s' if jobs == 1 else ''} on {busy} of {count(len(look.slots), 'slot')}, "
        f"{waiting} wait{'s' if waiting == 1 else ''}; {over} of {count(len(look.apps), 'app')} "
        f"{'is' if over == 1 else 'are'} over."
    )


class History:
    """The activity of each slot over the last minute, with a mark for every two seconds."""

    def __init__(self, slots: int) -> None:
        self.marks: dict[int, deque[str]] = {slot: deque(maxlen=MARKS) for slot in range(slots)}
        self._doing: dict[int, tuple[str, str]] = {}
        self._marked_at = -math.inf

    def take(self, lines: Sequence[Line], now: float, letter: dict[str, str]) -> None:
        """Record events, and every two seconds add a mark to each slot's history."""
        for line in lines:
            self._follow(line, letter)
        if now - self._marked_at >= MARK_SECONDS:
            self._marked_at = now
            for slot, marks in self.marks.items():
                marks.append(self._doing.get(slot, ("", IDLE))[1])

    def _follow(self, line: Line, letter: dict[str, str]) -> None:
        mine = [slot for slot, (job, _) in self._doing.items() if job == line.job]
        if line.event in ENDS or line.event == RESIZED:
            for slot in mine:
                del self._doing[slot]
        if line.event in ("start", "suspending", "running", "resumed", RESIZED):
            mark = letter.get(line.app, "?") if line.event in ("running", "resumed", RESIZED) else BUSY
            for slot in line.slots or mine:
                self._doing[slot] = (line.job, mark)


class Screen:
    """The screen of a live run.

    Args:
        record: record of the run.
        title: the first line.
        about_seconds: usual duration in seconds; corrected by the apps' progress while they run.
        started_at: Unix time of the start.
    """

    def __init__(self, record: LiveRecord, *, title: str, about_seconds: float, started_at: float) -> None:
        self._record = record
        self._title = title
        self._about = about_seconds
        self._started_at = started_at
        self._history: History | None = None

    def draw(self, look: Look) -> Group:
        """Return the whole screen."""
        if self._history is None and look.slots:
            self._history = History(len(look.slots))
        letter = letters(app.app for app in look.apps)
        if self._history is not None:
            self._history.take(look.news.lines, look.at, letter)
        parts = [
            Text(self._title, style="bold"),
            self._bar(look),
            Text(""),
            Text(GOING_ON),
            Text(HOW_WITH_AUCTIONS if self._record.rounds.auctions else HOW),
            Text(_now_in_words(look)),
            Text(""),
            *self._slots(look, letter),
            Text(""),
            *self._apps(look, letter),
            Text(""),
            *self._auction(look.at, letter),
            self._foot(),
        ]
        return Group(*parts)

    # -- parts

    def _bar(self, look: Look) -> Text:
        width, passed = 58, look.at - self._started_at
        about = about_seconds(look.apps, passed, self._about)
        done = min(width - 1, int(width * passed / about))
        text = Text("━" * done, style="green")
        text.append("╺" + "━" * (width - 1 - done), style="bright_black")
        text.append(
            f"  {clock(passed)} of about {clock(about)}    Ctrl-C stops and still writes the report",
            style="default",
        )
        return text

    def _slots(self, look: Look, letter: dict[str, str]) -> list[Text]:
        lines = [Text(f"slot  {'runs':<16}{'iteration':<24}{'lease ends':<12}last 60 s (a mark is 2 s; "
                      f"{BUSY} start, save or restore, {IDLE} idle)", style="bright_black")]  # fmt: skip
        for view in look.slots:
            runs = _short(self._record, view.job) or (view.app and f"({view.app})") or "-"
            most = f" of {view.iterations:.0f}" if view.HasField("iterations") else ""
            done = f"{view.iterations_done:.0f}{most}" if view.HasField("iterations_done") else ""
            if view.HasField("reported_seconds_ago"):
                done += f", {view.reported_seconds_ago:.0f} s old"
            ends = f"{view.ends_in_seconds:.0f} s" if view.HasField("ends_in_seconds") else ""
            line = Text(f"{view.gpu:<6}")
            line.append(f"{runs:<16}", style=_style(view.app, letter))
            line.append(f"{done:<24}{ends:<12}")
            marks = self._history.marks.get(view.gpu, ()) if self._history is not None else ()
            for mark in marks:
                line.append(mark, style=_mark_style(mark, letter))
            lines.append(line)
        return lines

    def _apps(self, look: Look, letter: dict[str, str]) -> list[Text]:
        head = f"{'app':<16}{'tuner':<20}{'ρ':<7}{'slots':<9}{'running':<9}{'waiting':<9}{'paused':<8}{'ended':<7}"
        lines = [Text(f"{head}{'best':<8}last", style="bright_black")]
        for app in sorted(look.apps, key=lambda each: each.app):
            line = Text(f"{letter[app.app]} {app.app:<14}", style=_style(app.app, letter))
            rho = f"{app.rho:.2f}" if app.HasField("rho") else "-"
            held = f"{app.slots} of {app.max_slots}"
            line.append(f"{app.tuner:<20}{rho:<7}{held:<9}", style="default")
            line.append(f"{app.running:<9}{app.waiting:<9}{app.paused:<8}{app.ended:<7}", style="default")
            line.append(f"{app.best:<8.3f}" if app.HasField("best") else f"{'-':<8}", style="default")
            last = app.standing.last if app.state not in OVER else app.state
            last = f"{app.failed} failed; {last}" if app.failed else last
            line.append(last[:44], style="default")
            lines.append(line)
        return lines

    def _auction(self, now: float, letter: dict[str, str]) -> list[Text]:
        if not self._record.rounds.auctions:
            return [Text("no auction yet", style="bright_black")]
        made = self._record.rounds.auctions[-1]
        lines = [Text(f"{title_of(made)}, {now - (made.decided_at or made.at):.0f} s ago")]
        lines.append(Text(
            f"{'bidder':<16}{'ρ now':<8}{'with':<10}{'ρ then':<9}{'gain':<7}{'wins':<7}pays 1 - c", style="bright_black"
        ))  # fmt: skip
        bids = (Text(bid_of(row, letter), style=_style(row["app"], letter)) for row in made.lines)
        return [*lines, *bids, *(Text(line, style="bright_black") for line in COLUMNS_OF_AN_AUCTION)]

    def _foot(self) -> Text:
        suspended = sum(line.event == "suspended" for line in self._record.lines)
        resumed = sum(line.event == "resumed" for line in self._record.lines)
        faults = sum(made.fault is not None for made in self._record.rounds.rounds)
        auctions = len(self._record.rounds.auctions)
        return Text(f"{auctions} auctions · {suspended} suspensions, {resumed} resumes · {faults} faults")


def title_of(made: Round) -> str:
    """Return a title such as ``auction 14: 2 slots offered to the 3 worst-off of 4 apps``."""
    lines = made.lines
    offered = lines[0]["offered_slots"] if lines else made.offered
    shown = made.shown_to if made.shown_to is not None else made.bidders
    slots = f"{offered} slot{'' if offered == 1 else 's'}"
    return f"auction {made.number}: {slots} offered to the {shown} worst-off of {lines[0]['apps']} apps"


def bid_of(row: dict[str, object], letter: dict[str, str]) -> str:
    """Return one app's bid in an auction, with its result, as a line of the screen."""
    app = str(row["app"])
    least = row["won_slots"] or row["asked_least"]
    then = row["rho_won"] if row["rho_won"] is not None else row["rho_least"]
    with_slots = f"{least} slot{'' if least == 1 else 's'}" if least else "-"
    c = row["c"]
    pays = f"{1 - c:.2f}" if isinstance(c, float) and c < 1 else "-"
    wins = f"{row['kept_slots']}" + (f" +{row['leftover_slots']}" if row["leftover_slots"] else "")
    return (
        f"{letter.get(app, '?')} {app:<14}{_number(row['rho_now']):<8}{with_slots:<10}{_number(then):<9}"
        f"{_number(row['gain']):<7}{wins:<7}{pays}"
    )


def event_lines(look: Look, record: LiveRecord, started_at: float) -> list[str]:
    """Return the new events, one line each, for output without a terminal."""
    made = [
        (line.at, f"{_short(record, line.job)} {line.event} at {line.step}")
        for line in look.news.lines
        if line.event not in ("saved", "start", "suspending")
    ]
    for step in look.news.steps:
        if not step.decision.records:
            continue
        held = next((each for each in record.rounds.auctions if each.decided_at == step.at), None)
        if held is not None:
            made.append((step.at, f"{title_of(held)}: {_winners(held)}"))
    for app, life in record.apps.items():
        if life.ended_at is not None and any(step.at == life.ended_at for step in look.news.steps):
            made.append((life.ended_at, f"{app} {life.state}"))
    return [f"{clock(at - started_at)}  {text}" for at, text in sorted(made)]


def end_lines(outcome: DemoOutcome, report: str) -> list[str]:
    """Return the final table, a line about the outcome, and the path of the report."""
    head = f"{'app':<14}{'state':<12}{'ρ':<8}{'JCT':<9}{'slot time':<11}{'trials':<8}"
    lines = [f"{head}{'best val/accuracy, trial':<66}{'suspended':<11}done twice"]
    for app in outcome.apps:
        best = "-" if app.best is None else f"{app.best:.3f}   {app.best_job:<16}{app.best_params}"
        jct = "-" if app.jct_seconds is None else f"{app.jct_seconds:.0f} s"
        left = (
            f"{app.app:<14}{app.state:<12}{_number(app.rho):<8}{jct:<9}{app.slot_seconds:<4.0f} s     {app.trials:<8}"
        )
        lines.append(f"{left}{best:<66}{app.suspended:<11}{app.twice}")
    lines += [_failures(app) for app in outcome.apps if app.failed]
    lines.append(_last_line(outcome))
    return [*lines, f"Report   {report}"]


def _failures(app: AppOutcome) -> str:
    which = "" if app.failed == 1 else "the last, "
    return f"{app.app}: {failed_in_words(app.failed, app.trials)}: {which}{app.last_error}"


def _last_line(outcome: DemoOutcome) -> str:
    apps = count(len(outcome.apps), "app")
    done = apps if outcome.finished == len(outcome.apps) else f"{outcome.finished} of {apps}"
    resumed = "all" if outcome.resumed == outcome.suspensions else f"{outcome.resumed} of them"
    twice = f"{outcome.held_twice[0]}" if outcome.held_twice else "no slot held twice"
    said = [
        f"{done} finished in {clock(outcome.seconds)}",
        *([f"{count(outcome.failed_trials, 'trial')} failed"] if outcome.failed_trials else []),
        f"{count(outcome.auctions, 'auction')}, {outcome.paid} with payments" if outcome.auctions else "no auctions",
        count(outcome.suspensions, "suspension") + (f", {resumed} resumed" if outcome.suspensions else ""),
        "slots in use " + percent(outcome.in_use),
        twice,
    ]
    return " · ".join(said)


def _winners(made: Round) -> str:
    said = []
    for row in made.lines:
        if row["kept_slots"]:
            pays = f" paying {1 - row['c']:.2f}" if row["c"] is not None and row["c"] < 1 else ""
            said.append(f"{row['app']} wins {row['kept_slots']}{pays}")
        if row["leftover_slots"]:
            said.append(f"{row['app']} gets {row['leftover_slots']} left over")
    return ", ".join(said) or "no app wins"


def _short(record: LiveRecord, job: str) -> str:
    """Return a job's short name: that of its app, if the app has no other job."""
    app = job.rpartition("/")[0]
    alone = sum(known.rpartition("/")[0] == app for known in record.jobs) == 1
    return app if job and alone else job


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "-"


def _style(app: str, letter: dict[str, str]) -> str:
    names = sorted(letter)
    return COLOURS[names.index(app) % len(COLOURS)] if app in names else "default"


def _mark_style(mark: str, letter: dict[str, str]) -> str:
    app = next((app for app, known in letter.items() if known == mark), "")
    return _style(app, letter) if app else "bright_black"
