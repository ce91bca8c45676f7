"""The claims of Synergy (OSDI'22), their cells, and the reasons for claims that are not measured."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from eunomia_testbed.reproduce.paper import Claim
from eunomia_testbed.reproduce.synergy import measures
from eunomia_testbed.reproduce.synergy.cells import SynergyCell, SynergyFigures
from eunomia_testbed.reproduce.synergy.grid import (
    ALL,
    BIG_DATA,
    COMPARED,
    RATIOS,
    SPLITS,
    SynergyClaim,
    SynergyGrid,
    SynergyRuns,
)
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

NOT_DONE = (
    ("Table 6", "short and long jobs, and the speedup of single jobs", "two tables", "the runs keep no JCT by job"),
    ("Fig 7", "CDF of JCTs under LAS, and Figure 8 under SRTF", "figures", "the runs keep no JCT by job"),
    ("Fig 2", "throughput of models by CPUs and memory", "a figure", "needs trainings of the ten models"),
    (
        "Fig 5",
        "optimistic profiling: 8 points for 24, error 3 %",
        "3 %",
        "needs real input pipelines; figures of simulations: the reference page of optimistic",
    ),
    ("Fig 6", "the iterator's overhead", "at most 1 %", "needs real input pipelines"),
    ("Fig 10", "GPUs and CPUs in use over time", "a figure", "the runs keep no table of utilization"),
    ("§5.6", "DALI: gain where data are prepared on GPUs", "a figure", "needs DALI's pipelines"),
)
"""Figure, sentence, printed value, and what a measurement would need."""


def claims(grid: SynergyGrid) -> Sequence[SynergyClaim]:
    """Return all claims in the paper's order, including those that cannot be measured here."""
    cells = _Cells(grid)
    return (
        *(_not_done(*row) for row in NOT_DONE),
        *_of_tables(),
        *_of_the_static_trace(cells),
        *_of_the_dynamic_trace(cells),
        *_of_philly(cells),
        *_of_loads(cells),
        *_of_splits(cells),
        *_of_ratios(cells),
        *_of_big_data(cells),
    )


def _not_done(figure: str, text: str, printed: str, why: str) -> SynergyClaim:
    found = Measured(text="-", verdict=Verdict.UNMEASURED, reason=f"not done: {why}")
    return Claim(figure=figure, text=text, printed=printed, measure=lambda runs: found, cells=lambda seed: ())


class _Cells:
    """The cells of each figure for one seed."""

    def __init__(self, grid: SynergyGrid) -> None:
        self._grid = grid

    def static(self, scheme: str, order: str, seed: int) -> Iterable[SynergyCell]:
        return (self._grid.static(scheme, order, seed),) if seed == self._grid.seeds[0] else ()

    def dynamic(self, seed: int) -> Iterable[SynergyCell]:
        return (self._grid.dynamic(scheme, seed) for scheme in COMPARED)

    def philly(self, order: str, seed: int) -> Iterable[SynergyCell]:
        return (self._grid.philly(scheme, order, seed) for scheme in COMPARED)

    def loads(self, order: str, multi: bool, seed: int) -> Iterable[SynergyCell]:
        cells = (self._grid.at_loads(scheme, order, seed, multi=multi) for scheme in COMPARED)
        return (cell for pair in zip(*cells, strict=True) for cell in pair)

    def split(self, split: tuple[float, float, float], seed: int) -> Iterable[SynergyCell]:
        return (self._grid.split(split, scheme, seed) for scheme in ALL)

    def ratio(self, cpus_per_gpu: float, seed: int) -> Iterable[SynergyCell]:
        return (self._grid.ratio(cpus_per_gpu, scheme, seed) for scheme in COMPARED)

    def big_data(self, split: tuple[float, float, float], seed: int) -> Iterable[SynergyCell]:
        return (self._grid.split(split, scheme, seed) for scheme in BIG_DATA)


def _of_tables() -> Iterator[SynergyClaim]:
    for figure, text, measure in (
        ("Table 2", "proportional: 12 CPUs and 250 GB each, in all orders of arrival", measures.table_2),
        ("Table 3", "Tune: J1 with J3 and J2 with J4, in all orders of arrival", measures.table_3),
    ):
        yield Claim(figure=figure, text=text, printed="24 of 24", measure=measure, cells=lambda seed: ())


def _of_the_static_trace(cells: _Cells) -> Iterator[SynergyClaim]:
    for scheme, printed, simulated in (
        ("proportional", "15.67 h", 15.25),
        ("greedy", "-", 12.33),
        ("tune", "11.33 h", 11.0),
        ("opt", "11.01 h", 10.58),
    ):
        yield Claim(
            figure="Table 5",
            text=f"makespan of 100 jobs on 32 GPUs, FIFO: {scheme}",
            printed=printed,
            measure=measures.static(scheme, "fifo", _makespan, simulated, measures.CLOSE),
            cells=partial(cells.static, scheme, "fifo"),
        )
    for scheme, simulated in (("proportional", 4.41), ("tune", 4.11)):
        yield Claim(
            figure="Table 5",
            text=f"average JCT of the static trace, SRTF: {scheme} (the paper has another trace)",
            printed="-",
            measure=measures.static(scheme, "srtf", _mean, simulated, measures.CLOSE_JCT),
            cells=partial(cells.static, scheme, "srtf"),
        )


