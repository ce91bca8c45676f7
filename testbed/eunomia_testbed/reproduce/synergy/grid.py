"""The cells that ``reproduce synergy`` runs, by figure."""

import dataclasses

from eunomia.model.shapes import value
from eunomia_testbed.reproduce.paper import Claim, Runs
from eunomia_testbed.reproduce.synergy.cells import SynergyCell, SynergyFigures

COMPARED = ("proportional", "tune")
ALL = ("proportional", "greedy", "tune")
BIG_DATA = ("drf", "drf_tune", "tetris", "tetris_tune")
SPLITS = ((0.2, 0.7, 0.1), (0.33, 0.33, 0.34), (0.5, 0.0, 0.5))
RATIOS = (3.0, 4.0, 5.0, 6.0)
"""CPUs a GPU of Figure 12."""
MULTI_LOAD = 5.5
"""Jobs an hour of the multi-GPU traces."""


@value
class SynergyGrid:
    """What is run: fixed before anything is, and printed."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    data: str = "synergy"
    """Folder with the authors' ``profiles.csv``, ``models.csv`` and static trace: they are no part of Eunomia."""
    jobs: int = 1000
    """Measured jobs of a drawn trace."""
    warmup_jobs: int = 1000
    gpus: int = 128
    jobs_per_hour: float = 9.0
    """Load of the single-GPU traces."""

    def static(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Table 5: the authors' static trace on four servers; it has one seed."""
        return SynergyCell(scheme=scheme, seed=0 * seed, data=self.data, order=order, static=True, gpus=32)

    def single(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Figures 7 to 9: jobs of one GPU."""
        return SynergyCell(
            scheme=scheme,
            seed=seed,
            data=self.data,
            order=order,
            gpus=self.gpus,
            jobs=self.jobs,
            warmup_jobs=self.warmup_jobs,
            jobs_per_hour=self.jobs_per_hour,
        )

    def multi(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Figures 7 to 9: jobs of 1 to 8 GPUs."""
        return dataclasses.replace(self.single(scheme, order, seed), multi=True, jobs_per_hour=MULTI_LOAD)

    def split(self, split: tuple[float, float, float], scheme: str, seed: int) -> SynergyCell:
        """Figures 11 and 13: jobs of one or several GPUs, first come, first served."""
        return dataclasses.replace(self.multi(scheme, "fifo", seed), split=split)

    def ratio(self, cpus_per_gpu: float, scheme: str, seed: int) -> SynergyCell:
        """Figure 12: more CPUs a GPU."""
        return dataclasses.replace(self.single(scheme, "fifo", seed), cpus_per_gpu=cpus_per_gpu)


SynergyRuns = Runs[SynergyGrid, SynergyCell, SynergyFigures]
SynergyClaim = Claim[SynergyGrid, SynergyCell, SynergyFigures]
