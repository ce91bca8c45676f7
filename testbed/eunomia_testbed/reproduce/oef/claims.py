"""The claims of OEF (Middleware'24), each under both sets of speeds, with their cells."""

from collections.abc import Iterator, Sequence
from functools import partial

from eunomia_testbed.reproduce.oef import measures
from eunomia_testbed.reproduce.oef.cells import ALLOCATION, JOINS, LEAVES, ROUNDS, OefCell
from eunomia_testbed.reproduce.oef.grid import BASELINES, ERRORS, NAMES, SIZES, WHATS, OefClaim, OefGrid
from eunomia_testbed.reproduce.oef.measures import Make, Measure
from eunomia_testbed.reproduce.oef.tenants import GAVEL
from eunomia_testbed.reproduce.paper import Claim
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

SET_NAMES = {GAVEL: "Gavel's speeds", "printed": "printed speeds"}
NOT_DONE = (
    ("§4.4", "checkpoints moved between hosts", "-", "jobs pay the same for a start wherever it is"),
    ("§8", "fairness of jobs that change their size", "-", "the paper names it as a possible extension"),
)


def claims(grid: OefGrid) -> Sequence[OefClaim]:
    """Return all claims in the paper's order."""
    made = [
        each
        for part in (_strategy_proof, _sharing_incentive, _two_models, _envy, _efficiency, _completion, _errors)
        for speeds in grid.sets
        for each in part(grid, speeds)
    ]
    return (*(_not_done(*row) for row in NOT_DONE), *made, _overhead(grid))


def _not_done(figure: str, text: str, printed: str, why: str) -> OefClaim:
    found = Measured(text="-", verdict=Verdict.UNMEASURED, reason=f"not done: {why}")
    return Claim(figure=figure, text=text, printed=printed, measure=lambda runs: found, cells=lambda seed: ())


def _claim(figure: str, text: str, printed: str, measure: Measure, makes: Sequence[Make]) -> OefClaim:
    def cells(seed: int) -> list[OefCell]:
        return [make(seed) for make in makes]

    return Claim(figure=figure, text=text, printed=printed, measure=measure, cells=cells)


def _named(text: str, speeds: str, what: str) -> str:
    return f"{text} ({SET_NAMES[speeds]}, {NAMES[what]})"


def _strategy_proof(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    for what in WHATS:
        leaving: Make = partial(grid.changing, what, LEAVES, speeds)
        text = _named("non-cooperative: equal throughput, before and after tenant 4 leaves", speeds, what)
        yield _claim("Fig 4a", text, "equal", measures.equal_progress(leaving), [leaving])
    for what in WHATS:
        honest: Make = partial(grid.cell, what, "noncooperative", speeds)
        lying: Make = partial(grid.lying, what, speeds)
        text = _named("tenant 1 overstates: it has less, the others more, all together less", speeds, what)
        yield _claim("Fig 4b", text, "less, all -10 %", measures.lie_is_punished(honest, lying), [honest, lying])


def _sharing_incentive(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    for what, printed in zip(WHATS, (1.16, 1.24), strict=True):
        ours: Make = partial(grid.cell, what, "cooperative", speeds)
        equal: Make = partial(grid.cell, what, "max_min", speeds)
        measure = measures.against_max_min(ours, equal, printed, each=what == ALLOCATION)
        text = _named("cooperative: each tenant at least as with max-min; the greatest ratio", speeds, what)
        yield _claim("Fig 5a", text, f"{printed}", measure, [ours, equal])


def _two_models(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    for what in WHATS:
        joining: Make = partial(grid.changing, what, JOINS, speeds)
        text = _named("tenant 1 adds a model: half of the others' throughput for each", speeds, what)
        yield _claim("Fig 5b", text, "0.5, 0.5", measures.two_models(joining), [joining])


def _envy(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    ours: Make = partial(grid.cell, ALLOCATION, "cooperative", speeds)
    text = _named("no tenant has more with another's GPUs; the most over tenant 1's", speeds, ALLOCATION)
    yield _claim("Fig 6", text, "at least 1, 1.58", measures.no_envy(ours, 1.58), [ours])


def _efficiency(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    for figure, policy, parts in (("Fig 7", "noncooperative", (0.0, 0.10)), ("Fig 8", "cooperative", (0.20, 0.32))):
        for what, printed in zip(WHATS, parts, strict=True):
            others: list[Make] = [partial(grid.twenty, what, name, speeds) for name in BASELINES]
            yield _gain(grid, figure, policy, speeds, what, printed, others, "")
        spread: list[Make] = [partial(grid.spread, name, speeds) for name in BASELINES]
        yield _gain(grid, figure, policy, speeds, ROUNDS, parts[1], spread, ", baselines placed on hosts in turn")


def _gain(
    grid: OefGrid, figure: str, policy: str, speeds: str, what: str, printed: float, others: list[Make], how: str
) -> OefClaim:
    ours: Make = partial(grid.twenty, what, policy, speeds)
    text = _named(f"{policy}: throughput over Gavel's and Gandiva-fair's{how}", speeds, what)
    shown = f"up to +{100 * printed:.0f} %" if printed else "comparable"
    return _claim(figure, text, shown, measures.gain(ours, others, printed, comparable=not printed), [ours, *others])


def _completion(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    ours: Make = partial(grid.fifty, "cooperative", speeds)
    others: list[Make] = [partial(grid.fifty, name, speeds) for name in BASELINES]
    for name, make, printed in zip(BASELINES, others, (-0.19, -0.17), strict=True):
        text = _named(f"cooperative: mean JCT against {name}", speeds, ROUNDS)
        yield _claim("Fig 9", text, f"{100 * printed:.0f} %", measures.faster(ours, make, printed), [ours, make])
    text = _named("workers in gangs of several GPU types against Gavel and Gandiva-fair", speeds, ROUNDS)
    yield _claim("§6.3.3", text, "-26 %, -14 %", measures.stragglers(ours, others), [ours, *others])


def _errors(grid: OefGrid, speeds: str) -> Iterator[OefClaim]:
    for what in WHATS:

        def make(error: float, seed: int, what: str = what) -> OefCell:
            return grid.wrong(what, error, speeds, seed)

        makes: list[Make] = [partial(make, error) for error in ERRORS]
        text = _named("cooperative: throughput lost at a profiling error of 20 %", speeds, what)
        yield _claim("Fig 10b", text, "about 3 %", measures.deviation(make, what), makes)


def _overhead(grid: OefGrid) -> OefClaim:
    makes: list[Make] = [
        lambda seed, policy=policy, size=size: grid.overhead(policy, size, seed)  # type: ignore[misc]
        for policy in ("cooperative", "noncooperative")
        for size in SIZES
    ]
    text = "cooperative takes longer than non-cooperative, and far less than a round: 30, 100, 300 tenants, 10 types"
    return _claim("Fig 10a", text, "longer, negligible", measures.overhead(grid.overhead), makes)
