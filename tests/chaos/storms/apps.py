"""Four apps of a storm: three with the training helper and checkpoints, one whose script has neither."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from chaos.kills.runs import small_apps
from eunomia_testbed.live_runs.app_source import AppSource

RETRIES = 100
"""Of each job: beyond four signals in ten minutes each counts as a failure of its script."""
PLAIN_SECONDS = 12.0
"""Length of the script without the helper, which begins again from the start whenever it is hit."""
SCRIPT = f"""
import time
ends_at = time.monotonic() + {PLAIN_SECONDS}
while time.monotonic() < ends_at:
    time.sleep(0.05)
"""
PLAIN = f"""
[app]
name = "plain"
[job]
command = "python plain.py"
slots = 1
retries = {RETRIES}
"""


def storm_apps(folder: Path, length: float) -> list[AppSource]:
    """Return the first four apps; the script without the helper is written to a folder.

    Args:
        folder: for the script.
        length: of the others; with 1 they are done within half a minute on two idle cores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plain.py").write_text(SCRIPT)
    helped = [_tireless(source) for source in small_apps(length)][1:]
    return [*helped, AppSource(path=folder / "plain.toml", text=PLAIN)]


def more_apps(folder: Path, length: float) -> Iterator[AppSource]:
    """Yield further apps without end, the same in turn; the service numbers equal names."""
    return itertools.cycle(storm_apps(folder, length))


def _tireless(source: AppSource) -> AppSource:
    return dataclasses.replace(source, text=source.text.replace("[job]\n", f"[job]\nretries = {RETRIES}\n"))
