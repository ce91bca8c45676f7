"""The cells that ``reproduce synergy`` runs, by figure."""

import dataclasses
import math

from eunomia.errors import InputError
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
"""Jobs an hour of the multi-GPU traces of Figures 11 and 13."""
DYNAMIC_SPLIT = (0.3, 0.6, 0.1)
DYNAMIC_TIMES = 0.177
"""Durations of the dynamic trace: their mean is that of the static trace, 3.0 h."""
DYNAMIC_LOAD = 10.8
"""Jobs an hour of the dynamic trace: its demand is 32 GPUs."""
PHILLY_GPUS = 512


@value
class SynergyGrid:
    """The settings of the reproduction, fixed and printed before the first run."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    data: str = "synergy"
    """Folder with the authors' ``profiles.csv``, ``models.csv`` and static trace: they are no part of Eunomia."""
    jobs: int = 1000
    """Measured jobs of a drawn trace."""
    warmup_jobs: int = 1000
    gpus: int = 128
    jobs_per_hour: float = 9.0
    """Load of the single-GPU traces of Figure 12."""
    loads: str = "5,7,9"
    """Jobs an hour of the single-GPU traces of Figures 7 to 9: 0.7 to 1.3 times what 128 GPUs can serve."""
    multi_loads: str = "3,4,5.5"
    """Jobs an hour of their multi-GPU traces: 0.8 to 1.5 times."""
    dynamic_jobs: int = 300
    """Measured jobs of Table 5's dynamic trace; as many before them are not measured."""
    trace: str = "philly_full_reconstructed.csv.gz"
    """Philly's trace, for Table 6: not part of Eunomia."""
    philly_first: int = 92_000
    philly_jobs: int = 8000
    """Table 6: a range of the trace by submission, whose demand is 1.24 times 512 GPUs; its jobs are all measured."""

    def static(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Return a cell of Table 5: the authors' static trace on four servers; it has one seed."""
        return SynergyCell(scheme=scheme, seed=0 * seed, data=self.data, order=order, static=True, gpus=32)

    def dynamic(self, scheme: str, seed: int) -> SynergyCell:
        """Return a cell of Table 5's other rows: one-GPU jobs that arrive over time on four servers, under SRTF."""
        return SynergyCell(
            scheme=scheme,
            seed=seed,
            data=self.data,
            order="srtf",
            gpus=32,
            jobs=self.dynamic_jobs,
            warmup_jobs=self.dynamic_jobs,
            jobs_per_hour=DYNAMIC_LOAD,
            split=DYNAMIC_SPLIT,
            times=DYNAMIC_TIMES,
        )

    def philly(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Return a cell of Table 6: a range of Philly's trace on 64 servers."""
        return SynergyCell(
            scheme=scheme,
            seed=seed,
            data=self.data,
            order=order,
            gpus=PHILLY_GPUS,
            jobs=self.philly_jobs,
            warmup_jobs=0,
            multi=True,
            trace=self.trace,
            first=self.philly_first,
        )

    def loads_of(self, *, multi: bool) -> tuple[float, ...]:
        """Return the jobs an hour of Figures 7 to 9, ascending.

        Raises:
            InputError: a load is not a positive number.
        """
        text = self.multi_loads if multi else self.loads
        try:
            found = tuple(sorted({float(part) for part in text.split(",")}))
        except ValueError:
            found = ()
        if not found or not 0.0 < found[0] <= found[-1] < math.inf:
            name = "multi_loads" if multi else "loads"
            rule = f'{name} must be jobs an hour above 0, such as "5,7,9" (--set {name}=5,7,9)'
            raise InputError(rule, value=f'"{text}"', place="reproduce synergy")
        return found

    def at_loads(self, scheme: str, order: str, seed: int, *, multi: bool) -> tuple[SynergyCell, ...]:
        """Return a cell for each load of Figures 7 to 9, ascending."""
        one = dataclasses.replace(self.single(scheme, order, seed), multi=multi)
        return tuple(dataclasses.replace(one, jobs_per_hour=load) for load in self.loads_of(multi=multi))

    def single(self, scheme: str, order: str, seed: int) -> SynergyCell:
        """Return a cell of Figure 12 with one-GPU jobs."""
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
        """Return a cell with jobs of 1 to 8 GPUs."""
        return dataclasses.replace(self.single(scheme, order, seed), multi=True, jobs_per_hour=MULTI_LOAD)

    def split(self, split: tuple[float, float, float], scheme: str, seed: int) -> SynergyCell:
        """Return a cell of Figures 11 and 13: jobs of one or several GPUs, first come, first served."""
        return dataclasses.replace(self.multi(scheme, "fifo", seed), split=split)

    def ratio(self, cpus_per_gpu: float, scheme: str, seed: int) -> SynergyCell:
        """Return a cell of Figure 12 with more CPUs per GPU."""
        return dataclasses.replace(self.single(scheme, "fifo", seed), cpus_per_gpu=cpus_per_gpu)


SynergyRuns = Runs[SynergyGrid, SynergyCell, SynergyFigures]
SynergyClaim = Claim[SynergyGrid, SynergyCell, SynergyFigures]
