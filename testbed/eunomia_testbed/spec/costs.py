"""Reads what changes of a job cost: from ``start=20s`` and the like, and from a file that a replay has measured."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from eunomia.errors import InputError
from eunomia.words import shown
from eunomia_testbed.replay.profiles import read_measured
from eunomia_testbed.simulator import Costs
from eunomia_testbed.spec.settings import filled


def costs_of(texts: Sequence[str], flag: str) -> Costs:
    """Return the costs of some texts: ``KEY=VALUE``, or the path of a replay's ``profiles.toml``.

    The file gives the measured means of start, checkpoint, restore, pause, join and release; texts replace them, in any
    order.

    Raises:
        InputError: a text is no cost, there are several files, or the file cannot be read.
    """
    files = [text for text in texts if "=" not in text and text.endswith(".toml")]
    given = filled(Costs, [text for text in texts if text not in files], flag, durations=True)
    if not files:
        return given
    if len(files) > 1:
        raise InputError("one file of measured costs must be given", value=", ".join(map(shown, files)), place=flag)
    measured = read_measured(Path(files[0])).costs
    before = Costs(
        start=measured.start_seconds,
        checkpoint=measured.save_seconds,
        restore=measured.restore_seconds,
        join=measured.join_seconds,
        pause=measured.pause_seconds,
        release=measured.release_seconds,
    )
    named = {text.partition("=")[0].strip().replace("-", "_").removesuffix("_seconds") for text in texts}
    changes = {name: getattr(given, name) for name in (field.name for field in dataclasses.fields(given))}
    return dataclasses.replace(before, **{name: cost for name, cost in changes.items() if name in named})
