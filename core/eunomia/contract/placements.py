"""The answer of a placement: the GPUs of each claim, with their CPUs and memory."""

import numpy as np

from eunomia.contract.memos import Memo
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, Reals, Rows


@builds
class Retunes:
    """Jobs that run and keep their GPUs, with other CPUs and memory; none is a claim of the allocation.

    The amounts are by job, for all its GPUs together, and are divided equally among these GPUs.
    """

    jobs: Rows
    cpus: Reals | None = None
    """CPUs of each job; None: unchanged."""
    memory_gib: Reals | None = None


@builds
class Placement(LazyFields):
    """Claims and the GPUs of the offer that each gets; a claim named without GPUs loses its GPUs of the offer.

    ``start[i]`` to ``start[i + 1]`` are the entries of ``gpus`` that belong to claim ``claim[i]``.
    """

    claim: Rows
    """Indices into the allocation's claims."""
    gpus: Ints
    start: Ints
    cpus: Reals | None = None
    """By GPU of ``gpus``; None: in proportion to the machine's GPUs, or as the job asks."""
    memory_gib: Reals | None = None
    retunes: Retunes | None = None
    """Only where ``offer.retune`` allows it; a claim that stays on its GPUs is retuned by ``cpus`` and memory alone."""
    verdicts: Verdicts = NO_VERDICTS
    """``rows`` are rows of the claims' unit."""
    memo: Memo | None = None

    def of(self, index: int) -> Ints:
        """GPUs of the claim in position ``index`` of ``claim``, ascending."""
        gpus = self.gpus[self.start[index] : self.start[index + 1]]
        return np.sort(gpus) if gpus.size > 1 else gpus


lazy(Placement, claim="int32", gpus="int64", start="int64")
