"""What becomes of a damaged journal: the arbiter's start is tried as it is, and compared with that of a whole one.

A start that is refused, or that asks, must name what a user can do, and each of these ways must lead to a start.
"""

import dataclasses
import shutil
import time
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import structlog

from chaos.damage.world import JOURNAL, LAYOUT
from eunomia.errors import EunomiaError, InputError
from eunomia.journal.journal import Journal
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.commands.journal import save
from eunomia_appmaster.explaining.dry_recovery import try_recovery
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.service.marks import ACCEPT
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import Settings

BACKUP, SALVAGE, NEW_JOURNAL = "estore a backup", "eunomia journal salvage", "begin a new one"
CURES = (BACKUP, SALVAGE, NEW_JOURNAL, ACCEPT)
CLOCK_SECONDS = 60.0


class End(Enum):
    """What a damage came to."""

    REFUSED = "refused, the remedy works"
    ASKED = "asked, the answer works"
    HARMLESS = "harmless"
    SAID = "said, and gone on"
    ONE_APP = "one app lost, named"
    SILENT = "silent, or no remedy works"
    CRASHED = "crashed"
    UNSEEN = "not found by check"


@value
class Outcome:
    """Of one damage."""

    end: End
    what: str


@dataclasses.dataclass(slots=True)
class Begun:
    """An arbiter's state after its start, and what it said."""

    state: bytes
    apps: dict[str, Any]
    kept: tuple[Any, ...]
    ahead: float
    """The arbiter's clock before Unix time."""
    said: list[str]
    question: str
    """What it asks; empty: it decides."""


def begin(folder: Path, *, accept: bool = False) -> Begun:
    """Start a service as its process does, up to the moment at which it would serve, and write a step unless it asks.

    Args:
        folder: the state folder.
        accept: whether lost steps are accepted.

    Raises:
        InputError: it refuses the journal.
    """
    settings = Settings(state_dir=folder, durable=False, accept_loss=accept)
    with structlog.testing.capture_logs() as logs:
        journal = Journal.open(settings.journal, durable=False)
        try:
            service = Service(settings, journal, Profile.load("default"), Profile.fallback())
            if service.nodes.layout is None:  # a launcher registers
                service.nodes.layout = LAYOUT
                journal.set_meta(layout=LAYOUT.encoded())
            service._begin()
            begun = _state(service)
            if not service.question:
                later = Seconds(max(float(service.driver.clock.now()), float(service.view.now)) + 1.0)
                journal.append(later, [], service.driver.arbiter.step(later, []))
                service.marks.follow()
                journal.checkpoint(service.driver.arbiter.save())
            service.marks.close()
        finally:
            journal.close()
    begun.said = [str(line) for line in logs if line["log_level"] in ("error", "warning")]
    return begun


def _state(service: Service) -> Begun:
    return Begun(
        state=service.driver.arbiter.save(),
        apps={app.name: dataclasses.asdict(app) for app in (*service.apps, *service.apps.archived())},
        kept=(
            service.seed,
            service.tokens.container_secret("box"),
            None if service.nodes.layout is None else service.nodes.layout.encoded(),
        ),
        ahead=float(service.driver.clock.now()) - time.time(),
        said=[],
        question=service.question,
    )


def judge(folder: Path, whole: Begun, backup: Path) -> Outcome:
    """Try check, start and cures on a damaged folder (which is changed).

    Args:
        folder: the damaged one.
        whole: the start of the undamaged one.
        backup: an older copy of the journal.
    """
    try:
        found = check_folder(folder).found > 0 or try_recovery(folder / JOURNAL).lines() != []
    except InputError:
        found = True
    except Exception:
        return Outcome(end=End.CRASHED, what=f"check: {traceback.format_exc()}")
    try:
        begun = begin(folder)
    except InputError as error:
        return _cured(folder, End.REFUSED, str(error), backup)
    except Exception:
        return Outcome(end=End.CRASHED, what=traceback.format_exc())
    made = _asked(folder, begun, whole, backup) if begun.question else _compared(begun, whole)
    if made.end in (End.ONE_APP, End.ASKED) and not found:
        return Outcome(end=End.UNSEEN, what=made.what)
    return made


def _asked(folder: Path, begun: Begun, whole: Begun, backup: Path) -> Outcome:
    unnamed = [app for app in whole.apps.keys() - begun.apps.keys() if app not in begun.question]
    if unnamed:
        return Outcome(end=End.SILENT, what=f"{unnamed} are gone, and it asks: {begun.question}")
    return _cured(folder, End.ASKED, begun.question, backup)


def _cured(folder: Path, end: End, said: str, backup: Path) -> Outcome:
    """Try each way out that is named on a copy of the folder: an arbiter must begin, and decide."""
    ways: dict[str, Callable[[Path], bool]] = {
        BACKUP: lambda copy: _begins_with(copy, backup),
        SALVAGE: _begins_salvaged,
        NEW_JOURNAL: _begins_a_new_one,
        ACCEPT: lambda copy: not begin(copy, accept=True).question,
    }
    named = [remedy for remedy in CURES if remedy in said]
    if not named:
        return Outcome(end=End.SILENT, what=f"no remedy: {said}")
    for remedy in named:
        copy = folder.with_name("cured")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        try:
            with structlog.testing.capture_logs():
                works = ways[remedy](copy) and not begin(copy).question
            if not works:
                return Outcome(end=End.SILENT, what=f"after the remedy ({remedy}) it asks still: {said}")
        except EunomiaError as error:
            return Outcome(end=End.SILENT, what=f"no remedy ({remedy}): {error}; it said {said}")
        except Exception:
            return Outcome(end=End.CRASHED, what=f"{remedy}: {traceback.format_exc()}")
    return Outcome(end=end, what=said)


def _without_journal(folder: Path) -> None:
    for name in (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"):
        (folder / name).unlink(missing_ok=True)


def _begins_with(folder: Path, backup: Path) -> bool:
    """Restore a backup; the arbiter asks for the steps since, if it knows of some."""
    _without_journal(folder)
    shutil.copyfile(backup, folder / JOURNAL)
    begun = begin(folder)
    return not begun.question or not begin(folder, accept=True).question


def _begins_a_new_one(folder: Path) -> bool:
    """Move the journal away; the arbiter names the option with which it begins a new one."""
    _without_journal(folder)
    try:
        return not begin(folder).question
    except InputError as error:
        return ACCEPT in str(error) and not begin(folder, accept=True).question


def _begins_salvaged(folder: Path) -> bool:
    """Save what is good; where nothing can be saved, the refusal names another way, and nothing was changed."""
    try:
        save(folder / JOURNAL)
    except InputError as error:
        if NEW_JOURNAL in str(error):
            return _begins_a_new_one(folder)
        return BACKUP in str(error)
    return not begin(folder).question


def _compared(begun: Begun, whole: Begun) -> Outcome:
    names = whole.apps.keys() | begun.apps.keys()
    changed = sorted(name for name in names if begun.apps.get(name) != whole.apps.get(name))
    said = [name for name in changed if any(name in line for line in begun.said)]
    same = begun.state == whole.state and begun.kept == whole.kept and abs(begun.ahead - whole.ahead) < CLOCK_SECONDS
    if not changed and same:
        return Outcome(end=End.HARMLESS, what="; ".join(begun.said)[:300])
    if same and len(changed) == 1 and said:
        return Outcome(end=End.ONE_APP, what=f"{changed[0]}: {'; '.join(begun.said)[:300]}")
    return Outcome(end=End.SILENT, what=f"changed {changed}, state the same: {same}; said {begun.said}")
