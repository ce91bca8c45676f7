"""Bars of the measured numbers for Themis' figures."""

from collections.abc import Callable, Mapping
from statistics import fmean

from eunomia_testbed.reproduce.paper import Picture
from eunomia_testbed.reproduce.themis.cells import POLICIES, Cell, Figures
from eunomia_testbed.reproduce.themis.grid import (
    CONTENTIONS,
    KNOBS,
    LEASES,
    LIES,
    NETWORK_PARTS,
    NETWORK_POLICIES,
    ThemisRuns,
)


def pictures(runs: ThemisRuns) -> list[Picture]:
    """Return the bars of Figures 9 to 19; empty: no cell was run."""
    grid = runs.grid

    def mean(make: Callable[[int], Cell], number: Callable[[Figures], float]) -> float | None:
        found = runs.of(make)
        return fmean(map(number, found)) if found else None

    def worst(one: Figures) -> float:
        return one.worst_rho

    def hours(one: Figures) -> float:
        return one.gpu_hours

    made: list[tuple[str, Mapping[str, float | None]]] = []
    for figure, workload in ((9, "1"), (10, "2")):
        bars = {p: mean(lambda s, p=p, w=workload: grid.testbed(w, p, s), worst) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure {figure}: worst ρ, workload {workload}", bars))
    for figure, workload in ((11, "1"), (12, "2")):
        bars = {p: mean(lambda s, p=p, w=workload: grid.testbed(w, p, s), hours) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure {figure}: GPU hours, workload {workload}", bars))
    for shrink in CONTENTIONS:
        bars = {p: mean(lambda s, p=p, x=shrink: grid.testbed("1", p, s, x), worst) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure 14: worst ρ, contention x{shrink}", bars))
    for policy in NETWORK_POLICIES:
        bars = {
            f"{100 * part:.0f} %": mean(lambda s, x=part, p=policy: grid.network(x, p, s), worst)  # type: ignore[misc]
            for part in NETWORK_PARTS
        }
        made.append((f"Figure 15: worst ρ by network-intensive apps, {policy}", bars))

    def own_time(one: Figures) -> float:
        return one.jct_seconds[-1]

    lies = {f"{100 * lie:.0f} %": mean(lambda s, x=lie: grid.lie(x, s), own_time) for lie in LIES}  # type: ignore[misc]
    made.append(("Figure 18: completion time of the lying app, s", lies))
    knobs = {f"f {knob:g}": mean(lambda s, x=knob: grid.knob(x, 600.0, s), worst) for knob in KNOBS}  # type: ignore[misc]
    made.append(("Figure 19a: worst ρ by f", knobs))
    leases = {f"{lease / 60:g} min": mean(lambda s, x=lease: grid.knob(0.8, x, s), worst) for lease in LEASES}  # type: ignore[misc]
    made.append(("Figure 19a: worst ρ by lease", leases))
    known = {title: {name: size for name, size in bars.items() if size is not None} for title, bars in made}
    return [Picture(title=title, bars=bars) for title, bars in known.items()]
