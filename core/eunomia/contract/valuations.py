"""What the offer is worth to each claim, in one or more forms; coarser forms derive from finer ones."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from eunomia.contract.claims import Claims
from eunomia.contract.memos import Memo
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.errors import EunomiaError
from eunomia.model.shapes import builds, lazy
from eunomia.units import NEVER, Ints, Reals, Rest, Rows, Seconds


@runtime_checkable
class Form(Protocol):
    """A form of values, such as an order or bids; a plugin may add its own."""

    def derive(self, kind: type[object]) -> object | None:
        """Return the same values in a coarser form; None: they cannot be converted to ``kind``."""
        ...


F = TypeVar("F")


class Lines(NamedTuple):
    """Keys of jobs as linear functions of time: at ``now`` a key is ``at_zero + each_second * now``."""

    at_zero: Reals
    each_second: Reals
    until: Reals
    """Time in seconds until which the function is valid; inf: until the job's row changes."""


Line = tuple[float, float, float]
"""The entries of ``Lines`` for one job."""


def still(keys: Reals) -> Lines:
    """Keys that never change."""
    return Lines(keys, np.zeros(keys.size), np.full(keys.size, np.inf))


@builds
class Keys:
    """An order of jobs as one key for each row, lower first, ties by arrival; for allocations that keep jobs sorted.

    The key of a waiting job is constant. The key of a running job is a linear function of time that follows from the
    job's row alone; it is replaced only when the row changes or the function's validity ends.
    """

    owner: object
    """The plugin that computes the keys; sorted jobs kept for the keys of another plugin are discarded."""
    of: Callable[[Rows], Lines]
    """Computes the keys of these job rows as functions of time."""
    holds: Callable[[Rows], Reals] | None = None
    """By waiting job: seconds that its rank stays valid once it starts; None: until its row changes."""
    line: Callable[[int], Line] | None = None
    """The key of one row, equal bit for bit to that of ``of``; faster than columns for a single row."""


FEW = 8
"""Up to this many rows, keys are computed one by one where ``Keys.line`` is given."""


def lines_of(keys: Keys, rows: list[int]) -> list[Line]:
    """Return the keys of these job rows as a list with one entry for each row."""
    if keys.line is not None and len(rows) <= FEW:
        return [keys.line(row) for row in rows]
    return list(zip(*[column.tolist() for column in keys.of(np.array(rows, np.int32))], strict=True))


@builds
class Scores:
    """[claim] or [claim, key]: an order, lower is served first; further keys break ties of those before."""

    score: Reals
    keys: Keys | None = None
    """The same order as one key for each job, where claims are jobs."""

    def derive(self, kind: type[object]) -> object | None:
        """Return None: no form is coarser."""
        return None

    def ranking(self) -> Rows:
        """Indices of claims, first served first; equal scores keep the order of the claims."""
        keys = self.score[:, None] if self.score.ndim == 1 else self.score
        return np.lexsort(keys.T[::-1]).astype(np.int32)


lazy(Scores, "score")


@builds
class ByType:
    """[claim, GPU type]: speed relative to the claim's slowest type (OEF's speedup vectors)."""

    speedup: Reals

    def derive(self, kind: type[object]) -> object | None:
        """Return None: speedups give no order."""
        return None


@builds
class BySize:
    """Value by number of GPUs: ``value[i]`` is that of ``gpus[i]`` GPUs to claim ``claim[i]``; higher is better."""

    claim: Rows
    gpus: Ints
    value: Reals

    def derive(self, kind: type[object]) -> object | None:
        """Return None: values by size give no order."""
        return None


@builds
class OverTime:
    """[claim, rounds granted]: utility by number of rounds within a planning window (Shockwave)."""

    utility: Reals
    round_seconds: Seconds

    def derive(self, kind: type[object]) -> object | None:
        """Return None: utilities over a window give no order."""
        return None


@builds
class Valuations:
    """The answer of a valuation: the value of the offer to each claim."""

    claims: Claims
    forms: tuple[Form, ...]
    rest: Rest = Rest.KEEP
    """KEEP: claims that it does not name keep their previous values."""
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    wake_at: Seconds = NEVER
    """The time in seconds at which the rank of a running claim changes next without an event."""
    holds: Reals | None = None
    """By claim: seconds that its rank stays valid once it starts."""

    def form(self, kind: type[F]) -> F:
        """Return the values in a form: as the plugin gave it, else derived from a finer form.

        Raises:
            EunomiaError: the valuation has neither that form nor one that it derives from.
        """
        for form in self.forms:
            if isinstance(form, kind):
                return form
        for form in self.forms:
            derived = form.derive(kind)
            if isinstance(derived, kind):
                return derived
        given = ", ".join(type(form).__name__ for form in self.forms) or "none"
        raise EunomiaError(f"a valuation must come in the form {kind.__name__}", value=given)


lazy(Valuations, "wake_at", "holds")
