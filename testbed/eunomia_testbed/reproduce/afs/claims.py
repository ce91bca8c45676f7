"""The claims of AFS (NSDI'21), their cells, and the reasons for claims that are not measured."""

import functools
from collections.abc import Callable, Iterable, Sequence

from eunomia_testbed.reproduce.afs import measures
from eunomia_testbed.reproduce.afs.cells import AfsCell
from eunomia_testbed.reproduce.afs.grid import AfsClaim, AfsGrid, number_of
from eunomia_testbed.reproduce.paper import Claim
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

SHORT = {"srtf": 31.1, "srsf": 32.8, "max_min": 18.3, "afs_l": 15.2}
"""Figure 2 (a): average JCT on #9 in hours."""
LONG = {"srtf": 3.53, "srsf": 3.32, "max_min": 63.2, "afs_l": 2.40}
"""Figure 2 (b): average JCT on #3 in days."""
AWARE = ("srtf", "srsf", "optimus")
UNAWARE = ("tiresias", "optimus", "max_min", "max_min_turns", "themis")
NOT_DONE = (
    (
        *("Fig 1", "restarts of jobs take tens of seconds", "tens of seconds"),
        "is about TensorFlow; the last claim gives each start that cost",
    ),
    (
        *("Fig 6", "average JCT of Tiresias-L with the most GPUs of each job", "16.14"),
        "jobs wait so long that rounds of a minute over years of simulated time take too long",
    ),
    ("Fig 7", "live on 64 GPUs", "1.12 to 3.54", "needs the cluster"),
    ("Fig 8", "shares changed without a restart (ES, RC)", "2.12, 2.82", "needs jobs that grow without a restart"),
    ("Fig 15", "simulated and real JCTs", "0.5 and 5.2 % off", "needs the cluster"),
    (
        *("App. A", "two jobs on two GPUs: SRTF 1.25 h, equal shares 2 h", "1.25, 2"),
        "1 h and 1.5 h in turn end 1 h and 2.5 h after the start: 1.75 h on average, and 2 h with equal shares",
    ),
)
"""Claims that are not measured: figure, sentence, printed value, and what a measurement would need."""


def claims(grid: AfsGrid) -> Sequence[AfsClaim]:
    """Return all claims in the paper's order, including those that cannot be measured here."""
    measured = [
        *_average_times(grid),
        *_series(grid),
        _claim(grid, "Fig 5", "average JCT over AFS-L's: SRTF", "1.2 to 2.7", "afs_l", ("srtf",), (1.2, 2.7)),
        _claim(grid, "Fig 5", "AFS-L is best of those that know lengths", "over 1", "afs_l", AWARE, (1.0, 1.0)),
        _claim(grid, "Fig 5", "average JCT over AFS-P's: Tiresias-L", "1.9 to 3.1", "afs_p", ("tiresias",), (1.9, 3.1)),
        _claim(grid, "Fig 5", "AFS-P is best of those that do not", "over 1", "afs_p", UNAWARE, (1.0, 1.0)),
        _claim(grid, "§1", "average JCT over AFS-P's: Themis", "1.2 to 2.2", "afs_p", ("themis",), (1.2, 2.2)),
        *_wide(grid),
        _tail(grid, "afs_l", "srtf"),
        _tail(grid, "afs_p", "tiresias"),
        _by_length(grid, "afs_l", "srtf"),
        _by_length(grid, "afs_p", "tiresias"),
        _claim(
            grid,
            *("Fig 11", "AFS-L is better than SRTF-E and SRSF-E", "over 1", "afs_l"),
            *(("srtf_e", "srsf_e"), (1.0, 1.0)),
        ),
        _near(grid, "average JCT of AFS-P over that of AFS-L", "at most 2", ("afs_p", "afs_l"), 2.0),
        _near(grid, "average JCT of AFS-S over that of AFS-P", "similar in many cases", ("afs_s", "afs_p"), 1.0),
        *_variants(grid),
    ]
    return (*(_not_done(*row) for row in NOT_DONE), *measured)


def _not_done(figure: str, text: str, printed: str, why: str) -> AfsClaim:
    found = Measured(text="-", verdict=Verdict.UNMEASURED, reason=f"not done: {why}")
    return Claim(figure=figure, text=text, printed=printed, measure=lambda runs: found, cells=lambda seed: ())


