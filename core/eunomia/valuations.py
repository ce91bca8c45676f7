"""What the offer is worth to each claim, in one or more forms; coarser forms derive from finer ones."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from eunomia.claims import Claims
from eunomia.errors import EunomiaError
from eunomia.memos import Memo
from eunomia.shapes import builds, lazy
from eunomia.units import NEVER, Ints, Reals, Rest, Rows, Seconds
from eunomia.verdicts import NO_VERDICTS, Verdicts


@runtime_checkable
class Form(Protocol):
    """One way to say what an offer is worth; a plugin may add its own."""

    def derive(self, kind: type[object]) -> object | None:
        """The same valuation in a coarser form, or None where no rule leads there."""
        ...


F = TypeVar("F")


class Lines(NamedTuple):
    """Keys of jobs as lines of time: at ``now`` a key is ``at_zero + each_second * now``."""

    at_zero: Reals
    each_second: Reals
    until: Reals
    """When the line ends, and the key has to be asked for again; inf: it goes on while its row is not touched."""


Line = tuple[float, float, float]
"""The same of one job."""


def still(keys: Reals) -> Lines:
    """Keys that never change."""
    return Lines(keys, np.zeros(keys.size), np.full(keys.size, np.inf))


@builds
class Keys:
    """An order of jobs as a key a row, lower first, ties by arrival; for an allocation that keeps jobs sorted.

    The key of a job that waits stands still. That of a job that runs may change as time passes, along a line that
    follows from its row alone: it is another one only after the row was touched, or the line has ended.
    """

    owner: object
    """The plugin whose keys they are: what was kept of another's keys is void."""
    of: Callable[[Rows], Lines]
    """Lines of these job rows."""
    holds: Callable[[Rows], Reals] | None = None
    """By waiting job: seconds that its rank stands once it starts; None: while its row is not touched."""
    line: Callable[[int], Line] | None = None
    """The line of one row, to the last bit as ``of`` has it: columns of one row cost more than they save."""


FEW = 8
"""Rows that are gone through one by one where an order can."""


def lines_of(keys: Keys, rows: list[int]) -> list[Line]:
    """Lines of these job rows, each by itself."""
    if keys.line is not None and len(rows) <= FEW:
        return [keys.line(row) for row in rows]
    return list(zip(*[column.tolist() for column in keys.of(np.array(rows, np.int32))], strict=True))


@builds
class Scores:
    """[claim] or [claim, key]: an order, lower is served first; further keys break ties of those before."""

    score: Reals
    keys: Keys | None = None
    """The same order as a key a row, where claims are jobs."""

    def derive(self, kind: type[object]) -> object | None:
        """No form is coarser."""
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
        """No rule leads from speedups to an order."""
        return None


@builds
class BySize:
    """Value by number of GPUs: row i says what ``gpus[i]`` GPUs are worth to claim ``claim[i]``; higher is better."""

    claim: Rows
    gpus: Ints
    value: Reals

    def derive(self, kind: type[object]) -> object | None:
        """No rule leads from sizes to an order."""
        return None


@builds
class OverTime:
    """[claim, rounds granted]: utility by number of rounds within a planning window (Shockwave)."""

    utility: Reals
    round_seconds: Seconds

    def derive(self, kind: type[object]) -> object | None:
        """No rule leads from plans to an order."""
        return None


@builds
class Valuations:
    """Answer of a valuation."""

    claims: Claims
    forms: tuple[Form, ...]
    rest: Rest = Rest.KEEP
    """KEEP: claims that it does not name are worth what they were."""
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    wake_at: Seconds = NEVER
    """When the rank of a running claim changes next without news."""
    holds: Reals | None = None
    """By claim: seconds that its rank stands once it starts."""

    def form(self, kind: type[F]) -> F:
        """The valuation in that form: as it was given, else derived from a finer one.

        Raises:
            EunomiaError: no form leads there.
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
