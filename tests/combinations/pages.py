"""The table of combinations as pages of the reference."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from combinations.cells import PLACE, Combination, CombinationResult, Combinations
from eunomia.contract.contracts import Promise
from eunomia.platform.registry import Registry
from eunomia.units import Stage


def pages(table: Combinations) -> dict[str, str]:
    """Return the pages of the reference by path: the counts, and what runs and is refused for each family."""
    families = {name: family_of(table.registry, name) for names in table.plugins.values() for name in names}
    own = sorted(set(families.values()))
    made = {f"combinations/{family}.md": _family_page(table, family, families) for family in own}
    return {"combinations.md": _summary(table, made), **{path: text for path, text in made.items() if text}}


def family_of(registry: Registry, name: str) -> str:
    """Return the family of a plugin: its folder in the package of plugins, else the last part of its module's name."""
    module = registry.listed(name).found.target.partition(":")[0].removesuffix(".py")
    parts = module.rpartition("/")[2].split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _summary(table: Combinations, families: dict[str, str]) -> str:
    outcomes = table.outcomes
    ran = sum(outcome.ran for outcome in outcomes.values())
    refused = sum(rule is not None for rule in table.refused.values())
    differ = sum(not table.twins(cell) for cell in table.running)
    share = differ / max(1, len(table.running))
    counts = " · ".join(f"{len(table.plugins[stage])} {stage.value}" for stage in _ORDER)
    rest = len(table.refused) - len(outcomes)
    lines = [
        *_HEAD,
        "| | cells |",
        "|---|---|",
        f"| all ({counts}; {len(table.chains)} chains of refiners) | {len(table.refused)} |",
        f"| refused at load | {refused} |",
        *([f"| load, and are not in the sample that runs | {rest} |"] if rest else []),
        f"| run | {ran} |",
        f"| of these, differ from every neighbour | {differ} ({share:.0%}) |",
        "",
        "What runs with the allocations of a family, and what a plugin of the family is refused for:",
        "",
        *(f"- [{Path(path).stem}]({path})" for path, text in families.items() if text),
    ]
    return "\n".join(lines) + "\n"


def _family_page(table: Combinations, family: str, families: dict[str, str]) -> str:
    """Return the page of a family; empty: it has no content."""
    cells = [cell for cell in table.suited if families[cell.allocation] == family]
    outcomes = [outcome for outcome in table.outcomes.values() if _blamed(outcome.refused, families) == family]
    unsuited = _unsuited(table.outcomes.values(), family, families)
    if not (cells or outcomes or unsuited):
        return ""
    lines = [
        f"# Which plugins go together: {family}",
        "",
        "[What the columns mean, and the counts](../combinations.md).",
    ]
    if cells:
        head = "| allocation | refiners | valuation | elasticity | placement | cells | ran | differ |"
        lines += ["", "## What runs", "", head, "|---|---|---|---|---|---|---|---|", *_running(table, cells)]
    for title, rules in (("What is refused", _rules(outcomes)), ("Refused on the cluster", unsuited)):
        if rules:
            counted = (f"| {rule} | {count} |" for rule, count in sorted(rules.items()))
            lines += ["", f"## {title}", "", "| error | cells |", "|---|---|", *counted]
    return "\n".join(lines) + "\n"


def _blamed(rule: str | None, families: dict[str, str]) -> str:
    """Return the family of the plugin that an error names first; empty: it names none."""
    found = None if rule is None else _FIRST_NAME.search(rule)
    return "" if found is None else families.get(found.group(1), "")


_FIRST_NAME = re.compile(r'"([a-z0-9_]+)"')
_ORDER = (Stage.ELASTICITY, Stage.VALUATION, Stage.ALLOCATION, Stage.PLACEMENT)
_HEAD = (
    "# Which plugins go together",
    "",
    "`PYTHONPATH=tests python -m combinations docs/reference` writes this page and those of the families, and a test",
    "compares them. They combine every elasticity, valuation, allocation, chain of refiners and placement that comes "
    "with",
    "Eunomia, with default options: each combination is refused when its profile is loaded, or runs on a small crowded",
    "cluster in virtual time without a fault. A chain has no refiner, one, or two of which the second needs what the",
    "first gives. An error is the first one of its profile, without its place. Where more than 750 combinations "
    "load, a",
    "sample of them runs, with each two plugins that go together at least once.",
    "",
    "Two cells are neighbours if they differ in one stage. A cell *differs* if its transitions (time, kind, job, GPUs,",
    "CPUs, memory) equal those of no neighbour that ran; an elasticity that forecasts regimes is not compared with one",
    "that does not, for no job of these scenes adapts. The valuation of an allocation that promises",
    "`READS_NO_VALUATION` is shown as *none*: a profile that names one is refused.",
    "",
)


def _running(table: Combinations, cells: Sequence[Combination]) -> Iterator[str]:
    """Yield a row for each set of cells that is a full product of plugins."""
    by_chain: dict[tuple[str, tuple[str, ...]], dict[str, set[tuple[str, str]]]] = {}
    for cell in cells:
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
                ran = [cell for cell in cells if cell in table.outcomes and table.outcomes[cell].ran]
                differ = sum(not table.twins(cell) for cell in ran)
                values = "*none*" if _reads_none(table, allocation) else " ".join(valuations)
                words = (allocation, " ".join(chain) or "-", values, *map(" ".join, (elasticities, placements)))
                yield f"| {' | '.join(words)} | {len(cells)} | {len(ran)} | {differ} |"


def _reads_none(table: Combinations, allocation: str) -> bool:
    return Promise.READS_NO_VALUATION in table.contracts[Stage.ALLOCATION, allocation].promises


def _products(pairs: frozenset[tuple[str, str]]) -> Iterator[tuple[list[str], list[str]]]:
    """Divide a set of pairs into full products."""
    placements: dict[str, list[str]] = {}
    for elasticity, placement in sorted(pairs):
        placements.setdefault(elasticity, []).append(placement)
    for chosen in sorted({tuple(names) for names in placements.values()}):
        yield [name for name, names in placements.items() if tuple(names) == chosen], list(chosen)


def _rules(refused: Iterable[CombinationResult]) -> Counter[str]:
    return Counter(str(outcome.refused).removesuffix(f" ({PLACE})") for outcome in refused)


def _unsuited(outcomes: Iterable[CombinationResult], family: str, families: dict[str, str]) -> Counter[str]:
    errors = (error.removesuffix(" (--cluster)") for outcome in outcomes for _, error in outcome.refused_on)
    return Counter(error for error in errors if _blamed(error, families) == family)
