"""The claims of Shockwave (NSDI'23), their cells, and the reasons for claims that are not measured."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from eunomia_testbed.reproduce.paper import Claim
from eunomia_testbed.reproduce.shockwave import measures
from eunomia_testbed.reproduce.shockwave.cells import ShockwaveCell
from eunomia_testbed.reproduce.shockwave.grid import (
    CONTENTIONS,
    ERRORS,
    FAIR,
    FRESH,
    LARGE,
    PUBLISHED_TRACE,
    SETTINGS,
    USUAL,
    ShockwaveClaim,
    ShockwaveGrid,
)
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

NOT_DONE = (
    (
        *("Table 1", "fixed filters of Themis, three jobs (with Fig 1 and 15)", "0.78, 0.83, 1.1"),
        "the sizes and times of the three jobs stand in a picture alone",
    ),
    (
        *("Fig 3", "accuracy under Pollux' and an expert's batch sizes", "2 to 3 % lost"),
        "needs trainings of ResNet-18 on CIFAR-10 with the statistical efficiency of each step",
    ),
    (
        *("Fig 5", "error of regime durations, accuracy of run times", "6 %, 84 %"),
        "is about the forecast, not the plan: python tests/benchmarks/bench_forecast.py measures it",
    ),
    (
        *("Fig 11", "fairness and efficiency against Pollux", "ρ 2 times less"),
        "needs Pollux' simulator and its job profiles",
    ),
    ("Fig 14", "accuracy of NeuMF under Pollux", "lost", "needs trainings of NeuMF with Pollux"),
    (
        *("Fig 17", "Pollux' trace on 32 GPUs", "as Fig 7"),
        "needs Pollux' production trace with the batch sizes of each job",
    ),
)
"""Figure, sentence, printed value, and what a measurement would need."""


def claims(grid: ShockwaveGrid) -> Sequence[ShockwaveClaim]:
    """Return all claims in the paper's order, including those that cannot be measured here."""
    cells = _Cells(grid)
    measured = [
        *_of_knowledge(cells),
        *_of_the_trace(cells),
        *_at_scale(cells, grid),
        *_of_mixes(cells),
        *_of_the_planner(cells),
        *_of_fresh_traces(cells),
    ]
    rest = [_not_done(*row) for row in NOT_DONE]
    return (*rest, *measured)


def _not_done(figure: str, text: str, printed: str, why: str) -> ShockwaveClaim:
    found = Measured(text="-", verdict=Verdict.UNMEASURED, reason=f"not done: {why}")
    return Claim(figure=figure, text=text, printed=printed, measure=lambda runs: found, cells=lambda seed: ())


class _Cells:
    """The cells of each figure for one seed."""

    def __init__(self, grid: ShockwaveGrid) -> None:
        self._grid = grid

    def usual(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.cell(policy, seed) for policy in USUAL)

    def reactive(self, seed: int) -> Iterable[ShockwaveCell]:
        yield self._grid.known("themis", "measured", seed)
        yield self._grid.known("shockwave", "regimes", seed)

    def makespan(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.makespan(know, seed) for know in measures.KNOWLEDGE)

    def settings(self, seed: int) -> Iterable[ShockwaveCell]:
        chosen = SETTINGS if seed == self._grid.seeds[0] else ()
        return (self._grid.setting(k, regularizer, seed) for k, regularizer in chosen)

    def published(self, seed: int) -> Iterable[ShockwaveCell]:
        if seed != self._grid.seeds[0]:
            return ()
        return [self._grid.published(policy, forecast=forecast) for policy, forecast in PUBLISHED_TRACE]

    def batch(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.batch(policy, seed) for policy in ("shockwave", "allox", "gavel", "ossp"))

    def scaled(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.scaled(gpus, policy, seed) for gpus in self._grid.scales for policy in LARGE)

    def mixed(self, static: float, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.mixed(static, policy, seed) for policy in ("shockwave", *FAIR))

    def crowds(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.crowd(jobs, seed) for jobs in (500, 1000, 2000))

    def errors(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.error(part, seed) for part in ERRORS)

    def contended(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.contended(one, policy, seed) for one in CONTENTIONS for policy in ("shockwave", *FAIR))

    def fresh(self, seed: int) -> Iterable[ShockwaveCell]:
        return (self._grid.fresh(policy, seed) for policy in FRESH)


def _of_knowledge(cells: _Cells) -> Iterator[ShockwaveClaim]:
    yield Claim(
        figure="Fig 2",
        text="worst ρ of jobs that adapt: reactive Themis, proactive Shockwave",
        printed="2.07, at most 1",
        measure=measures.reactive_fairness,
        cells=cells.reactive,
    )
    yield Claim(
        figure="Fig 4",
        text="makespan over that of a proactive planner: agnostic, reactive",
        printed="1.30, 1.22",
        measure=measures.reactive_makespan,
        cells=cells.makespan,
    )


