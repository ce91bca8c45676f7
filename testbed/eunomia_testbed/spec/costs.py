"""Reads the costs of changes from texts such as ``start=20s``, and from a file that a replay has measured."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from eunomia.errors import InputError
from eunomia.words import shown
from eunomia_testbed.performance.replay_profiles import read_measured
from eunomia_testbed.simulator import Costs
from eunomia_testbed.spec.settings import filled


def costs_of(texts: Sequence[str], flag: str) -> Costs:
    """Return the costs given by texts: ``KEY=VALUE``, or the path of a replay's ``profiles.toml``.

    The file gives the measured means of start, checkpoint, restore, pause, join and release in seconds; ``KEY=VALUE``
    texts override them, in any order.

    Raises:
        InputError: a text is not a cost, there are several files, or the file is unreadable or has no costs.
    """
    files = [text for text in texts if _is_file(text)]
    if len(files) > 1:
        raise InputError("one file of measured costs must be given", value=", ".join(map(shown, files)), place=flag)
    base = _measured(files[0], flag) if files else None
    return filled(Costs, [text for text in texts if text not in files], flag, durations=True, base=base)


def _measured(file: str, flag: str) -> Costs:
    """Return the mean costs of a replay's ``profiles.toml``."""
    found = read_measured(Path(file)).costs
    costs = Costs(
        start=found.start_seconds,
        checkpoint=found.save_seconds,
        restore=found.restore_seconds,
        join=found.join_seconds,
        pause=found.pause_seconds,
        release=found.release_seconds,
    )
    if costs == Costs():
        rule = "a file of measured costs must have a table [costs] in which one is above 0"
        raise InputError(rule, value="none above 0", place=f"{flag} {file}")
    return costs


def costs_note(texts: Sequence[str], costs: Costs) -> list[str]:
    """Return a line with the effective costs if some come from a file; otherwise an empty list."""
    files = [text for text in texts if _is_file(text)]
    each = {field.name: getattr(costs, field.name) for field in dataclasses.fields(costs)}
    words = ", ".join(f"{name} {cost:.3g} s" for name, cost in each.items() if 0.0 < cost < math.inf)
    return [f"costs with those measured in {files[0]}: {words}"] if files else []


def _is_file(text: str) -> bool:
    return "=" not in text and (text.endswith(".toml") or "/" in text)
