"""Formats an audit as lines of text and as plain values."""

import textwrap
from typing import Any, Final

from eunomia_testbed.audit.full import FullAudit
from eunomia_testbed.audit.reasons import reason
from eunomia_testbed.audit.tally import Tally
from eunomia_testbed.audit.violations import Property, Violation
from eunomia_testbed.audit.wording import sentence, size_text

WIDTH: Final = 118


def file_name(found: Violation) -> str:
    """Return the name of a counterexample's file in its profile's folder."""
    return f"{'rounds_' if found.over_rounds else ''}{found.kind.value}.json"


def screen_lines(made: FullAudit) -> list[str]:
    """Return as lines a profile's table, its counterexamples, and why it cannot have some of the properties."""
    lines = [f"{'property':<40} {'instances':>9} {'violated':>9}   {'largest':<28} smallest counterexample"]
    lines += [_line(tally) for tally in made.once.tallies.values()]
    if made.over_rounds:
        lines += ["over simulated rounds", *(_line(tally) for tally in made.over_rounds.values()), times_text(made)]
    for tally in made.tallies:
        if tally.smallest is not None:
            lines += _wrapped(f"{file_name(tally.smallest)}: {sentence(tally.smallest)}")
    for kind in Property:
        why = reason(made.once, kind)
        if why:
            lines += _wrapped(f"{kind.label} cannot hold: {why}")
    return [*lines, summary(made)]


def times_text(made: FullAudit) -> str:
    """Return as text rho and the deviation from ideal shares over rounds; empty: no rounds were simulated."""
    if not made.times:
        return ""
    worst = max(rho for each in made.times for rho in each.rho)
    above = sum(each.above_1 for each in made.times) / len(made.times)
    most = max(each.deviation for each in made.times)
    return (
        f"worst ρ {worst:.3g}, above 1: {100.0 * above:.0f} % of the users, "
        f"largest deviation from ideal shares {100.0 * most:.2g} % of the GPU time"
    )


def summary(made: FullAudit) -> str:
    """Return the last line: the method of the audit, the seed, and the CPU time."""
    judged = "whole GPUs" if made.once.policy.whole else "shares before rounding"
    count = next(iter(made.once.tallies.values())).instances
    cut = "; --within ended it" if made.cut_short else ""
    return (
        f"{made.name}: judged by {judged} on {count} instances, seed {made.once.policy.seed}, "
        f"{made.once.policy.rounds} rounds, {len(made.times)} instances over rounds, "
        f"{made.cpu_seconds:.1f} s of CPU time{cut}"
    )


def _line(tally: Tally) -> str:
    if tally.instances == 0:
        return f"{tally.kind.label:<40} {0:>9} {'-':>9}   {'-':<28} not judged"
    if tally.smallest is None or tally.largest is None:
        return f"{tally.kind.label:<40} {tally.instances:>9} {_percent(tally):>9}   {'-':<28} none found"
    users, types, _ = tally.smallest.instance.size
    largest = size_text(tally.kind, tally.largest.size)
    shown = f"{tally.kind.label:<40} {tally.instances:>9} {_percent(tally):>9}   {largest:<28}"
    return f"{shown} {users} users, {types} types   {file_name(tally.smallest)}"


def _percent(tally: Tally) -> str:
    return f"{100.0 * tally.share:.0f} %"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ")


def plain_audit(made: FullAudit) -> dict[str, Any]:
    """Return the audit as plain values for JSON."""
    return {
        "profile": made.name,
        "judged": "whole GPUs" if made.once.policy.whole else "shares",
        "seed": made.once.policy.seed,
        "rounds": made.once.policy.rounds,
        "cpu_seconds": made.cpu_seconds,
        "cut_short": made.cut_short,
        "properties": [_plain(made, tally, reason(made.once, kind)) for kind, tally in made.once.tallies.items()],
        "over_rounds": [_plain(made, tally, "") for tally in made.over_rounds.values()],
        "times": [{"rho": list(each.rho), "deviation": each.deviation} for each in made.times],
    }


def _plain(made: FullAudit, tally: Tally, cannot: str) -> dict[str, Any]:
    return {
        "property": tally.kind.value,
        "instances": tally.instances,
        "violated": tally.violated,
        "largest": None if tally.largest is None else tally.largest.size,
        "mean": tally.mean,
        "smallest": None if tally.smallest is None else sentence(tally.smallest),
        "file": None if tally.smallest is None else f"{made.name}/{file_name(tally.smallest)}",
        "cannot": cannot or None,
    }
