"""One damage to any file of a real run's state folder but the journal's, and what all parts of Eunomia make of it.

The folder is left by arbiter, launcher, app master and workers with work left. What is read after a restart is read
again from the damaged folder: a value that changed must be reported, and an error must name a remedy that works.
"""

import random
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.appmaster.serving_lab import client, supervisor
from tests.appmaster.state_folder import APP, Kind, Seen, Snapshot, damage, files_of, flipped, kind_of, made, read_all

from chaos.damage.outcome import End, Outcome
from eunomia.errors import EunomiaError

MOST_BYTES: Final = 16
BOTH: Final = 0.15
"""Share of the damages to a file with an older copy that hit both."""
UNSEEN: Final[Mapping[Kind | None, tuple[str, ...]]] = {
    Kind.LEFT_OUT: ("removed",),
    Kind.LOG: ("cut", "empty", "removed", "zeroed"),
}
"""Damages after which a file is as if less had been written."""
CURES: Final = ("restore it from a backup", "submit the app's file again")
Damaging = Callable[[bytes, random.Random], bytes | None]


def _some_bytes(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return content
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.randint(1, MOST_BYTES))
    return content[:start] + chance.randbytes(end - start) + content[end:]


DAMAGES: Final[Mapping[str, Damaging]] = {
    "bit": lambda content, chance: flipped(content, chance.random()),
    "bytes": _some_bytes,
    "cut": lambda content, chance: content[: chance.randrange(len(content) or 1)],
    "empty": lambda content, chance: b"",
    "removed": lambda content, chance: None,
    "swapped": lambda content, chance: content[len(content) // 2 :] + content[: len(content) // 2],
    "zeroed": lambda content, chance: bytes(len(content)),
}


def run_side_files(place: Path, damages: int, seed: int, starts: int) -> Iterator[tuple[int, str, Outcome]]:
    """Damage one file, or a file and its older copy, again and again; yield seed, damage and outcome of each.

    Args:
        place: an empty folder.
        damages: how many.
        seed: of the first.
        starts: after so many of them, spread evenly, everything is started on the folder, too.
    """
    snapshot = made(place)
    snapshot.restore()
    good = read_all(snapshot.state)
    files = [file for file in files_of(snapshot.copy) if kind_of(file) is not Kind.JOURNAL]
    for number in range(seed, seed + damages):
        chance = random.Random(number)
        file, how = chance.choice(files), chance.choice(sorted(DAMAGES))
        older = f"{file}.old"
        both = [file, older] if older in files and chance.random() < BOTH else [file]
        snapshot.restore()
        for one in both:
            damage(snapshot.state / one, partial(_damaged, how, chance))
        outcome = _judged(snapshot, good, file, how, both=len(both) == 2)
        done = number - seed
        if starts and done * starts // damages != (done + 1) * starts // damages and outcome.end is not End.REFUSED:
            outcome = _started(snapshot) or outcome
        yield number, f"side file: {how}: {' and '.join(both)}", outcome


def _damaged(how: str, chance: random.Random, content: bytes) -> bytes | None:
    return DAMAGES[how](content, chance)


def _judged(snapshot: Snapshot, good: Seen, file: str, how: str, *, both: bool) -> Outcome:
    try:
        seen = read_all(snapshot.state)
        if seen.errors:
            return _cured(snapshot, good, file, "; ".join(map(str, seen.errors.values())))
    except Exception:
        return Outcome(end=End.CRASHED, what=traceback.format_exc())
    changed = sorted(key for key, value in good.values.items() if seen.values.get(key) != value)
    if not changed:
        return Outcome(end=End.HARMLESS, what=seen.said[:300])
    kind = kind_of(file)
    if how == "removed" and Path(file).name in ("launcher.json", "secret"):
        return Outcome(end=End.HARMLESS, what="as in a new folder; the launcher writes it again")
    # A checkpoint's folder is its writer's; the one of the job's checkpoints is said.
    about = str(Path(file).parents[1]) if kind is Kind.CHECKPOINT else Path(file).name
    if about in seen.said:
        return Outcome(end=End.SAID, what=seen.said[:300])
    if how in UNSEEN.get(kind, ()) or (kind in (Kind.FREE, Kind.COPY) and "/live/" in file):
        return Outcome(end=End.HARMLESS, what="as if less had been written")
    if kind is Kind.AGAIN:
        return Outcome(end=End.HARMLESS, what="written again by the process that knows it")
    return Outcome(end=End.SILENT, what=f"{changed} changed{', both copies' if both else ''}; said {seen.said[:300]!r}")


def _cured(snapshot: Snapshot, good: Seen, file: str, said: str) -> Outcome:
    """Try the remedy that an error names: the file from a backup."""
    if kind_of(file) is Kind.AGAIN:  # the process that reads it waits for the one that writes it again
        return Outcome(end=End.HARMLESS, what=f"written again; until then: {said[:300]}")
    if not any(remedy in said for remedy in CURES):
        return Outcome(end=End.SILENT, what=f"no remedy: {said}")
    shutil.copy(snapshot.copy / file, snapshot.state / file)
    works = read_all(snapshot.state).values == good.values
    return Outcome(
        end=End.REFUSED if works else End.SILENT, what=said if works else f"the remedy does not work: {said}"
    )


def _started(snapshot: Snapshot) -> Outcome | None:
    """Start everything on the damaged folder; None: it starts, and the app finishes."""
    try:
        with supervisor(snapshot.state.parent) as running, client(running) as arbiter:
            state = arbiter.wait(APP, timeout="300s").state
    except EunomiaError as error:
        if any(remedy in str(error) for remedy in CURES):
            return None
        return Outcome(end=End.SILENT, what=f"serve does not start, and names no remedy: {error}")
    return None if state == "finished" else Outcome(end=End.SILENT, what=f"the app is {state}")
