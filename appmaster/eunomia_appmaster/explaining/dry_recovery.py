"""A dry run of recovery: determines what an arbiter would restore from a journal, without changing anything."""

from pathlib import Path

from eunomia.arbiter import Arbiter
from eunomia.errors import InputError
from eunomia.journal.journal import read_journal
from eunomia.journal.recovery import recover
from eunomia.model.kind_profiles import KnownRate
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia_appmaster.service.journaled import LOST_NOTE, apps_of, read_kept, said_of, without_note


@value
class Dry:
    """The result of a dry recovery."""

    refused: str | None = None
    """Reason why the arbiter would not start; None: it would start."""
    lost: tuple[str, ...] = ()
    """Apps that would fail, since the journal lacks their record."""
    said: tuple[str, ...] = ()
    """Damage that the arbiter would ignore or repair, one line each."""

    def lines(self) -> list[str]:
        """Return why recovery is refused and which apps would fail, one line each, without ``said``."""
        made = [f"an arbiter does not begin with this journal: {self.refused}"] if self.refused else []
        return made + [f"app {name} fails at the next start: {LOST_NOTE}" for name in self.lost]


def try_recovery(path: Path) -> Dry:
    """Read and replay a journal as the arbiter does at its start, but under the fallback profile, without plugins."""
    try:
        with read_journal(path) as journal, journal.at_one_moment():
            kept = read_kept(journal)
            said = tuple(said_of(journal))
            if kept.begun is None:
                return Dry(said=said)
            stages = Profile.fallback().stages(kept.begun.cluster)
            arbiter = Arbiter(kept.begun.cluster, stages, stages, seed=kept.seed)
            recover(arbiter, journal)
            if kept.layout is not None:
                kept.layout.within(arbiter.view.cluster)
            apps = apps_of(journal)
            return Dry(lost=tuple(app.name for app in without_note(arbiter.view, apps.get)), said=said)
    except InputError as error:
        return Dry(refused=str(error))


def profiles_of(path: Path) -> dict[str, tuple[KnownRate, ...]]:
    """Return the measured rates by kind of job that a journal's arbiter has stored; the journal is not changed.

    Raises:
        InputError: no arbiter can be restored from the journal.
    """
    with read_journal(path) as journal, journal.at_one_moment():
        kept = read_kept(journal)
        if kept.begun is None:
            return {}
        stages = Profile.fallback().stages(kept.begun.cluster)
        arbiter = Arbiter(kept.begun.cluster, stages, stages, seed=kept.seed)
        recover(arbiter, journal)
    names = tuple(arbiter.view.names.kinds)
    return {names[kind]: rates for kind, rates in arbiter.view.reports.profiles.items()}
