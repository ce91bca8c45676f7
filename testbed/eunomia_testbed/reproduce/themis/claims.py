"""The claims of Themis (NSDI'20) and the cells behind each: Figures 9 to 19, Tables 3 and 5, and §6.2.3."""

from collections.abc import Iterable, Iterator, Sequence

from eunomia_testbed.reproduce.paper import Claim
from eunomia_testbed.reproduce.themis import measures
from eunomia_testbed.reproduce.themis.cells import POLICIES, Cell
from eunomia_testbed.reproduce.themis.grid import (
    CONTENTIONS,
    ERRORS,
    KNOBS,
    LEASES,
    LIES,
    NETWORK_PARTS,
    NETWORK_POLICIES,
    Grid,
    ThemisClaim,
)
from eunomia_testbed.reproduce.themis.table3 import table3


def claims(grid: Grid) -> Sequence[ThemisClaim]:
    """All, in the paper's order."""
    return (
        Claim(
            figure="Table 3",
            text="ρ with 4, 8, 16 GPUs",
            printed="1, 0.5, 0.34",
            measure=lambda runs: table3(),
            cells=lambda seed: (),
        ),
        *_of_the_testbed(_Cells(grid)),
        *_of_network_and_reports(_Cells(grid)),
        *_of_knob_and_lease(_Cells(grid)),
        Claim(
            figure="§6.2.3",
            text="the arbiter's time for an auction, ms (mean here)",
            printed="354 (median)",
            measure=measures.auction_time,
            cells=lambda seed: (grid.testbed(workload, "themis", seed) for workload in ("1", "2")),
        ),
    )


class _Cells:
    """The cells of figures, with a seed."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def first(self, seed: int) -> Iterable[Cell]:
        return (self._grid.testbed("1", policy, seed) for policy in POLICIES)

    def second(self, seed: int) -> Iterable[Cell]:
        return (self._grid.testbed("2", policy, seed) for policy in POLICIES)

    def both(self, seed: int) -> Iterator[Cell]:
        yield from self.first(seed)
        yield from self.second(seed)

    def contention(self, seed: int) -> Iterable[Cell]:
        return (self._grid.testbed("1", policy, seed, shrink) for policy in POLICIES for shrink in CONTENTIONS)

    def network(self, seed: int) -> Iterable[Cell]:
        return (self._grid.network(part, policy, seed) for part in NETWORK_PARTS for policy in NETWORK_POLICIES)

    def all_network(self, seed: int) -> Iterable[Cell]:
        return (self._grid.network(1.0, policy, seed) for policy in NETWORK_POLICIES)

    def no_network(self, seed: int) -> Iterable[Cell]:
        return (self._grid.network(0.0, policy, seed) for policy in NETWORK_POLICIES)

    def errors(self, seed: int) -> Iterable[Cell]:
        return (self._grid.error(error, seed) for error in ERRORS)

    def lies(self, seed: int) -> Iterable[Cell]:
        return (self._grid.lie(lie, seed) for lie in LIES)

    def knobs(self, seed: int) -> Iterable[Cell]:
        return (self._grid.knob(knob, 600.0, seed) for knob in KNOBS)

    def leases(self, seed: int) -> Iterable[Cell]:
        return (self._grid.knob(0.8, lease, seed) for lease in LEASES)


def _of_the_testbed(cells: _Cells) -> Iterator[ThemisClaim]:
    for figure, workload, behind in ((9, "1", cells.first), (10, "2", cells.second)):
        yield Claim(
            figure=f"Fig {figure}",
            text=f"worst ρ over Themis', workload {workload}: best and worst baseline",
            printed="2.2, 3.25",
            measure=measures.worst_rho(workload),
            cells=behind,
        )
    yield Claim(
        figure="Fig 11",
        text="GPU time on workload 1: all schemes alike",
        printed="alike",
        measure=measures.gpu_time_alike,
        cells=cells.first,
    )
    yield Claim(
        figure="Fig 12",
        text="GPU time on workload 2 over Themis': Gandiva, SLAQ",
        printed="1.048, 3.5",
        measure=measures.gpu_time_over_themis,
        cells=cells.second,
    )
    yield Claim(
        figure="Table 5",
        text="ρ of a long and of a short app: Themis, Tiresias",
        printed="1 and 1.2, 0.9 and 1.9",
        measure=measures.long_and_short,
        cells=cells.second,
    )
    yield Claim(
        figure="Fig 13",
        text="placement score: workload 1 near 1 for all; workload 2 best for Themis",
        printed="best",
        measure=measures.placement,
        cells=cells.both,
    )
    yield Claim(
        figure="Fig 14",
        text="contention x1, x2, x4: only Themis keeps worst ρ near 1, SRSF is next",
        printed="only Themis",
        measure=measures.contention,
        cells=cells.contention,
    )


def _of_network_and_reports(cells: _Cells) -> Iterator[ThemisClaim]:
    yield Claim(
        figure="Fig 15",
        text="worst ρ over Themis' with network-intensive apps only: best and worst baseline",
        printed="1.24, 1.77",
        measure=measures.all_network,
        cells=cells.all_network,
    )
    yield Claim(
        figure="Fig 15",
        text="Themis' worst ρ is the least for every part of network-intensive apps",
        printed="6 of 6",
        measure=measures.every_network_part,
        cells=cells.network,
    )
    yield Claim(
        figure="Fig 16",
        text="GPU time over Themis' with network-intensive apps only: Gandiva",
        printed="1.081",
        measure=measures.network_gpu_time,
        cells=cells.all_network,
    )
    yield Claim(
        figure="Fig 16",
        text="GPU time with compute-intensive apps only: all schemes alike",
        printed="alike",
        measure=measures.compute_gpu_time,
        cells=cells.no_network,
    )
    yield Claim(
        figure="Fig 17",
        text="worst ρ with reports off by up to 20 %, against true ones",
        printed="+10.76 %",
        measure=measures.errors,
        cells=cells.errors,
    )
    yield Claim(
        figure="Fig 18",
        text="an app that overstates what distance costs it gains nothing",
        printed="no gain; a loss beyond 34 %",
        measure=measures.lies,
        cells=cells.lies,
    )


def _of_knob_and_lease(cells: _Cells) -> Iterator[ThemisClaim]:
    yield Claim(
        figure="Fig 19a",
        text="f = 0.8 is fairer than f = 0; f = 1 is worse again by",
        printed="1.5",
        measure=measures.knob,
        cells=cells.knobs,
    )
    yield Claim(
        figure="Fig 19a",
        text="shorter leases are fairer: worst ρ rises from 5 to 20 min",
        printed="rises",
        measure=measures.lease_rho,
        cells=cells.leases,
    )
    yield Claim(
        figure="Fig 19b",
        text="GPU time rises with f",
        printed="rises",
        measure=measures.knob_gpu_time,
        cells=cells.knobs,
    )
    yield Claim(
        figure="Fig 19b",
        text="GPU time falls with longer leases",
        printed="falls",
        measure=measures.lease_gpu_time,
        cells=cells.leases,
    )
