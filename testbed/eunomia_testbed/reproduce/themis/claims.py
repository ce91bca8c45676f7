"""The claims of Themis (NSDI'20) with their cells: Figures 9 to 19, Tables 3 and 5, §6.2.3, and goals.

Each claim is made for every model of slowdowns, one after another.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from eunomia_testbed.reproduce.paper import Claim, Runs
from eunomia_testbed.reproduce.themis import measures
from eunomia_testbed.reproduce.themis.cells import POLICIES, Cell
from eunomia_testbed.reproduce.themis.floors import Bases, Measure, with_floor
from eunomia_testbed.reproduce.themis.grid import (
    CONTENTIONS,
    ERRED,
    ERRORS,
    KNOBS,
    LEASES,
    LIES,
    NETWORK_PARTS,
    NETWORK_POLICIES,
    Grid,
    ThemisClaim,
    ThemisRuns,
    alone_of,
)
from eunomia_testbed.reproduce.themis.speeds import SLOWDOWNS
from eunomia_testbed.reproduce.themis.table3 import table3
from eunomia_testbed.reproduce.verdicts import Measured


def claims(grid: Grid) -> Sequence[ThemisClaim]:
    """Return all claims in the paper's order."""
    by_model = [tuple(_of_model(_Cells(grid.under(name)))) for name in grid.models]
    first: ThemisClaim = Claim(
        figure="Table 3",
        text="ρ with 4, 8, 16 GPUs",
        printed="1, 0.5, 0.34",
        measure=lambda runs: table3(),
        cells=lambda seed: (),
    )
    return (first, *chain.from_iterable(zip(*by_model, strict=True)))


def _of_model(cells: "_Cells") -> Iterator[ThemisClaim]:
    """Yield the claims under one slowdown model, that of the grid."""
    yield from _of_the_testbed(cells)
    yield from _of_network(cells)
    yield from _of_reports(cells)
    yield from _of_knob_and_lease(cells)
    yield cells.claim(
        figure="§6.2.3",
        text="the arbiter's time for an auction, ms (mean here)",
        printed="354 (median)",
        measure=measures.auction_time,
        cells=lambda seed: [*cells.fair("1")(seed), *cells.fair("2")(seed)],
    )
    yield from _goals(cells)


