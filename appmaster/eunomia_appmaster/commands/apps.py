"""``eunomia apps``: the apps with their fairness, slots and trials."""

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from eunomia_appmaster.client import OVER, SUSPENDED, Client
from eunomia_appmaster.commands.console import (
    Address,
    AsJson,
    StateDir,
    duration,
    given,
    missing,
    missing_facts,
    now_utc,
    number,
    table,
)
from eunomia_appmaster.explaining.best_jobs import best_facts, best_job
from eunomia_appmaster.explaining.failures import (
    failure_facts,
    failure_text,
    notices_of,
    stall_facts,
    stall_texts,
    suspension_text,
)
from eunomia_appmaster.protocol import arbiter_pb2 as pb

HEADERS = ("APP", "USER", "STATE", "TUNER", "ρ", "SLOTS", "TRIALS", "BEST", "AGE", "ENDS IN")
MORE_HEADERS = ("RUN", "WAIT", "PAUSED", "DONE")
"""Additional columns with ``--verbose``."""
RIGHT = ("ρ", "SLOTS", "TRIALS", "AGE", "ENDS IN", *MORE_HEADERS)
WATCH_SECONDS = 1.0
MOST_NOTICES = 3
"""Maximum number of an app's notices in the table, which shows the last ones."""


def apps(
    ended: Annotated[bool, typer.Option("--all", help="Apps that are over, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="The states of trials, and the best one's parameters, too.")
    ] = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """List apps with their fairness, slots and trials."""
    with Client(address, state_dir=state_dir) as client:
        look = _Look(client, ended=ended, verbose=verbose)
        if not watch:
            typer.echo(look.json() if as_json else "\n".join(look.lines()))
        elif as_json or not sys.stdout.isatty():
            _follow(look, as_json=as_json)
        else:
            _redraw(look)


class _Look:
    """The repeated listing of ``eunomia apps --watch``.

    Args:
        client: calls the arbiter.
        ended: whether ended apps are shown.
        verbose: whether the states of trials and the best one's parameters are shown.
    """

    def __init__(self, client: Client, *, ended: bool, verbose: bool) -> None:
        self._client, self._ended, self._verbose = client, ended, verbose

    def json(self) -> str:
        return json.dumps(facts(self._client.list(ended=self._ended)))

    def lines(self) -> list[str]:
        """Return the lines of the table; if no app is live, a line about the ended apps is added."""
        answer = self._client.list(ended=self._ended)
        over = () if self._ended or answer.apps else self._client.list(ended=True).apps
        return lines(answer, over=over, verbose=self._verbose)


def facts(answer: pb.ListResponse) -> dict[str, Any]:
    """Return the answer as a JSON object."""
    return {
        "schema": "eunomia/apps@1",
        "at": now_utc(),
        "apps": [_facts(app) for app in answer.apps],
        "missing_slots": missing_facts(answer.missing_slots),
        "question": answer.question,
        "warnings": list(answer.warnings),
    }


def _facts(app: pb.App) -> dict[str, Any]:
    made: dict[str, Any] = {
        "app": app.app,
        "user": app.user,
        "state": app.state,
        "attempt": app.attempt,
        "part": app.part,
        "tuner": app.tuner,
        "rho": given(app, "rho"),
        "slots": app.slots,
        "slots_by_type": dict(app.slots_by_type),
        "max_slots": app.max_slots,
        "jobs": {"running": app.running, "waiting": app.waiting, "paused": app.paused, "ended": app.ended},
        "done": given(app, "done"),
        "trials": {"ended": app.ended, "all": _trials(app)},
        "best": given(app, "best"),
        "best_trial": None if (best := best_job(app.standing)) is None else best_facts(best),
        "age_seconds": app.age_seconds,
        "ends_in_seconds": given(app, "ends_in_seconds"),
        **failure_facts(app),
        "stalls": stall_facts(app),
        "notices": notices_of(app),
        "waits_for": app.waits_for or None,
    }
    if app.state in OVER:
        made |= {"jct_seconds": given(app, "jct_seconds"), "why": app.why}
    if app.state == SUSPENDED:
        made |= {
            "why": app.why,
            "tried_again_in_seconds": given(app, "tried_again_in_seconds"),
            "held_back": app.held_back,
        }
    return made


def lines(answer: pb.ListResponse, *, over: Sequence[pb.App] = (), verbose: bool = False) -> list[str]:
    """Return the answer as the lines of a table.

    Args:
        answer: the arbiter's.
        over: ended apps that are not in the answer; a line names the last to end.
        verbose: whether to add the states of trials, and a line with the parameters of each app's best trial.
    """
    shown = ["no apps (eunomia submit FILE brings one)"]
    if over:
        shown = [_last_ended(over)]
    if answer.apps:
        headers = (*HEADERS, *MORE_HEADERS) if verbose else HEADERS
        shown = table(headers, [_row(app)[: len(headers)] for app in answer.apps], right=RIGHT)
        shown += [text for app in answer.apps if verbose and (text := _parameters(app))]
        shown += [f"{app.app}: {text}" for app in answer.apps for text in _troubles(app)]
        shown += [line for app in answer.apps for line in _notices(app)]
    return [*shown, *filter(None, [missing(answer.missing_slots), answer.question, *answer.warnings])]


def _last_ended(over: Sequence[pb.App]) -> str:
    """Return a line with the number of ended apps, how and when the last one ended, and the command for details."""
    last = min(over, key=_ended_ago)
    command = f"eunomia best {last.app}" if last.standing.metric else f"eunomia explain {last.app}"
    ended = f"{last.app} {last.state} {duration(_ended_ago(last))} ago ({command})"
    return f"no live app; {ended}, {len(over)} ended in all (eunomia apps --all)"


def _ended_ago(app: pb.App) -> float:
    """Return the seconds since an app's end."""
    return max(0.0, app.age_seconds - app.jct_seconds)


def _troubles(app: pb.App) -> list[str]:
    """Return an app's suspension or failures, and its stalls, as text."""
    stalls = stall_texts(app)
    if app.state == SUSPENDED:
        return [suspension_text(app), *stalls]
    waits = f"no job of it can start: {app.waits_for}" if app.waits_for else ""
    return [*filter(None, [waits, failure_text(app) or (app.why if app.state == "failed" else "")]), *stalls]


def _notices(app: pb.App) -> list[str]:
    """Return the last notices of an app, one line each, about files that were lost or replaced after damage."""
    notices = notices_of(app)
    left_out = len(notices) - MOST_NOTICES
    lines = [one if one.startswith(f"{app.app}/") else f"{app.app}: {one}" for one in notices[-MOST_NOTICES:]]
    return [*lines, *([f"{app.app}: {left_out} earlier notices (eunomia apps --json)"] if left_out > 0 else [])]


def _trials(app: pb.App) -> int:
    """Return the number of an app's trials: the planned one if known, else the number created so far."""
    return max(app.trials, app.ended + app.running + app.waiting + app.paused)


def _best(app: pb.App) -> str:
    """Return the best metric and the trial that logged it: ``0.986 digits-sha/17``."""
    best = best_job(app.standing)
    return "-" if best is None or best.metric is None else f"{number(best.metric, 3)} {best.job}"


def _parameters(app: pb.App) -> str:
    """Return the best trial's parameters as a line; empty: there are none."""
    best = best_job(app.standing)
    if best is None or not best.settings:
        return ""
    at = "" if best.step is None else f" at step {best.step:,}"
    return f"{best.job}: {app.standing.metric} {number(best.metric, 4)}{at}: {best.settings}"


def _slots(app: pb.App) -> str:
    """Return the held slots as text: ``2``, or ``1 fast, 1 slow`` if the cluster has several types."""
    return ", ".join(f"{held} {kind}" for kind, held in sorted(app.slots_by_type.items())) or str(app.slots)


def _row(app: pb.App) -> tuple[str, ...]:
    """Return an app's row of the table: the cells of ``HEADERS`` and ``MORE_HEADERS``."""
    done, ends_in = given(app, "done"), given(app, "ends_in_seconds")
    over = app.state in OVER
    return (
        app.app,
        app.user,
        app.state,
        app.tuner,
        number(given(app, "rho")),
        f"{_slots(app)} of {app.max_slots}",
        f"{app.ended} of {_trials(app)}",
        _best(app),
        duration(app.jct_seconds if over else app.age_seconds),
        "-" if ends_in is None else duration(ends_in),
        str(app.running),
        str(app.waiting),
        str(app.paused),
        "-" if done is None else f"{100.0 * done:.0f} %",
    )


def _follow(look: _Look, *, as_json: bool) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            typer.echo(look.json() if as_json else "\n".join(look.lines()))
            sys.stdout.flush()
            time.sleep(WATCH_SECONDS)


def _redraw(look: _Look) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with contextlib.suppress(KeyboardInterrupt), Live(console=Console(), auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(look.lines()), no_wrap=True), refresh=True)
            time.sleep(WATCH_SECONDS)
