"""Functions that measure Synergy's claims."""

from collections.abc import Callable
from statistics import fmean

from eunomia_testbed.reproduce.synergy.cells import SynergyCell, SynergyFigures
from eunomia_testbed.reproduce.synergy.grid import ALL, COMPARED, SynergyRuns
from eunomia_testbed.reproduce.synergy.tables import orders_as_table_2, orders_as_table_3
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict, all_of, judged

Make = Callable[[SynergyRuns, str, int], SynergyCell]
"""The cell of a scheme with a seed."""
CLOSE = 0.03
"""On the static trace, a makespan is that of the authors' simulator if it is off by at most this part."""
CLOSE_JCT = 0.05
NO_WORSE = 1.02
"""Over proportional, a mean completion time up to this counts as no worse."""
EVERY_ORDER = 24


def table_2(runs: SynergyRuns) -> Measured:
    """Check that every job has its proportional share, in all orders of arrival."""
    return _orders(orders_as_table_2(), "each of the four jobs gets 12 CPUs and 250 GiB")


def table_3(runs: SynergyRuns) -> Measured:
    """Check that Tune places J1 with J3 and J2 with J4, in all orders of arrival."""
    return _orders(orders_as_table_3(), "J1 with J3, J2 with J4, each with its whole demand, as the arbiter decides")


def _orders(found: int, reason: str) -> Measured:
    verdict = Verdict.HOLDS if found == EVERY_ORDER else Verdict.FAILS
    return Measured(text=f"{found} of {EVERY_ORDER}", verdict=verdict, reason=reason, values=(float(found),))


def static(
    scheme: str, order: str, number: Callable[[SynergyFigures], float], simulated: float, close: float
) -> Callable[[SynergyRuns], Measured]:
    """Compare hours on the static trace with those of the authors' simulator on the same file.

    Args:
        scheme: division of CPUs and memory.
        order: order of jobs.
        number: selects the hours from figures.
        simulated: hours by the authors' simulator.
        close: accepted relative difference.
    """

    def measure(runs: SynergyRuns) -> Measured:
        done = runs.of(lambda seed: runs.grid.static(scheme, order, seed))
        if not done:
            return NOT_RUN
        here = number(done[0])
        off = here / simulated - 1.0
        verdict = Verdict.HOLDS if abs(off) <= close else Verdict.DIRECTION if off < 0.0 else Verdict.FAILS
        reason = f"the authors' simulator has {simulated:.2f} h on the same file: {100 * off:+.1f} %"
        return Measured(text=f"{here:.2f} h", verdict=verdict, reason=reason, values=(here,))

    return measure


def hours_of(figures: SynergyFigures) -> float:
    """Return the mean completion time in hours."""
    return figures.hours


def gain(
    make: Make,
    printed: float,
    *,
    base: str = "proportional",
    scheme: str = "tune",
    number: Callable[[SynergyFigures], float] = hours_of,
) -> Callable[..., Measured]:
    """Measure hours, such as the mean completion time, under one scheme over those under another."""

    def measure(runs: SynergyRuns) -> Measured:
        by = runs.by_policy(lambda name, seed: make(runs, name, seed), (base, scheme))
        if not by[base]:
            return NOT_RUN
        before, after = (fmean(map(number, by[name])) for name in (base, scheme))
        ratio = before / after
        pairs = tuple(number(one) / number(other) for one, other in zip(by[base], by[scheme], strict=True))
        return Measured(
            text=f"{ratio:.2f}",
            verdict=judged(ratio, printed, direction=ratio > 1.0, better=ratio > printed),
            reason=f"{base} {before:.1f} h, {scheme} {after:.1f} h",
            values=(ratio,),
            by_seed={f"{base} over {scheme}": pairs},
        )

    return measure