def _of_the_trace(cells: _Cells) -> Iterator[ShockwaveClaim]:
    for text, policies, number, printed in (
        ("makespan over Shockwave's: Themis, Gavel, AlloX", FAIR, measures.makespan, 1.3),
        ("makespan over Shockwave's: max-sum-throughput", ("mst",), measures.makespan, 1.37),
        ("worst ρ over Shockwave's: Themis, Gavel, AlloX", FAIR, measures.worst, 2.0),
        ("part of jobs with ρ > 1 over Shockwave's: Themis, Gavel, AlloX", FAIR, measures.above_one, 2.7),
    ):
        measure = measures.over(measures.usual, policies, number, printed)
        yield Claim(figure="Fig 7", text=text, printed=f"{printed:g}", measure=measure, cells=cells.usual)
    yield Claim(
        figure="Fig 7",
        text="mean JCT similar to Themis', Gavel's and MST's",
        printed="similar",
        measure=measures.jct_alike,
        cells=cells.usual,
    )
    yield Claim(
        figure="Fig 7",
        text="makespan, mean JCT, worst ρ, ρ > 1.05 of the planner of (11) on the published trace",
        printed="24197, 9958, 1.784, 5 %",
        measure=measures.settings,
        cells=cells.settings,
    )
    yield Claim(
        figure="Fig 7",
        text="the same of shockwave_urgent: forecast, plan, budgets by urgency (goals, not the paper's)",
        printed="22000, 8500, 1.15, 1 %",
        measure=measures.published,
        cells=cells.published,
    )
    yield Claim(
        figure="Fig 8",
        text="50 jobs: Shockwave's worst ρ; jobs with ρ > 1 of AlloX and Gavel",
        printed="1.23, over 20 %",
        measure=measures.batch,
        cells=cells.batch,
    )


def _at_scale(cells: _Cells, grid: ShockwaveGrid) -> Iterator[ShockwaveClaim]:
    printed = {"themis": 1.3, "gavel": 1.32, "allox": 1.36, "gandiva_fair": 1.25}
    for gpus in grid.scales:
        for policy, ratio in printed.items():
            yield Claim(
                figure="Fig 9",
                text=f"makespan over Shockwave's, {gpus} GPUs: {policy}",
                printed=f"{ratio:g}",
                measure=measures.over(measures.scaled(gpus), (policy,), measures.makespan, ratio),
                cells=cells.scaled,
            )
    yield Claim(
        figure="Fig 9",
        text="Shockwave's worst ρ and part of jobs with ρ > 1",
        printed="1.32, 4 %",
        measure=measures.fairness_at_scale,
        cells=cells.scaled,
    )


def _of_mixes(cells: _Cells) -> Iterator[ShockwaveClaim]:
    for static, gain, parts, printed in (
        (1.0, 1.18, {"shockwave": 0.05}, "at most 5 %"),
        (0.0, 1.3, {"shockwave": 0.09, "themis": 0.28, "allox": 0.22}, "9, 28, 22 %"),
    ):
        kind = "static" if static else "dynamic"
        yield Claim(
            figure="Fig 10",
            text=f"makespan over Shockwave's, all jobs {kind}: Themis, Gavel, AlloX",
            printed=f"{gain:g}",
            measure=measures.over(measures.mixed(static), FAIR, measures.makespan, gain),
            cells=partial(cells.mixed, static),
        )
        yield Claim(
            figure="Fig 10",
            text=f"jobs with ρ > 1, all jobs {kind}: {', '.join(parts)}",
            printed=printed,
            measure=measures.unfair_jobs(static, parts),
            cells=partial(cells.mixed, static),
        )


def _of_the_planner(cells: _Cells) -> Iterator[ShockwaveClaim]:
    yield Claim(
        figure="Fig 12",
        text="gap of plans on 256 GPUs: 500, 1000, 2000 jobs",
        printed="0.03, 0.11, 0.44 %",
        measure=measures.overhead,
        cells=cells.crowds,
    )
    yield Claim(
        figure="Fig 13",
        text="work and rates off by up to 100 %: makespan grows by 30 %, mean JCT stays",
        printed="1.3, steady",
        measure=measures.errors,
        cells=cells.errors,
    )
    yield Claim(
        figure="Fig 16",
        text="gain in makespan over Themis, Gavel, AlloX at contention 3, 2, 1.5",
        printed="35, 19, 8 %",
        measure=measures.by_contention,
        cells=cells.contended,
    )


def _of_fresh_traces(cells: _Cells) -> Iterator[ShockwaveClaim]:
    for policy in ("shockwave", "shockwave_urgent"):
        yield Claim(
            figure="Fresh",
            text=f"{policy}: makespan over OSSP's, JCT over SRTF's, ρ > 1.05, worst ρ (goals, not the paper's)",
            printed="1, 1.2, 0.02, 1.3",
            measure=measures.fresh(policy),
            cells=cells.fresh,
        )
