"""The value of the offer to each claim, in one or more forms; coarser forms derive from finer ones."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from eunomia.contract.claims import Claims
from eunomia.contract.keys import Facts, Key, Linear, LinearKeyError, line_of
from eunomia.contract.memos import Memo
from eunomia.contract.menus import Menus, curve_points
from eunomia.contract.offers import Offer
from eunomia.contract.snapshot import Snapshot
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.errors import EunomiaError
from eunomia.model.shapes import Deferred, LazyFields, builds, lazy
from eunomia.units import NEVER, Ints, Reals, Rest, Rows, Seconds, SizeUnit, Unit


@runtime_checkable
class Form(Protocol):
    """A representation of values, such as an order or bids; a plugin may add its own."""

    def derive(self, kind: type[object]) -> object | None:
        """Return the same values in the coarser form ``kind``, or None if they cannot be converted."""
        ...


F = TypeVar("F")


@builds
class LinearKey:
    """Keys of jobs as linear functions of time, one entry per job; jobs with lower keys are served first.

    At ``now``, in seconds since the start, the key of a job is ``intercept + slope * now``. The key of a waiting job
    is constant.
    """

    intercept: Reals
    """Keys at time 0, in a unit that the order chooses; NaN: unknown, so the job is served last."""
    slope: Reals | float = 0.0
    """Change of the keys per second."""
    valid_until: Reals | float = np.inf
    """Time in seconds since the start until which a function is valid; inf: until the job's row changes."""

    def at(self, now: Seconds) -> Reals:
        """Return the keys at a time in seconds since the start."""
        keys = self.intercept + self.slope * now
        return np.where(np.isnan(keys), np.inf, keys)

    def entries(self) -> list[tuple[float, float, float]]:
        """Return intercept, slope and end of validity of each job's key as plain numbers."""
        intercept = self.intercept.tolist()
        columns = [
            column.tolist() if isinstance(column, np.ndarray) else [float(column)] * len(intercept)
            for column in (self.slope, self.valid_until)
        ]
        return [
            (key, slope, until) if key == key and slope == slope else (np.inf, 0.0, np.inf)  # NaN: served last
            for key, slope, until in zip(intercept, *columns, strict=True)
        ]


def _checked(key: Callable[[Rows], LinearKey]) -> Callable[[Rows], LinearKey]:
    """Wrap a key function so that its errors are raised as ``LinearKeyError``."""

    def checked(jobs: Rows) -> LinearKey:
        try:
            made = key(jobs)
        except Exception as error:
            raise LinearKeyError(f"{type(error).__name__}: {error}") from error
        if not isinstance(made, LinearKey):
            raise LinearKeyError(f"LinearKey expected, {type(made).__name__} returned")
        size = jobs.size
        rest = (made.slope, made.valid_until)
        if np.shape(made.intercept) != (size,) or any(np.shape(part) not in ((), (size,)) for part in rest):
            raise LinearKeyError(f"LinearKey must have one entry for each of {size} jobs")
        return made

    return checked


class _ByColumns:
    """Adapts a key function of columns to a key function of one row."""

    def __init__(self, columns: Callable[[Rows], LinearKey]) -> None:
        self.columns = columns

    def __call__(self, facts: Facts, row: int) -> Linear:
        return Linear(*self.columns(np.array([row], np.int32)).entries()[0])


_NO_MENUS = Menus(curve=np.empty(0, np.int32), points=curve_points(np.empty(0, np.int32), np.empty(0, np.int64)))
"""Empty menus, for key functions that do not read ``Facts.menus``."""


@builds
class Scores(LazyFields):
    """An order of claims, [claim] or [claim, key]: lower scores are served first; later keys break ties."""

    score: Reals
    linear_key: Callable[[Rows], LinearKey] | None = None
    """The same order as a function from job rows to their keys; None if there is none."""
    key: Key | None = None
    """The same order as a function of one row, for ``snapshot.index.queue``; None if there is none."""
    holds: Callable[[Rows], Reals] | None = None
    """Returns the seconds for which the ranks of waiting jobs stay valid once they start; None: until a change."""

    def derive(self, kind: type[object]) -> object | None:
        """Return None, as no form is coarser."""
        return None

    def ranking(self) -> Rows:
        """Return the indices of claims, first served first; equal scores keep the order of the claims."""
        keys = self.score[:, None] if self.score.ndim == 1 else self.score
        return np.lexsort(keys.T[::-1]).astype(np.int32)


lazy(Scores, "score")


@builds
class ByType:
    """[claim, GPU type] speed relative to the claim's slowest type (OEF's speedup vectors)."""

    speedup: Reals

    def derive(self, kind: type[object]) -> object | None:
        """Return None, as speedups imply no order."""
        return None