def _makespan(figures: SynergyFigures) -> float:
    return figures.makespan_hours


def _mean(figures: SynergyFigures) -> float:
    return figures.hours


def _of_the_dynamic_trace(cells: _Cells) -> Iterator[SynergyClaim]:
    for text, number, printed in (
        ("average JCT", _mean, (4.52, 3.19)),
        ("99th percentile of JCTs", _p99, (16.85, 8.54)),
    ):
        yield Claim(
            figure="Table 5",
            text=f"{text}, SRTF, a drawn trace 30-60-10 on 32 GPUs: proportional over Tune",
            printed=f"{printed[0] / printed[1]:.2f} ({printed[0]:g}, {printed[1]:g} h)",
            measure=measures.gain(_dynamic, printed[0] / printed[1], number=number),
            cells=cells.dynamic,
        )


def _dynamic(runs: SynergyRuns, scheme: str, seed: int) -> SynergyCell:
    return runs.grid.dynamic(scheme, seed)


def _p99(figures: SynergyFigures) -> float:
    return figures.p99_jct_seconds / 3600.0


def _of_philly(cells: _Cells) -> Iterator[SynergyClaim]:
    for order, before, after in (("srtf", 30, 26), ("las", 32, 28), ("fifo", 71, 62)):

        def make(runs: SynergyRuns, scheme: str, seed: int, order: str = order) -> SynergyCell:
            return runs.grid.philly(scheme, order, seed)

        yield Claim(
            figure="Table 6a",
            text=f"{order.upper()}, Philly's trace on 512 GPUs: average JCT, proportional over Tune",
            printed=f"{before / after:.2f} ({before}, {after} h)",
            measure=measures.gain(make, before / after),
            cells=partial(cells.philly, order),
        )


def _of_loads(cells: _Cells) -> Iterator[SynergyClaim]:
    yield Claim(
        figure="Fig 9",
        text="FIFO at the highest load (the paper: nine jobs an hour), average JCT: proportional, Tune",
        printed="81, 22 h",
        measure=measures.fifo_hours,
        cells=partial(cells.loads, "fifo", False),
    )
    for figure, order, single, multi in (
        ("Fig 9", "fifo", 3.4, 1.6),
        ("Fig 7", "las", 3.4, 1.6),
        ("Fig 8", "srtf", 3.4, 1.6),
        ("§5.3", "ftf", 2.3, 2.0),
    ):
        for kind, many, printed in (("single-GPU jobs", False, single), ("multi-GPU jobs", True, multi)):
            yield Claim(
                figure=figure,
                text=f"{order.upper()}, {kind}: average JCT, proportional over Tune (the paper: up to)",
                printed=f"{printed:g}",
                measure=measures.most_gain(order, many, printed),
                cells=partial(cells.loads, order, many),
            )


def _of_splits(cells: _Cells) -> Iterator[SynergyClaim]:
    for split in SPLITS:
        yield Claim(
            figure="Fig 11",
            text=f"split {_percent(split)}: Tune is never worse than proportional",
            printed="at most 1",
            measure=measures.no_worse(split),
            cells=partial(cells.split, split),
        )
    yield Claim(
        figure="Fig 11",
        text=f"split {_percent(SPLITS[-1])}: Greedy is worse than proportional",
        printed="above 1",
        measure=measures.greedy_breaks_down(SPLITS[-1]),
        cells=partial(cells.split, SPLITS[-1]),
    )


def _percent(split: tuple[float, float, float]) -> str:
    return ", ".join(f"{100 * part:.0f}" for part in split)


def _of_ratios(cells: _Cells) -> Iterator[SynergyClaim]:
    for ratio, printed in zip(RATIOS, (3.4, 3.0, 2.2, 1.8), strict=True):

        def make(runs: SynergyRuns, scheme: str, seed: int, ratio: float = ratio) -> SynergyCell:
            return runs.grid.ratio(ratio, scheme, seed)

        yield Claim(
            figure="Fig 12",
            text=f"{ratio:g} CPUs a GPU: average JCT, proportional over Tune",
            printed=f"{printed:g}",
            measure=measures.gain(make, printed),
            cells=partial(cells.ratio, ratio),
        )


def _of_big_data(cells: _Cells) -> Iterator[SynergyClaim]:
    def make(runs: SynergyRuns, scheme: str, seed: int) -> SynergyCell:
        return runs.grid.split(SPLITS[-1], scheme, seed)

    for scheme, printed in (("drf", 7.2), ("tetris", 1.8)):
        yield Claim(
            figure="Fig 13",
            text=f"{scheme} with fixed demands over {scheme} with Tune's ranges, split {_percent(SPLITS[-1])}",
            printed=f"{printed:g}",
            measure=measures.gain(make, printed, base=scheme, scheme=f"{scheme}_tune"),
            cells=partial(cells.big_data, SPLITS[-1]),
        )