class _Cells:
    """The cells of each figure, by seed, under one slowdown model."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def claim(
        self,
        *,
        figure: str,
        text: str,
        printed: str,
        measure: Measure,
        cells: Callable[[int], Iterable[Cell]],
        floor: Bases | None = None,
    ) -> ThemisClaim:
        """Make a claim under this model; with a floor, the apps of the cells also run alone."""
        model = self._grid.models[0]
        whole = with_floor(measure, floor) if floor else measure

        def measured(runs: ThemisRuns) -> Measured:
            return whole(Runs(grid=runs.grid.under(model), done=runs.done))

        def behind(seed: int) -> Iterator[Cell]:
            yield from cells(seed)
            yield from map(alone_of, floor(seed) if floor else ())

        return Claim(
            figure=figure, text=f"{text} ({SLOWDOWNS[model]})", printed=printed, measure=measured, cells=behind
        )

    def testbed(self, workload: str) -> Bases:
        """Return the testbed cells of all policies."""
        return lambda seed: [self._grid.testbed(workload, policy, seed) for policy in POLICIES]

    def fair(self, workload: str) -> Bases:
        """Return the testbed cells of Themis alone."""
        return lambda seed: [self._grid.testbed(workload, "themis", seed)]

    def both(self, seed: int) -> list[Cell]:
        return [*self.testbed("1")(seed), *self.testbed("2")(seed)]

    def contention(self, seed: int) -> list[Cell]:
        return [self._grid.testbed("1", policy, seed, shrink) for policy in POLICIES for shrink in CONTENTIONS]

    def fair_contention(self, seed: int) -> list[Cell]:
        return [self._grid.testbed("1", "themis", seed, shrink) for shrink in CONTENTIONS]

    def network(self, *parts: float, policies: Sequence[str] = NETWORK_POLICIES) -> Bases:
        return lambda seed: [self._grid.network(part, policy, seed) for part in parts for policy in policies]

    def flat(self, policies: Sequence[str]) -> Bases:
        return lambda seed: [self._grid.simulated(policy, seed) for policy in policies]

    def errors(self, on: str) -> Bases:
        return lambda seed: [self._grid.error(error, on, seed) for error in ERRORS]

    def lies(self, seed: int) -> list[Cell]:
        return [self._grid.lie(lie, seed) for lie in LIES]

    def knobs(self, seed: int) -> list[Cell]:
        return [self._grid.knob(knob, 600.0, seed) for knob in KNOBS]

    def leases(self, seed: int) -> list[Cell]:
        return [self._grid.knob(0.8, lease, seed) for lease in LEASES]


def _of_the_testbed(cells: _Cells) -> Iterator[ThemisClaim]:
    for figure, workload in ((9, "1"), (10, "2")):
        yield cells.claim(
            figure=f"Fig {figure}",
            text=f"worst ρ over Themis', workload {workload}: best and worst baseline",
            printed="2.2, 3.25",
            measure=measures.worst_rho(workload),
            cells=cells.testbed(workload),
            floor=cells.fair(workload),
        )
    yield cells.claim(
        figure="Fig 11",
        text="GPU time on workload 1: all schemes alike",
        printed="alike",
        measure=measures.gpu_time_alike,
        cells=cells.testbed("1"),
    )
    yield cells.claim(
        figure="Fig 12",
        text="GPU time on workload 2 over Themis': Gandiva, SLAQ",
        printed="1.048, 3.5",
        measure=measures.gpu_time_over_themis,
        cells=cells.testbed("2"),
    )
    yield cells.claim(
        figure="Table 5",
        text="ρ of a long and of a short app: Themis, Tiresias",
        printed="1 and 1.2, 0.9 and 1.9",
        measure=measures.long_and_short,
        cells=cells.testbed("2"),
        floor=cells.fair("2"),
    )
    yield cells.claim(
        figure="Fig 13",
        text="placement score: workload 1 near 1 for all; workload 2 best for Themis",
        printed="best",
        measure=measures.placement,
        cells=cells.both,
    )
    yield cells.claim(
        figure="Fig 14",
        text="contention x1, x2, x4: only Themis keeps worst ρ near 1, SRSF is next",
        printed="only Themis",
        measure=measures.contention,
        cells=cells.contention,
        floor=cells.fair_contention,
    )


def _of_network(cells: _Cells) -> Iterator[ThemisClaim]:
    yield cells.claim(
        figure="Fig 15",
        text="worst ρ over Themis' with network-intensive apps only: best and worst baseline",
        printed="1.24, 1.77",
        measure=measures.all_network,
        cells=cells.network(1.0),
        floor=cells.network(1.0, policies=("themis",)),
    )
    yield cells.claim(
        figure="Fig 15",
        text="Themis' worst ρ is the least for every part of network-intensive apps",
        printed="6 of 6",
        measure=measures.every_network_part,
        cells=cells.network(*NETWORK_PARTS),
        floor=cells.network(*NETWORK_PARTS, policies=("themis",)),
    )
    yield cells.claim(
        figure="Fig 16",
        text="GPU time over Themis' with network-intensive apps only: Gandiva",
        printed="1.081",
        measure=measures.network_gpu_time,
        cells=cells.network(1.0),
    )
    yield cells.claim(
        figure="Fig 16",
        text="GPU time with compute-intensive apps only: all schemes alike",
        printed="alike",
        measure=measures.compute_gpu_time,
        cells=cells.network(0.0),
    )


def _of_reports(cells: _Cells) -> Iterator[ThemisClaim]:
    for on, said in zip(ERRED, ("iterations", "S"), strict=True):
        yield cells.claim(
            figure="Fig 17",
            text=f"worst ρ with reports of {said} off by up to 20 %, against true ones",
            printed="+10.76 %",
            measure=measures.errors(on),
            cells=cells.errors(on),
            floor=cells.errors(on),
        )
    yield cells.claim(
        figure="Fig 18",
        text="an app that overstates what distance costs it gains nothing",
        printed="no gain; a loss beyond 34 %",
        measure=measures.lies,
        cells=cells.lies,
    )


def _of_knob_and_lease(cells: _Cells) -> Iterator[ThemisClaim]:
    yield cells.claim(
        figure="Fig 19a",
        text="f = 0.8 is fairer than f = 0; f = 1 is worse again by",
        printed="1.5",
        measure=measures.knob,
        cells=cells.knobs,
        floor=cells.knobs,
    )
    yield cells.claim(
        figure="Fig 19a",
        text="shorter leases are fairer: worst ρ rises from 5 to 20 min",
        printed="rises",
        measure=measures.lease_rho,
        cells=cells.leases,
        floor=cells.leases,
    )
    yield cells.claim(
        figure="Fig 19b",
        text="GPU time rises with f",
        printed="rises",
        measure=measures.knob_gpu_time,
        cells=cells.knobs,
    )
    yield cells.claim(
        figure="Fig 19b",
        text="GPU time falls with longer leases",
        printed="falls",
        measure=measures.lease_gpu_time,
        cells=cells.leases,
    )


def _goals(cells: _Cells) -> Iterator[ThemisClaim]:
    """Yield goals that the paper does not print, or does not print as a number."""
    yield cells.claim(
        figure="Goal",
        text="GPU time on workload 2 over Gandiva's",
        printed="at most 1.05",
        measure=measures.goal_of_gpu_time,
        cells=cells.testbed("2"),
    )
    yield cells.claim(
        figure="Goal",
        text="worst ρ on workload 2 over Gandiva's",
        printed="at most 1",
        measure=measures.goal_of_worst_rho,
        cells=cells.testbed("2"),
        floor=cells.fair("2"),
    )
    yield cells.claim(
        figure="Goal",
        text="worst ρ on the workload without a floor: Themis' is the least of all",
        printed="least",
        measure=measures.goal_without_floor,
        cells=cells.flat(tuple(POLICIES)),
        floor=cells.flat(("themis",)),
    )