@builds
class BySize:
    """Values by number of GPUs: ``value[i]`` of ``gpus[i]`` GPUs to claim ``claim[i]``; higher is better."""

    claim: Rows
    gpus: Ints
    value: Reals
    unit: SizeUnit = SizeUnit.UTILITY
    """The quantity that the values measure."""

    def derive(self, kind: type[object]) -> object | None:
        """Return None, as values by size imply no order."""
        return None


@builds
class OverTime:
    """[claim, rounds granted] utility by number of rounds within a planning window (Shockwave)."""

    utility: Reals
    round_seconds: Seconds

    def derive(self, kind: type[object]) -> object | None:
        """Return None, as utilities over a window imply no order."""
        return None


@builds
class Valuations(LazyFields):
    """The answer of a valuation: the value of the offer to each claim."""

    claims: Claims
    forms: tuple[Form, ...]
    rest: Rest = Rest.KEEP
    """With KEEP, claims that the valuation does not name keep their previous values."""
    verdicts: Verdicts = NO_VERDICTS
    memo: Memo | None = None
    wake_at: Seconds = NEVER
    """Time in seconds at which the rank of a running claim next changes without an event."""
    holds: Reals | None = None
    """Seconds for which the rank of each claim stays valid after the claim starts."""

    @classmethod
    def by_key(
        cls,
        snapshot: Snapshot,
        offer: Offer,
        key: Callable[[Rows], LinearKey],
        *,
        wake_at: Seconds = NEVER,
        holds: Callable[[Rows], Reals] | None = None,
    ) -> Self:
        """Order the candidates of an offer by keys that are linear functions of time; ties are broken by arrival.

        An allocation that keeps jobs sorted computes only the keys of jobs whose rows changed.

        Args:
            snapshot: the current state.
            offer: the GPUs on offer.
            key: computes the keys of job rows; a key may depend only on the job's own row and menu.
            wake_at: as in ``Valuations``.
            holds: returns, for waiting job rows, the seconds for which their ranks stay valid once they start.
        """
        return cls.by_job(snapshot, _NO_MENUS, offer, _ByColumns(_checked(key)), wake_at=wake_at, holds=holds)

    @classmethod
    def by_job(
        cls,
        snapshot: Snapshot,
        menus: Menus,
        offer: Offer,
        key: Key,
        *,
        wake_at: Seconds = NEVER,
        holds: Callable[[Rows], Reals] | None = None,
    ) -> Self:
        """Order the candidates of an offer by the linear key of each single job; ties are broken by arrival.

        Args:
            snapshot: the current state.
            menus: the elasticity's answer, which the key may read.
            offer: the GPUs on offer.
            key: computes the key of one job from its row and menu; a function, or a method of the plugin.
            wake_at: as in ``Valuations``.
            holds: as in ``by_key``.
        """
        rows: Any = Deferred(getattr, offer, "candidates")
        scores: Any = Deferred(_scores, snapshot, menus, offer, key)
        left: Any = None if holds is None else Deferred(lambda: holds(offer.candidates))
        forms = (Scores(score=scores, linear_key=partial(_keys, snapshot, menus, key), key=key, holds=holds),)
        return cls(claims=Claims(unit=Unit.JOB, rows=rows), forms=forms, wake_at=wake_at, holds=left)

    def form(self, kind: type[F]) -> F:
        """Return the values in a form: the one that the plugin gave, or else one derived from a finer form.

        Raises:
            EunomiaError: the valuation has neither that form nor one from which it can be derived.
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

    def by_size(self, *units: SizeUnit) -> BySize:
        """Return the values by size in one of these units, or in any unit if none is named.

        Raises:
            EunomiaError: the valuation gives no values by size in such a unit.
        """
        given = [self.form(BySize), *(form for form in self.forms if isinstance(form, BySize))]
        for form in given:
            if not units or form.unit in units:
                return form
        wanted = " or ".join(unit.value for unit in units)
        raise EunomiaError(f"values by size must be {wanted}", value=" and ".join({form.unit.value for form in given}))


lazy(Valuations, "wake_at", "holds")


def _keys(snapshot: Snapshot, menus: Menus, key: Key, jobs: Rows) -> LinearKey:
    if type(key) is _ByColumns:
        return key.columns(jobs)
    facts = snapshot.index.facts(menus)
    lines = [line_of(key, facts, row) for row in jobs.tolist()]
    at_zero, slope, until = np.array(lines, dtype=np.float64).reshape(-1, 3).T
    return LinearKey(intercept=at_zero, slope=slope, valid_until=until)


def _scores(snapshot: Snapshot, menus: Menus, offer: Offer, key: Key) -> Reals:
    jobs = offer.candidates
    if menus.one_size and type(key) is not _ByColumns:  # most keys are unchanged since earlier rounds
        queue = snapshot.index.queue(key, menus, running=True, protected=True)
        return np.column_stack([queue.keys(jobs.tolist()), snapshot.jobs.arrived[jobs]])
    return np.column_stack([_keys(snapshot, menus, key, jobs).at(snapshot.now), snapshot.jobs.arrived[jobs]])
