"""What the offer is worth to each claim, in one or more forms; coarser forms derive from finer ones."""

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from eunomia.claims import Claims
from eunomia.errors import EunomiaError
from eunomia.memos import Memo
from eunomia.shapes import builds
from eunomia.units import NEVER, Ints, Reals, Rest, Rows, Seconds
from eunomia.verdicts import NO_VERDICTS, Verdicts


@runtime_checkable
class Form(Protocol):
    """One way to say what an offer is worth; a plugin may add its own."""

    def derive(self, kind: type[object]) -> object | None:
        """The same valuation in a coarser form, or None where no rule leads there."""
        ...


F = TypeVar("F")


@builds
class Scores:
    """[claim] or [claim, key]: an order, lower is served first; further keys break ties of those before."""

    score: Reals

    def derive(self, kind: type[object]) -> object | None:
        """No form is coarser."""
        return None

    def ranking(self) -> Rows:
        """Indices of claims, first served first; equal scores keep the order of the claims."""
        keys = self.score[:, None] if self.score.ndim == 1 else self.score
        return np.lexsort(keys.T[::-1]).astype(np.int32)


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
