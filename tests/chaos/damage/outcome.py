"""What becomes of a damaged journal: the arbiter's start is tried as it is, and compared with that of a whole one."""

import dataclasses
import time
import traceback
from enum import Enum
from pathlib import Path
from typing import Any

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.journal.journal import Journal
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.units import Seconds
from eunomia_appmaster.explaining.dry_recovery import try_recovery
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.service.salvage import salvage
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.settings import Settings

CURES = ("estore a backup", "eunomia journal salvage", "begin a new one")
CLOCK_SECONDS = 60.0


class End(Enum):
    """What a damage came to."""

    REFUSED = "refused with a cure"
    HARMLESS = "harmless"
    ONE_APP = "one app lost, named"
    SILENT = "silent"
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


def begin(folder: Path) -> Begun:
    """Start a service as its process does, up to the moment at which it would serve, and write a step.

    Raises:
        InputError: it refuses the journal.
    """
    settings = Settings(state_dir=folder, durable=False)
    with structlog.testing.capture_logs() as logs:
        journal = Journal.open(settings.journal, durable=False)
        try:
            service = Service(settings, journal, Profile.load("default"), Profile.fallback())
            service._begin()
            state, now = service.driver.arbiter.save(), float(service.driver.clock.now())
            ahead = now - time.time()
            apps = {app.name: dataclasses.asdict(app) for app in (*service.apps, *service.apps.archived())}
            layout = None if service.nodes.layout is None else service.nodes.layout.encoded()
            kept = (service.seed, service.tokens.container_secret, layout)
            later = Seconds(max(now, float(service.view.now)) + 1.0)
            journal.append(later, [], service.driver.arbiter.step(later, []))
            journal.checkpoint(service.driver.arbiter.save())
        finally:
            journal.close()
    said = [str(line) for line in logs if line["log_level"] in ("error", "warning")]
    return Begun(state=state, apps=apps, kept=kept, ahead=ahead, said=said)


def judge(folder: Path, whole: Begun) -> Outcome:
    """Try check, start and salvage on a damaged folder (which is changed)."""
    try:
        found = check_folder(folder).found > 0 or try_recovery(folder / "journal.sqlite").lines() != []
    except InputError:
        found = True
    except Exception:
        return Outcome(end=End.CRASHED, what=f"check: {traceback.format_exc()}")
    try:
        begun = begin(folder)
    except InputError as error:
        return _refused(folder, error)
    except Exception:
        return Outcome(end=End.CRASHED, what=traceback.format_exc())
    made = _compared(begun, whole)
    if made.end is End.ONE_APP and not found:
        return Outcome(end=End.UNSEEN, what=made.what)
    return made


def _refused(folder: Path, error: InputError) -> Outcome:
    """A refusal must name a cure, and saving what is good must end well or be refused with a cure of its own."""
    if not any(cure in str(error) for cure in CURES):
        return Outcome(end=End.SILENT, what=f"no cure: {error}")
    try:
        salvage(folder / "journal.sqlite")
        dry = try_recovery(folder / "journal.sqlite")
        if dry.refused is not None and not any(cure in dry.refused for cure in CURES):
            return Outcome(end=End.SILENT, what=f"no cure after salvage: {dry.refused}")
    except EunomiaError as second:
        if not any(cure in str(second) for cure in CURES):
            return Outcome(end=End.SILENT, what=f"no cure by salvage: {second}")
    except Exception:
        return Outcome(end=End.CRASHED, what=f"salvage: {traceback.format_exc()}")
    return Outcome(end=End.REFUSED, what=str(error))


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
