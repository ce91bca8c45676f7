"""The service's own data in the journal, which it reads at its start in addition to the arbiter's state.

Damaged data that exist nowhere else are an error that names the remedy; data that can be derived are rewritten; a
damaged note affects only its app.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import structlog

from eunomia.arbiter import ClusterView
from eunomia.errors import InputError
from eunomia.journal.files import MOVE_AWAY, REMEDY
from eunomia.journal.journal import Journal, JournalReader
from eunomia.journal.sums import UNREADABLE
from eunomia.model.shapes import value
from eunomia_appmaster.service.app_record import NOTE, App, read_app
from eunomia_appmaster.service.layout import MACHINE_NOTE, Layout
from eunomia_appmaster.service.nodes import Node
from eunomia_appmaster.service.salvage import NOWHERE_ELSE
from eunomia_appmaster.service.tokens import new_secret

log = structlog.get_logger()

LOST_NOTE: Final = (
    "its note in the journal was damaged or missing; its folder and checkpoints are kept, submit it again"
)


@value
class Kept:
    """Data in the journal that concern the whole run."""

    secret: bytes
    seed: int
    begun: Layout | None
    """The layout of the first node; None if no node has registered yet."""
    layout: Layout | None
    """The layout of all machines, without later ones whose notes are damaged."""
    profile: object
    """Text of the profile that was used last; None if not known."""


def kept_of(journal: Journal, seed: int) -> Kept:
    """Return a journal's data for the whole run; a new journal gets a secret and ``seed``.

    Raises:
        InputError: a page of the file, or a value that exists nowhere else, is damaged or missing.
    """
    journal.check_pages()
    meta, damage = journal.meta, journal.damage()
    began = journal.last_step > 0 or bool(journal.notes(NOTE)) or any(key in meta for key in NOWHERE_ELSE)
    if not began and not damage.meta:
        journal.set_meta(secret=new_secret().hex(), seed=seed)
        meta = journal.meta
    for line in said_of(journal):
        log.error("journal.damaged", what=line, journal=str(journal.path))
    check_notes(journal)
    return _read(journal, meta)


def said_of(journal: Journal | JournalReader) -> list[str]:
    """Return a line on each damage outside of steps and checkpoints; if notes are missing, also on apps without one."""
    damage = journal.damage()
    lines = damage.words()
    if damage.missing:
        known, folder = journal.notes(NOTE), journal.path.parent / "apps"
        names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        unknown = [name for name in names if name not in known and not name.startswith(".")]
        lines.append(f"folders of apps without a note: {', '.join(unknown) or 'none'}")
    return lines


def check_notes(journal: Journal | JournalReader) -> None:
    """Check that no note is stale (older than its last written version), since the affected apps would be unknown.

    Raises:
        InputError: a note is stale; the message names the remedy.
    """
    if journal.damage().stale:
        rule = f"a journal's notes must be those that were written last; {REMEDY}"
        raise InputError(rule, value="some are older", place=str(journal.path))


def read_kept(journal: JournalReader) -> Kept:
    """Return the data of ``kept_of`` from a journal that is open only for reading.

    Raises:
        InputError: as ``kept_of``.
    """
    journal.check_pages()
    check_notes(journal)
    return _read(journal, journal.meta)


def _read(journal: Journal | JournalReader, meta: dict[str, Any]) -> Kept:
    for key in NOWHERE_ELSE:
        if key not in meta and (key != "layout" or journal.last_step > 0):
            _refuse(journal, key, "none that is as it was written")
    try:
        secret, seed = bytes.fromhex(meta["secret"]), meta["seed"]
    except UNREADABLE:
        _refuse(journal, "secret", "no hexadecimal text")
    if len(secret) < 16 or not isinstance(seed, int):
        _refuse(journal, "secret and seed", "a short secret, or a seed that is no integer")
    try:
        begun = Layout.decoded(meta["layout"]) if "layout" in meta else None
        layout = None if begun is None else begun.with_notes(journal.notes(MACHINE_NOTE))
    except (InputError, *UNREADABLE) as error:
        _refuse(journal, "layout", str(error)[:200])
    return Kept(secret=secret, seed=seed, begun=begun, layout=layout, profile=meta.get("profile"))


def _refuse(journal: Journal | JournalReader, key: str, got: str) -> Any:
    rule = f"a journal must hold its {key}, which nothing else holds: restore a backup, or {MOVE_AWAY}"
    raise InputError(rule, value=got, place=str(journal.path))


def apps_of(journal: Journal | JournalReader) -> dict[str, App]:
    """Return the apps with intact notes, by name; apps with damaged notes are logged and left out."""
    apps: dict[str, App] = {}
    for name, values in journal.notes(NOTE).items():
        app = read_app(name, values)
        if app is None:
            log.error("app.note_unreadable", app=name, journal=str(journal.path))
        else:
            apps[name] = app
    return apps


def unknown_apps(folder: Path, nodes: Iterable[Node], known: Callable[[str], App | None]) -> set[str]:
    """Return apps that are missing in the journal but have folders or are in the launchers' reports."""
    names = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    for node in nodes:
        names |= {*node.app_masters, *(status.app for status in node.containers)}
    return {name for name in names if not name.startswith(".") and known(name) is None}


def without_note(view: ClusterView, known: Callable[[str], App | None]) -> Iterator[App]:
    """Yield the apps in the arbiter's state that have no note, with as much data as the state has."""
    tuners = {number: kind for kind, number in view.names.tuner_kinds.items()}
    for name, row in view.names.apps.items():
        if known(str(name)) is None:
            yield App(
                name=str(name),
                user=str(view.users.id[view.apps.user[row]]),
                weight=float(view.apps.weight[row]),
                tuner=tuners.get(int(view.apps.tuner_kind[row]), ""),
                trials=0,
                least=1,
                most=1,
                submitted_at=0.0,
                arrived_at=0.0,
            )
