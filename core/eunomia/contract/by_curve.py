"""Values by size that follow from a job's curve and remaining length, computed only for the requested claims."""

from collections.abc import Callable

import numpy as np

from eunomia.contract.valuations import BySize
from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, Reals, Rows, SizeUnit


@builds
class ByCurve(LazyFields):
    """Values by size of jobs, computed from curve and remaining length only when requested.

    Jobs with the same curve and length have equal values. Size 0 has no value, as an allocation gives each job its
    smallest size before it increases the size of any job. The functions may be called until the round ends.
    """

    jobs: Rows
    """Job row of each claim."""
    keys: Callable[[Rows], tuple[Rows, Reals]]
    """Returns the curve number and the remaining length of each of some job rows. Lengths are in the unit that
    ``values`` takes; curve numbers are private to this form and need not be those of the menus."""
    values: Callable[[int, Reals], tuple[Ints, Reals]]
    """Returns, for a curve number and remaining lengths, the sizes, ascending, and the values, [length, size]."""
    unit: SizeUnit = SizeUnit.UTILITY

    def of(self, claims: Rows) -> BySize:
        """Return the values of the given claims, in the given order, each with sizes ascending."""
        curves, lengths = self.keys(self.jobs[claims])
        parts = []
        for curve in np.unique(curves).tolist():
            at = np.flatnonzero(curves == curve)
            sizes, values = self.values(curve, lengths[at])
            parts.append((np.repeat(at, sizes.size), np.tile(sizes, at.size), values.ravel()))
        columns = zip(*parts, strict=True) if parts else (([],), ([],), ([],))
        at, gpus, value = (np.concatenate(column) for column in columns)
        order = np.argsort(at, kind="stable")
        return BySize(
            claim=claims[at[order].astype(np.int64)].astype(np.int32),
            gpus=gpus[order].astype(np.int64),
            value=value[order].astype(float),
            unit=self.unit,
        )

    def derive(self, kind: type[object]) -> object | None:
        """Return the values of all claims as ``BySize``; None for other forms."""
        return self.of(np.arange(self.jobs.size, dtype=np.int32)) if kind is BySize else None


lazy(ByCurve, "jobs")
