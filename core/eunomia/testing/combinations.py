"""The table of combinations as a page: ``python -m eunomia.testing.combinations docs/reference/combinations.md``."""

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from eunomia.platform.registry import Registry
from eunomia.testing.cells import PLACE, Combination, CombinationResult, Combinations
from eunomia.units import Stage


def page(table: Combinations) -> str:
    """The table as a page of the reference."""
    outcomes = table.outcomes
    ran = [cell for cell, outcome in outcomes.items() if outcome.ran]
    refused = [outcome for outcome in outcomes.values() if outcome.refused is not None]
    differ = sum(not table.twins(cell) for cell in table.running)
    share = differ / max(1, len(table.running))
    counts = " · ".join(f"{len(table.plugins[stage])} {stage.value}" for stage in _ORDER)
    lines = [
        *_HEAD,
        "| | cells |",
        "|---|---|",
        f"| all ({counts}; {len(table.chains)} chains of refiners) | {len(outcomes)} |",
        f"| refused at load | {len(refused)} |",
        f"| run | {len(ran)} |",
        f"| of these, differ from every neighbour | {differ} ({share:.0%}) |",
        "",
        "## What runs",
        "",
        "| allocation | refiners | valuation | elasticity | placement | cells | differ |",
        "|---|---|---|---|---|---|---|",
        *_running(table, ran),
        "",
        "## What is refused",
        "",
        "The first error of each profile, without its place.",
        "",
        "| error | cells |",
        "|---|---|",
        *(f"| {rule} | {count} |" for rule, count in sorted(_rules(refused).items())),
        "",
        "## Refused on the cluster",
        "",
        "| error | cells |",
        "|---|---|",
        *(f"| {rule} | {count} |" for rule, count in sorted(_unsuited(outcomes.values()).items())),
    ]
    return "\n".join(lines) + "\n"


_ORDER = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
_HEAD = (
    "# Which plugins go together",
    "",
    "`python -m eunomia.testing.combinations docs/reference/combinations.md` writes this page, and a test compares",
    "the two. It combines every elasticity, valuation, allocation, chain of refiners and placement that comes with",
    "Eunomia, with default options: each combination is refused when its profile is loaded, or runs on a small crowded",
    "cluster in virtual time without a fault. A chain has no refiner, one, or two of which the second needs what the",
    "first gives.",
    "",
    "Two cells are neighbours if they differ in one stage. A cell *differs* if its transitions (time, kind, job, GPUs)",
    "equal those of no neighbour. The count covers all cells.",
    "",
)


def _running(table: Combinations, ran: Sequence[Combination]) -> Iterator[str]:
    """A row for each set of cells that is a full product of plugins."""
    by_chain: dict[tuple[str, tuple[str, ...]], dict[str, set[tuple[str, str]]]] = {}
    for cell in ran:
        by_valuation = by_chain.setdefault((cell.allocation, cell.refiners), {})
        by_valuation.setdefault(cell.valuation, set()).add((cell.elasticity, cell.placement))
    for (allocation, chain), by_valuation in sorted(by_chain.items()):
        for shared in sorted({frozenset(pairs) for pairs in by_valuation.values()}, key=sorted):
            valuations = [name for name, pairs in by_valuation.items() if pairs == shared]
            for elasticities, placements in _products(shared):
                cells = [
                    Combination(elasticity, valuation, allocation, chain, placement)
                    for elasticity, valuation, placement in itertools.product(elasticities, valuations, placements)
                ]
                differ = sum(not table.twins(cell) for cell in cells)
                words = (allocation, " ".join(chain) or "-", *map(" ".join, (valuations, elasticities, placements)))
                yield f"| {' | '.join(words)} | {len(cells)} | {differ} |"


def _products(pairs: frozenset[tuple[str, str]]) -> Iterator[tuple[list[str], list[str]]]:
    """Cut a set of pairs into full products."""
    placements: dict[str, list[str]] = {}
    for elasticity, placement in sorted(pairs):
        placements.setdefault(elasticity, []).append(placement)
    for chosen in sorted({tuple(names) for names in placements.values()}):
        yield [name for name, names in placements.items() if tuple(names) == chosen], list(chosen)


def _rules(refused: Iterable[CombinationResult]) -> Counter[str]:
    return Counter(str(outcome.refused).removesuffix(f" ({PLACE})") for outcome in refused)


def _unsuited(outcomes: Iterable[CombinationResult]) -> Counter[str]:
    return Counter(error.removesuffix(" (--cluster)") for outcome in outcomes for _, error in outcome.refused_on)


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named, or to standard output."""
    text = page(Combinations(Registry.find(installed=False), processes=2))
    if arguments:
        Path(arguments[0]).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
