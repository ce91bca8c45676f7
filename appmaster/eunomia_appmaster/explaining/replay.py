"""Replays the arbiter of a state folder's journal, step by step; plugins are not called."""

from collections.abc import Mapping

from eunomia.arbiter import Arbiter
from eunomia.errors import EunomiaError, InputError
from eunomia.journal.journal import JournalReader, SavedState, Step
from eunomia.journal.sums import UNREADABLE
from eunomia.platform.profiles import Profile
from eunomia_appmaster.service.layout import Layout

JOURNAL = "journal.sqlite"


def oldest_checkpoint(journal: JournalReader) -> SavedState | None:
    """Return the checkpoint at which a replay begins; None: the replay begins with the first step.

    Raises:
        InputError: retention has dropped the first steps, and there is no checkpoint.
    """
    if journal.first_step <= 1:
        return None
    checkpoints = list(journal.checkpoints())
    if not checkpoints:
        rule = f"a journal without its steps 1 to {journal.first_step - 1} must have a checkpoint"
        raise InputError(rule, value="none", place=str(journal.path))
    return min(checkpoints, key=lambda saved: saved.after_step)


def profile_of(meta: Mapping[str, object]) -> Profile:
    """Read the profile that a run began with.

    Raises:
        InputError: the journal has no profile, or an invalid one.
    """
    return Profile.parse(str(meta.get("profile", "")), name=str(meta.get("policy", "profile")), place=JOURNAL)


def arbiter_of(meta: Mapping[str, object], begun: SavedState | None = None, *, profile: Profile | None) -> Arbiter:
    """Create the arbiter of a run in its state before the first replayed step.

    Args:
        meta: settings of the journal, with ``layout``.
        begun: the checkpoint at which the replay begins; None: the first step.
        profile: the profile whose stages are loaded; None: the fallback profile, which suffices to replay every step,
            since a step contains the plugins' decisions.
    """
    cluster = Layout.decoded(meta["layout"]).cluster
    fallback = Profile.fallback().stages(cluster)
    stages = fallback if profile is None else profile.stages(cluster)
    arbiter = Arbiter(cluster, stages, fallback, seed=int(str(meta.get("seed") or 0)))
    if begun is not None:
        arbiter.load(begun.state)
    return arbiter


class Replay:
    """The arbiter of a journal that may still grow, replayed without the plugins that the run used.

    Args:
        journal: a journal with a layout, which it has once the machines have registered.
        begun: the state at which the replay begins; None: the oldest checkpoint that is needed, or the first step.

    Attributes:
        arbiter: the arbiter, in its state after the last replayed step.
        last: number of the last replayed step.
    """

    def __init__(self, journal: JournalReader, begun: SavedState | None = None) -> None:
        begun, meta = begun or oldest_checkpoint(journal), journal.meta
        try:
            self.arbiter = arbiter_of(meta, begun, profile=profile_of(meta))
        except EunomiaError:  # its policy is not installed here
            self.arbiter = arbiter_of(meta, begun, profile=None)
        self.last = 0 if begun is None else begun.after_step

    def take(self, step: Step) -> None:
        """Replay the next step.

        Raises:
            InputError: the step does not follow from the steps before it.
        """
        try:
            self.arbiter.replay(step.now, step.events, step.decision)
        except (EunomiaError, *UNREADABLE) as error:
            rule = "a journal's steps must follow from each other; `eunomia journal check` says which do not"
            raise InputError(rule, value=f"step {step.number}: {error!r}", place=JOURNAL) from error
        self.last = step.number