def _cells(
    make: measures.Make, grid: AfsGrid, policies: Sequence[str], clusters: Sequence[str] | None = None
) -> Callable[[int], Iterable[AfsCell]]:
    chosen = grid.names if clusters is None else [one for one in clusters if one in grid.names]
    return lambda seed: [make(policy, cluster, seed) for cluster in chosen for policy in policies]


def _average_times(grid: AfsGrid) -> Iterable[AfsClaim]:
    for cluster, printed, unit, what in (
        ("2869ce", SHORT, measures.HOUR, "#9 in hours"),
        ("b436b2", LONG, measures.DAY, "#3 in days"),
    ):
        yield Claim(
            figure="Fig 2",
            text=f"average JCT on {what}: SRTF, SRSF, Max-Min, AFS-L",
            printed=", ".join(f"{number:g}" for number in printed.values()),
            measure=measures.average_times(cluster, printed, unit),
            cells=_cells(grid.cell, grid, tuple(printed), (cluster,)),
        )


def _claim(
    grid: AfsGrid,
    figure: str,
    text: str,
    printed: str,
    own: str,
    others: Sequence[str],
    bounds: tuple[float, float],
) -> AfsClaim:
    return Claim(
        figure=figure,
        text=text,
        printed=printed,
        measure=measures.gains(own, others, bounds),
        cells=_cells(grid.cell, grid, (own, *others)),
    )


def _wide(grid: AfsGrid) -> Iterable[AfsClaim]:
    for policy, printed in (("srtf", 4.85), ("srsf", 5.84)):
        yield Claim(
            figure="Fig 6",
            text=f"average JCT of {policy} with the most GPUs of each job over that with those asked for: at worst",
            printed=f"{printed:g}",
            measure=measures.blowup({policy: f"{policy}_max"}, printed),
            cells=_cells(grid.cell, grid, (policy, f"{policy}_max")),
        )


def _tail(grid: AfsGrid, own: str, other: str) -> AfsClaim:
    return Claim(
        figure="Fig 9",
        text=f"99th percentile of JCTs over that of {own}: {other}",
        printed="over 1 in most cases",
        measure=measures.gains(own, (other,), (1.0, 1.0), measures.tail),
        cells=_cells(grid.cell, grid, (own, other)),
    )


def _by_length(grid: AfsGrid, own: str, other: str) -> AfsClaim:
    return Claim(
        figure="Fig 10",
        text=f"average JCT by quarter of jobs, from the shortest, over that of {own}: {other}",
        printed="over 1 at most lengths",
        measure=measures.even(own, other),
        cells=_cells(grid.cell, grid, (own, other)),
    )


def _series(grid: AfsGrid) -> Iterable[AfsClaim]:
    for cluster in ("2869ce", "b436b2"):
        yield Claim(
            figure="Fig 2",
            text=f"QL, CE and BI over time on {number_of(cluster)}: AFS-L's over SRTF's",
            printed="lower, higher, lower",
            measure=measures.series(cluster, "afs_l", "srtf"),
            cells=_cells(grid.cell, grid, ("afs_l", "srtf"), (cluster,)),
        )


def _near(grid: AfsGrid, text: str, printed: str, pair: tuple[str, str], ratio: float) -> AfsClaim:
    return Claim(
        figure="Fig 13",
        text=text,
        printed=printed,
        measure=measures.near(*pair, ratio, least=True),
        cells=_cells(grid.cell, grid, pair),
    )


def _variants(grid: AfsGrid) -> Iterable[AfsClaim]:
    for figure, what, variant in (
        ("Packing", "sizes are packed", AfsGrid.packed),
        ("Costs", f"each start costs {grid.start_seconds:g} s", AfsGrid.costly),
    ):
        for own, other in (("afs_l", "srtf"), ("afs_p", "tiresias")):
            yield Claim(
                figure=figure,
                text=f"{what}: average JCT over {own}'s: {other}",
                printed="over 1",
                measure=measures.gains(own, (other,), (1.0, 1.0), variant=variant),
                cells=_cells(functools.partial(variant, grid), grid, (own, other)),
            )
