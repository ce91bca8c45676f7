"""``eunomia explain``: shows why a job waits, which plugin decided so, and what would start it; or a job's result."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia_appmaster.client import OVER, Client
from eunomia_appmaster.commands.console import (
    NOT_KNOWN,
    Address,
    AsJson,
    StateDir,
    duration,
    given,
    missing,
    missing_facts,
    number,
    table,
)
from eunomia_appmaster.commands.explain_ends import ends, outcome_facts, outcome_lines, state_text, times
from eunomia_appmaster.commands.explain_past import in_the_past, last_waits
from eunomia_appmaster.commands.run_apps import app_of_run
from eunomia_appmaster.explaining.failures import notices_of, stall_facts, stall_texts
from eunomia_appmaster.explaining.metric_check import metric_not_logged
from eunomia_appmaster.protocol import arbiter_pb2 as pb

INDENT = " " * 11
WIDTH = 110

Run = Annotated[
    Path | None,
    typer.Option("--run", metavar="DIR", help="A run's folder: why it waited, the last time that it did."),
]
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help='With --run: why at that time after its start, "90s".')
]
History = Annotated[bool, typer.Option("--history", help="All that it waited for and when it ran, from the journal.")]


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="app/number, or an app: each of its jobs that wait.")],
    run: Run = None,
    at: At = None,
    history: History = False,
    as_json: AsJson = False,
    address: Address = None,
    state_dir: StateDir = None,
) -> None:
    """Show why a job waits, and what would let it start; of what has ended, what came out."""
    if at is not None and run is None:
        raise InputError("--at must come with --run", value=f'"{at}"')
    if history:
        _print_history(job, run or state_dir, as_json)
        return
    apps: Mapping[str, pb.App] = {}
    waits: Mapping[str, float] = {}
    if run is not None:
        from eunomia_appmaster.explaining.past_runs import PastRun

        moment = None if at is None else float(parse_duration(at, name="--at", zero=True))
        past = PastRun(run)
        found: Sequence[pb.Explanation] = past.explanations(job, moment)
        if moment is None:
            apps = {app.app: app for one in {one.app for one in found} if (app := app_of_run(run, one)) is not None}
            ended = ends(found, apps, job)
            waits = last_waits(found, ended, past.explained_at)
            found = [*ended, *found]
    else:
        with Client(address, state_dir=state_dir) as client:
            found = client.explanations(job)
            apps = {app.app: app for app in client.list().apps}
    if as_json:
        warnings = _warnings(found, apps)
        objects = [facts(one, apps.get(one.app), waits) | {"warning": warnings.get(one.app)} for one in found]
        typer.echo("\n".join(map(json.dumps, objects)))
    else:
        typer.echo("\n".join(screen(found, apps, waits)))


def facts(said: pb.Explanation, app: pb.App | None = None, waits: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return one explanation as a JSON object.

    Args:
        said: the explanation.
        app: the job's app, from which the results of an ended job are taken; None: unknown.
        waits: as in ``screen``.
    """
    ended = said.state in OVER
    return {
        "schema": "eunomia/explain@1",
        "job": said.job,
        "state": said.state,
        "seconds": None if ended else said.seconds,
        "reason": said.reason or None,
        "stage": said.stage or None,
        "plugin": said.plugin or None,
        "round": said.round if said.plugin else None,
        "text": said.text,
        "log": said.log or None,
        "numbers": dict(said.numbers),
        "frees": [_frees(way) for way in said.frees],
        "starts_in_seconds": list(said.starts_in_seconds) or None,
        "reported_seconds_ago": given(said, "reported_seconds_ago"),
        "by_logs": app is not None and app.standing.by_logs,
        "slots_by_node": dict(sorted(said.slots_by_node.items())),
        "nodes": list(said.nodes),
        "missing_slots": missing_facts(said.missing_slots),
        "stalls": None if app is None else stall_facts(app),
        "outcome": None if app is None else outcome_facts(said, app),
        "notices": [] if app is None else notices_of(app, said.job),
        "last_wait_at_seconds": None if ended else (waits or {}).get(said.job),
    }


def _frees(way: pb.Frees) -> dict[str, Any]:
    made: dict[str, Any] = {"what": way.what}
    if way.HasField("slot"):
        made["slot"] = way.slot
    if way.HasField("in_seconds"):
        made["in_seconds"] = way.in_seconds
    return made | ({"text": way.text} if way.text else {})


# --- as text -------------------------------------------------------------------------------------------------------


def screen(
    found: Sequence[pb.Explanation], apps: Mapping[str, pb.App], waits: Mapping[str, float] | None = None
) -> list[str]:
    """Return the explanations as text: one job in full; several jobs grouped by their reason.

    Args:
        found: the explanations.
        apps: their apps, by name.
        waits: in a past run, the time of each job's last wait, in seconds since the arbiter's start.
    """
    warnings = [_line("Metric", text) for text in _warnings(found, apps).values()]
    stalls = [_line("Stalled", text) for app in _named(found, apps) for text in stall_texts(app)]
    return [*_blocks(found, apps, waits or {}), *warnings, *stalls, *_notices(found, apps)]