def most_gain(order: str, multi: bool, printed: float) -> Callable[[SynergyRuns], Measured]:
    """Measure mean completion time under proportional over Tune's, at the load with the greatest ratio (Figs 7-9)."""

    def measure(runs: SynergyRuns) -> Measured:
        of_load, said = [], []
        for at, load in enumerate(runs.grid.loads_of(multi=multi)):
            by = _at_load(runs, order, multi, at)
            if not by["tune"]:
                return NOT_RUN
            before, after = (fmean(one.hours for one in by[name]) for name in COMPARED)
            pairs = tuple(one.hours / other.hours for one, other in zip(by[COMPARED[0]], by["tune"], strict=True))
            of_load.append((before / after, pairs))
            said.append(f"{load:g} an hour: {before:.1f}, {after:.1f} h")
        ratio, pairs = max(of_load)
        return Measured(
            text=f"{ratio:.2f}",
            verdict=judged(ratio, printed, direction=ratio > 1.0, better=ratio > printed),
            reason="proportional and Tune at " + "; ".join(said),
            values=(ratio,),
            by_seed={"proportional over tune": pairs},
        )

    return measure


def _at_load(runs: SynergyRuns, order: str, multi: bool, at: int) -> dict[str, list[SynergyFigures]]:
    return runs.by_policy(lambda scheme, seed: runs.grid.at_loads(scheme, order, seed, multi=multi)[at], COMPARED)


def fifo_hours(runs: SynergyRuns) -> Measured:
    """Measure hours at nine jobs an hour, under proportional and Tune (Figure 9)."""
    by = _at_load(runs, "fifo", multi=False, at=-1)
    if not by["tune"]:
        return NOT_RUN
    hours = {scheme: fmean(one.hours for one in done) for scheme, done in by.items()}
    verdicts = [
        judged(hours[scheme], printed, direction=hours["tune"] < hours["proportional"])
        for scheme, printed in (("proportional", 81.0), ("tune", 22.0))
    ]
    return Measured(
        text=f"{hours['proportional']:.1f}, {hours['tune']:.1f} h",
        verdict=all_of(verdicts),
        reason=f"{hours['proportional'] / hours['tune']:.2f} times; the paper's hours depend on how long it measured",
        values=tuple(hours.values()),
    )


def no_worse(split: tuple[float, float, float]) -> Callable[[SynergyRuns], Measured]:
    """Check that Tune is never worse than proportional, with Greedy for comparison (Figure 11)."""

    def measure(runs: SynergyRuns) -> Measured:
        by = runs.by_policy(lambda scheme, seed: runs.grid.split(split, scheme, seed), ALL)
        if not by["tune"]:
            return NOT_RUN
        pairs = [one.hours / base.hours for one, base in zip(by["tune"], by["proportional"], strict=True)]
        hours = {scheme: fmean(one.hours for one in done) for scheme, done in by.items()}
        said = ", ".join(f"{scheme} {found:.1f} h" for scheme, found in hours.items())
        worst = max(pairs)
        return Measured(
            text=f"{worst:.2f}",
            verdict=Verdict.HOLDS if worst <= NO_WORSE else Verdict.FAILS,
            reason=f"Tune's mean completion time over proportional's, the worst seed; {said}",
            values=(worst,),
            by_seed={"tune over proportional": tuple(pairs)},
        )

    return measure


def greedy_breaks_down(split: tuple[float, float, float]) -> Callable[[SynergyRuns], Measured]:
    """Check that Greedy is worse than proportional if all jobs are sensitive (Figure 11c)."""

    def measure(runs: SynergyRuns) -> Measured:
        by = runs.by_policy(lambda scheme, seed: runs.grid.split(split, scheme, seed), ALL)
        if not by["greedy"]:
            return NOT_RUN
        ratio = fmean(one.hours for one in by["greedy"]) / fmean(one.hours for one in by["proportional"])
        return Measured(
            text=f"{ratio:.2f}",
            verdict=Verdict.HOLDS if ratio > 1.0 else Verdict.FAILS,
            reason="Greedy's mean completion time over proportional's",
            values=(ratio,),
        )

    return measure
