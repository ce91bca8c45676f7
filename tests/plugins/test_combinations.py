"""Any stage with any other: every combination runs or is rejected at load by name; the page lists them."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from combinations.cell_sampling import pairs_of, sampled
from combinations.cells import PLACE, Combination, Combinations
from combinations.pages import family_of, pages
from eunomia.contract.contracts import Feature, Promise
from eunomia.errors import InputErrors
from eunomia.platform.registry import Registry
from eunomia.units import Stage

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
NAMED = re.compile(r'(elasticity|valuation|allocation|refiner|placement) "([a-z0-9_]+)"')
FLOOR = 0.6
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table() -> Combinations:
    return Combinations(Registry.find(installed=False), processes=2)


def test_every_plugin_of_the_tree_is_in_the_table(table: Combinations) -> None:
    standing = {name for names in table.plugins.values() for name in names}
    staged = {name for name in table.registry.names if table.registry.stages(name)}
    assert standing == staged


@pytest.mark.timeout(900)
def test_an_accepted_combination_has_no_fault_and_starts_jobs(table: Combinations) -> None:
    ran = {cell: outcome for cell, outcome in table.outcomes.items() if outcome.ran}
    assert {cell: outcome.faults for cell, outcome in ran.items() if outcome.faults} == {}
    assert [cell for cell, outcome in ran.items() if outcome.started == 0] == []


def test_a_rejected_combination_is_refused_at_load_with_the_names_of_both_plugins(table: Combinations) -> None:
    for cell, outcome in table.outcomes.items():
        if outcome.refused is not None:
            own = {(_word(stage), name) for stage, name in cell.steps}
            assert len(set(NAMED.findall(outcome.refused)) & own) >= 2, outcome.refused
        elif not outcome.ran:
            assert len(outcome.refused_on) == 2, cell


def test_a_profile_is_refused_with_the_reason_in_the_table(table: Combinations) -> None:
    by_rule: dict[str, Combination] = {}
    for cell, outcome in table.outcomes.items():
        if outcome.refused is not None:
            by_rule.setdefault(outcome.refused, cell)
    for rule, cell in by_rule.items():
        with pytest.raises(InputErrors) as refused:
            table.load(cell)
        assert str(refused.value.errors[0]).startswith(rule.removesuffix(f" ({PLACE})"))


def test_each_plugin_runs_in_at_least_two_combinations_with_other_families(table: Combinations) -> None:
    family = {name: family_of(table.registry, name) for names in table.plugins.values() for name in names}
    cells = Counter(
        name
        for cell in table.running
        for _, name in cell.steps
        if any(family[other] != family[name] for _, other in cell.steps)
    )
    assert {name: cells[name] for name in family if cells[name] < 2} == {}


def test_most_combinations_decide_differently_from_every_neighbour(table: Combinations) -> None:
    differ = [cell for cell in table.running if not table.twins(cell)]
    assert len(differ) >= FLOOR * len(table.running)


def test_the_pages_equal_those_made_from_the_table(table: Combinations) -> None:
    made = pages(table)
    for path, text in made.items():
        assert (REFERENCE / path).read_text() == text, "rebuild: PYTHONPATH=tests python -m combinations docs/reference"
    there = {f"combinations/{page.name}" for page in (REFERENCE / "combinations").iterdir()}
    assert there == set(made) - {"combinations.md"}


def test_an_allocation_that_reads_no_valuation_declares_it(table: Combinations) -> None:
    forms = {feature for feature in Feature if feature.name.startswith(("SCORES", "BY_", "OVER_TIME"))}
    for name in table.plugins[Stage.ALLOCATION]:
        contract = table.contracts[Stage.ALLOCATION, name]
        assert (Promise.READS_NO_VALUATION in contract.promises) is not bool(forms & contract.needs), name


def test_a_sample_contains_every_compatible_pair_of_plugins(table: Combinations) -> None:
    def pairs(cells: Iterable[Combination]) -> set[object]:
        return {pair for cell in cells for pair in pairs_of(cell.choices)}

    small = Combinations(table.registry, most_run=1)
    small.__dict__["refused"] = table.refused
    chosen = sampled(table.suited, 1, lambda cell: cell.choices, small._near)
    assert pairs(chosen) == pairs(table.suited)
    assert 1 < len(chosen) < len(table.suited) / 3
    most = 3 * len(chosen)
    more = sampled(table.suited, most, lambda cell: cell.choices, small._near)
    assert len(set(more)) == most
    assert set(chosen) < set(more) < set(table.suited)
    assert sampled(table.suited[::-1], 1, lambda cell: cell.choices, small._near) == chosen
    there = set(more)
    with_neighbour = sum(any(near in there for near in small._near(cell)) for cell in more)
    assert with_neighbour == len(more)


def _word(stage: Stage) -> str:
    return "refiner" if stage is Stage.REFINE else stage.value