def _named(found: Sequence[pb.Explanation], apps: Mapping[str, pb.App]) -> list[pb.App]:
    """Return the apps that the explanations are about, each once."""
    return [apps[name] for name in dict.fromkeys(one.app for one in found) if name in apps]


def _warnings(found: Sequence[pb.Explanation], apps: Mapping[str, pb.App]) -> dict[str, str]:
    """Return warnings by app about a metric that no trial logged."""
    return {app.app: text for app in _named(found, apps) if (text := metric_not_logged(app))}


def _notices(found: Sequence[pb.Explanation], apps: Mapping[str, pb.App]) -> list[str]:
    """Return a line for each notice, such as on a file that was lost or replaced, for all explained jobs and apps."""
    said = [text for one in found if one.app in apps for text in notices_of(apps[one.app], one.job)]
    return [_line("Notice", text) for text in dict.fromkeys(said)]


def _blocks(found: Sequence[pb.Explanation], apps: Mapping[str, pb.App], waits: Mapping[str, float]) -> list[str]:
    if len(found) == 1:
        return lines(found[0], apps.get(found[0].app))
    groups: dict[tuple[str, ...], list[pb.Explanation]] = {}
    for one in found:
        of_app = "" if one.job != one.app else one.job
        own = one.text if one.state == "running" else ""  # the forecast for this job alone
        groups.setdefault((one.state, one.reason, one.plugin, of_app, own, *one.nodes), []).append(one)
    blocks = []
    for group in groups.values():
        block = _group(group, apps) if len(group) > 1 else lines(group[0], apps.get(group[0].app))
        seen_at = [waits[one.job] for one in group if one.job in waits and one.state not in OVER]
        blocks.append(in_the_past(block, seen_at) if len(seen_at) == len(group) else block)
    return [line for block in blocks for line in (*block, "")][:-1]


def lines(said: pb.Explanation, app: pb.App | None) -> list[str]:
    """Return one explanation as lines of text."""
    out = [_head(said, app), *_body(said)]
    if app is not None:
        out += outcome_lines(said, app)
    if said.state == "waiting":
        out.append(_line("Starts", _starts(said)))
    if said.starts or said.waited_seconds or said.ran_seconds:
        text = f"ran {duration(said.ran_seconds)}, waited {duration(said.waited_seconds)}"
        out.append(_line("So far", f"{text}; started {times(said.starts)}" if said.starts else text))
    return out


def _group(group: Sequence[pb.Explanation], apps: Mapping[str, pb.App]) -> list[str]:
    """Return lines for jobs of an app with the same reason: the reason once, then one line per job."""
    first = group[0]
    if first.log:
        return _failed(group)
    about = f"app {first.app}, user {first.user}{_rho(apps.get(first.app))}"
    several = any(one.slots_by_node for one in group)
    rows = [
        [
            one.job,
            duration(one.seconds),
            _sizes(one),
            _iterations(one),
            _soon(one) if one.state == "waiting" else "-",
            *([_places(one)] if several else []),
        ]
        for one in group
    ]
    head = f"{first.app}   {len(group)} jobs {first.state.upper()}    {about}"
    app = apps.get(first.app)
    iteration = "LOGGED ITERATION" if app is not None and app.standing.by_logs else "ITERATION"
    shown = table(["JOB", "FOR", "SLOTS", iteration, "STARTS", *(["ON"] if several else [])], rows)
    return [head, *_body(first, of=first.job), *(INDENT + line for line in shown)]


def _failed(group: Sequence[pb.Explanation]) -> list[str]:
    """Return the failed jobs of an app, one line each."""
    rows = table(["JOB", "LAST ERROR", "LOG"], [[one.job, one.text or "-", one.log] for one in group])
    return [f"{group[0].app}   {len(group)} jobs FAILED", *(INDENT + row for row in rows)]


