"""An audit as lines of a screen, and as plain values."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from eunomia_testbed.audit.auditing import Audit, Tally
from eunomia_testbed.audit.reasons import reason
from eunomia_testbed.audit.violations import Property
from eunomia_testbed.audit.wording import sentence, size_text

WIDTH: Final = 118


def screen_lines(made: Audit, files: Mapping[Property, Path]) -> list[str]:
    """The table of a profile, its counterexamples in words, and why it cannot have some properties."""
    lines = [f"{'property':<40} {'instances':>9} {'violated':>9}   {'largest':<28} smallest counterexample"]
    lines += [_line(tally, files.get(tally.kind)) for tally in made.tallies.values()]
    for tally in made.tallies.values():
        if tally.smallest is not None:
            lines += _wrapped(f"{files[tally.kind].name}: {sentence(tally.smallest)}")
    for kind in Property:
        why = reason(made, kind)
        if why:
            lines += _wrapped(f"{kind.label} cannot hold: {why}")
    return [*lines, summary(made)]


def summary(made: Audit) -> str:
    """The last line: how it was judged, the seed, and the CPU time."""
    judged = "whole GPUs" if made.policy.whole else "shares before rounding"
    count = next(iter(made.tallies.values())).instances
    cut = "; --within ended it" if made.cut_short else ""
    return (
        f"{made.policy.profile.name}: judged by {judged} on {count} instances, seed {made.policy.seed}, "
        f"{made.policy.rounds} rounds, {made.cpu_seconds:.1f} s of CPU time{cut}"
    )


def _line(tally: Tally, file: Path | None) -> str:
    if tally.smallest is None or tally.largest is None:
        return f"{tally.kind.label:<40} {tally.instances:>9} {_percent(tally):>9}   {'-':<28} none found"
    users, types, _ = tally.smallest.instance.size
    largest = size_text(tally.kind, tally.largest.size)
    name = "" if file is None else f"   {file.name}"
    shown = f"{tally.kind.label:<40} {tally.instances:>9} {_percent(tally):>9}   {largest:<28}"
    return f"{shown} {users} users, {types} types{name}"


def _percent(tally: Tally) -> str:
    return f"{100.0 * tally.share:.0f} %"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ")


def plain_audit(made: Audit, files: Mapping[Property, Path]) -> dict[str, Any]:
    """The same as plain values for JSON."""
    return {
        "profile": made.policy.profile.name,
        "judged": "whole GPUs" if made.policy.whole else "shares",
        "seed": made.policy.seed,
        "rounds": made.policy.rounds,
        "cpu_seconds": made.cpu_seconds,
        "cut_short": made.cut_short,
        "properties": [_plain(made, tally, files.get(tally.kind)) for tally in made.tallies.values()],
    }


def _plain(made: Audit, tally: Tally, file: Path | None) -> dict[str, Any]:
    return {
        "property": tally.kind.value,
        "instances": tally.instances,
        "violated": tally.violated,
        "largest": None if tally.largest is None else tally.largest.size,
        "mean": tally.mean,
        "smallest": None if tally.smallest is None else sentence(tally.smallest),
        "file": None if file is None else str(file),
        "cannot": reason(made, tally.kind) or None,
    }
