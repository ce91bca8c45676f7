"""Restore an arbiter from its journal: load the newest readable checkpoint and replay the steps after it."""

import contextlib
from collections.abc import Iterator

import structlog

from eunomia.errors import InputError
from eunomia.journal.files import REMEDY
from eunomia.journal.journal import Journal, JournalReader, SavedState, Step
from eunomia.journal.sums import UNREADABLE
from eunomia.round.arbiter import Arbiter

log = structlog.get_logger()


def recover(arbiter: Arbiter, journal: Journal | JournalReader) -> list[Step]:
    """Bring a new arbiter to the state after the last step of a journal.

    If a checkpoint is damaged or has another format, the previous one is used, and finally a replay from the
    first step, if the journal still contains that step.

    Args:
        arbiter: a newly created arbiter.
        journal: a journal of the same cluster.

    Returns:
        The steps that were replayed.

    Raises:
        InputError: the last step cannot be reached; the error names the damage and a remedy.
    """
    begun, refused = _begun(arbiter, journal)
    if begun == 0 and journal.first_step > 1:
        rule = f"a journal without its steps 1 to {journal.first_step - 1} must have a checkpoint that can be read"
        raise InputError(rule, value=refused or "none", place=str(journal.path))
    folded: list[Step] = []
    last = begun
    try:
        for step in journal.steps(after=begun, archived=begun == 0):  # the archive is read only if needed
            if step.number != last + 1:
                raise InputError("a journal's steps must follow each other", value=f"step {step.number} after {last}")
            arbiter.replay(step.now, step.events, step.decision)
            folded.append(step)
            last = step.number
    except (InputError, *UNREADABLE) as error:
        rule = f"a journal must be undamaged; this one is good up to step {last}, and was not changed; {REMEDY}"
        raise InputError(rule, value=str(error), place=str(journal.path)) from error
    if last < journal.last_step:
        rule = f"a journal must hold its last step, {journal.last_step}; this one ends with step {last}; {REMEDY}"
        raise InputError(rule, place=str(journal.path))
    return folded


def _begun(arbiter: Arbiter, journal: Journal | JournalReader) -> tuple[int, str]:
    """Load the newest readable checkpoint; return its step (0: none) and the errors of newer checkpoints."""
    refused = ""
    for saved in _readable(journal):
        try:
            arbiter.load(saved.state)
            return saved.after_step, refused
        except (InputError, *UNREADABLE) as error:
            refused = str(error)
            log.warning("checkpoint.passed_over", after_step=saved.after_step, why=refused)
    return 0, refused


def _readable(journal: Journal | JournalReader) -> Iterator[SavedState]:
    with contextlib.suppress(InputError):
        yield from journal.checkpoints()