def _body(said: pb.Explanation, of: str = "") -> list[str]:
    out = [_line("Why", _why(said))] if said.reason else []
    if said.text:
        out += textwrap.wrap(said.text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    if not of and said.slots_by_node:
        out.append(_line("Runs on", _places(said)))
    out += [_line("Nodes" if at == 0 else "", text) for at, text in enumerate(said.nodes)]
    if said.missing_slots:
        out.append(_line("Missing", missing(said.missing_slots)))
    if said.log:
        out.append(_line("Log", said.log))
    if said.frees:
        out += _ways(said, f"{of}: " if of else "")
    return out


def _places(said: pb.Explanation) -> str:
    """Return the nodes of a running job as text: ``2 slots of n1, 1 slot of n2``; a dash: it has none."""
    places = sorted(said.slots_by_node.items())
    return ", ".join(f"{count} slot{'' if count == 1 else 's'} of {node}" for node, count in places) or NOT_KNOWN


def _ways(said: pb.Explanation, of: str) -> list[str]:
    """Return the remedies as lines, with as many remedies on a line as fit."""
    rows = [of]
    for way in (_way(way) for way in said.frees):
        fresh = rows[-1] in ("", of)
        wider = rows[-1] + ("" if fresh else "     ") + way
        rows = [*rows[:-1], wider] if fresh or len(wider) <= WIDTH - len(INDENT) else [*rows, way]
    return [_line("Frees it" if at == 0 else "", row) for at, row in enumerate(rows)]


def _line(word: str, text: str) -> str:
    return f"{word:<11}{text}"


def _head(said: pb.Explanation, app: pb.App | None) -> str:
    parts = [f"{said.job}   {state_text(said, app)}" + (f" for {duration(said.seconds)}" if said.seconds else "")]
    if app is not None and app.state in OVER and said.job == said.app:
        parts[0] += f" after {duration(app.jct_seconds)}"
    if said.app:
        parts.append(f"app {said.app}, user {said.user}{_rho(app)}")
    if said.least:
        parts.append(f"{'has' if said.slots else 'wants'} {_sizes(said)}")
    if said.HasField("iterations_done"):
        source = ", by its logs" if app is not None and app.standing.by_logs else ""
        parts.append(f"iteration {_iterations(said)}{source}{last_report(said)}")
    return "    ".join(parts)


def last_report(said: pb.Explanation | pb.SlotView) -> str:
    """Return text on the time since a running job's last report, if a report is overdue."""
    ago = given(said, "reported_seconds_ago")
    return "" if ago is None else f", last report {duration(ago)} ago"


def _rho(app: pb.App | None) -> str:
    rho = None if app is None else given(app, "rho")
    expects = "" if app is None or app.state in OVER else "expects "
    return "" if rho is None else f", {expects}ρ {number(rho)}"


def _sizes(said: pb.Explanation) -> str:
    sizes = str(said.least) if said.least == said.most else f"{said.least} to {said.most}"
    count = str(said.slots) if said.slots else sizes
    return f"{count} slot{'' if count == '1' else 's'}"


def _iterations(said: pb.Explanation) -> str:
    return f"{said.iterations_done:.0f}" + (f" of {said.iterations:.0f}" if said.HasField("iterations") else "")


def _why(said: pb.Explanation) -> str:
    by = f", said by {said.plugin} ({said.stage})" if said.plugin else ""
    when = f" in round {said.round}, {duration(said.said_seconds_ago)} ago" if said.plugin else ""
    return f"{said.reason}{by}{when}"


def _way(way: pb.Frees) -> str:
    slot = f"slot {way.slot}: " if way.HasField("slot") else ""
    when = f" in {duration(way.in_seconds)}" if way.HasField("in_seconds") else ""
    return f"{slot}{way.text or way.what}{when}"


def _starts(said: pb.Explanation) -> str:
    text = _soon(said)
    if "past_waits" in said.numbers:
        within, waits, rounds = (
            f"{said.numbers[name]:.0f}" for name in ("past_waits_within", "past_waits", "past_rounds")
        )
        text += f": {within} of {waits} waits of this app ended within {rounds} rounds"
    return text


def _soon(said: pb.Explanation) -> str:
    if not said.starts_in_seconds:
        return "not known"
    early, late = said.starts_in_seconds[0], said.starts_in_seconds[-1]
    return f"in {duration(early)}" + (f" to {duration(late)}" if late - early >= 1.0 else "")


# --- history ------------------------------------------------------------------------------------------------


_COLUMNS = ("JOB", "FROM", "FOR", "STATE", "SLOTS", "REASON", "SAID BY")


def _print_history(job: str, folder: Path | None, as_json: bool) -> None:
    from eunomia_appmaster.explaining.past_runs import PastRun
    from eunomia_appmaster.service.settings import default_state_dir

    spells = PastRun(folder or default_state_dir()).history(job)
    if as_json:
        typer.echo("\n".join(json.dumps(_spell(spell)) for spell in spells))
        return
    rows = [
        [
            spell.job,
            duration(spell.start),
            "-" if spell.end is None else duration(spell.end - spell.start),
            spell.state,
            str(spell.slots or "-"),
            ": ".join(filter(None, [spell.reason, spell.text])) or "-",
            spell.plugin or "-",
        ]
        for spell in spells
    ]
    typer.echo("\n".join(table(_COLUMNS, rows, ["FROM", "FOR", "SLOTS"])))


def _spell(spell: Any) -> dict[str, Any]:
    return {
        "schema": "eunomia/explain_history@1",
        "job": spell.job,
        "start_seconds": spell.start,
        "end_seconds": spell.end,
        "state": spell.state,
        "slots": spell.slots or None,
        "reason": spell.reason or None,
        "plugin": spell.plugin or None,
        "text": spell.text or None,
    }
