"""The answer of a placement: the GPUs of each claim, with their CPUs and memory."""

import numpy as np

from eunomia.contract.memos import Memo
from eunomia.contract.verdicts import NO_VERDICTS, Verdicts
from eunomia.model.shapes import LazyFields, builds, lazy
from eunomia.units import Ints, Reals, Rows


@builds
class Retunes:
    """Changes of the CPUs and memory of running jobs that keep their GPUs and are not claims of the allocation.

    Amounts are for all GPUs of a job together and are divided equally among these GPUs.
    """

    jobs: Rows
    cpus: Reals | None = None
    """New CPUs of each job; None: unchanged."""
    memory_gib: Reals | None = None


@builds
class Placement(LazyFields):
    """The GPUs of the offer that each claim gets; a claim listed without GPUs loses its GPUs of the offer.

    Claim ``claim[i]`` gets ``gpus[start[i]:start[i + 1]]``.
    """

    claim: Rows
    """Indices into the allocation's claims."""
    gpus: Ints
    start: Ints
    cpus: Reals | None = None
    """CPUs for each entry of ``gpus``; None: as the job requests, or else in proportion to the machine's GPUs."""
    memory_gib: Reals | None = None
    retunes: Retunes | None = None
    """Changes for jobs that are not claims, allowed by ``offer.retune``; claims use ``cpus`` and ``memory_gib``."""
    verdicts: Verdicts = NO_VERDICTS
    """Verdicts on claims that were not placed; their ``rows`` are rows of the claims' unit."""
    memo: Memo | None = None

    def of(self, index: int) -> Ints:
        """Return the GPUs of the claim at position ``index`` of ``claim``, ascending."""
        gpus = self.gpus[self.start[index] : self.start[index + 1]]
        return np.sort(gpus) if gpus.size > 1 else gpus


lazy(Placement, claim="int32", gpus="int64", start="int64")
