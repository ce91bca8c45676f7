"""Claims as data: rows and their errors, joins of comparisons, recipes of cells, and the record that documents keep."""

import ast
import dataclasses
import importlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from eunomia.cli import run
from eunomia.errors import InputError, InputErrors
from eunomia.platform.profiles import Profile
from eunomia_testbed import reproduce
from eunomia_testbed.reproduce.claims import RowPaper, Variant
from eunomia_testbed.reproduce.measures import MEASURES, ratio_effects
from eunomia_testbed.reproduce.paper import Runs, cell_key
from eunomia_testbed.reproduce.paper import cells_of as cells_of_paper
from eunomia_testbed.reproduce.papers import find_paper
from eunomia_testbed.reproduce.recipes import Recipe, differences, known_by_some, run_profile
from eunomia_testbed.reproduce.record import keep_record, markdown, merged
from eunomia_testbed.reproduce.rows import RowsFile, parse_rows, section_order
from eunomia_testbed.reproduce.themis.paper import Grid
from eunomia_testbed.reproduce.verdicts import Measured, Verdict

OWN = sorted(path.parent.name for path in Path(reproduce.__path__[0]).glob("*/claims.toml"))
DOCS = Path(__file__).parents[2] / "docs/reference/papers"
HEAD = """
title = "A paper"
fixed = []

[lists]
both = ["b", "c"]

[cells.plain]
load = 1
"""


@dataclasses.dataclass(frozen=True)
class SmallGrid:
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    loads: str = "1,2"

    @property
    def each_load(self) -> list[dict[str, Any]]:
        return [{"load": int(load), "label": f"load {load}"} for load in self.loads.split(",")]


@dataclasses.dataclass(frozen=True)
class SmallCell:
    policy: str
    seed: int
    load: int = 1
    knows: bool = False

    @property
    def key(self) -> str:
        return cell_key(self, 1, self.policy, self.load, self.seed)


@dataclasses.dataclass(frozen=True)
class SmallFigures:
    jct: float
    cpu_seconds: float = 0.0


def recipe_of(cell: SmallCell) -> Recipe:
    return Recipe(policy=cell.policy, preset="fifo", knows=("the future",) if cell.knows else ())


def paper(*claims: str, **more: Any) -> RowPaper[Any, Any, Any]:
    return RowPaper(
        file=rows(*claims),
        cell=lambda grid, fields, seed: SmallCell(seed=seed, **fields),
        numbers={"JCT": lambda one: one.jct},
        recipe=recipe_of,
        **more,
    )


def rows(*claims: str) -> RowsFile:
    return parse_rows(rows_text(*claims), place="claims.toml")


def rows_text(*claims: str) -> str:
    usual = 'where = "Fig 1"\nsection = "§1"\ntext = "t"\nprinted = "2"\nnumber = "JCT"\ncells = "plain"\n'
    return HEAD + "".join(f"\n[[claim]]\n{usual}{claim}\n" for claim in claims)


def cells_of(claim: Any, grid: SmallGrid | None = None) -> list[SmallCell]:
    return [cell for seed in (grid or SmallGrid()).seeds for cell in claim.cells(seed)]


def measured(claim: str, jct: dict[tuple[str, int], float], grid: SmallGrid | None = None, **more: Any) -> Measured:
    """A row whose cells came to a JCT by policy and load, a little more for each seed."""
    own = grid or SmallGrid()
    (made,) = paper(claim, **more).claims(own)
    of = {cell.key: jct[cell.policy, cell.load] * (1.0 + 0.01 * cell.seed) for cell in cells_of(made, own)}
    done = {key: SmallFigures(jct=number) for key, number in of.items()}
    return made.measure(Runs(grid=own, done=done))


GAIN = 'measure = "others over own"\nvalue = 2.0\nown = "a"\n'


def test_a_row_compares_its_own_policy_with_the_others_and_shows_the_spread() -> None:
    found = measured(GAIN + 'over = "both"', {("a", 1): 1.0, ("b", 1): 2.0, ("c", 1): 1.2})
    assert (found.text, found.verdict) == ("2.00, 1.20", Verdict.DIRECTION)
    assert found.reason == "b: 2.00 (2.00 to 2.00), c: 1.20 (1.20 to 1.20); 5 seeds, all with the same result" + (
        ": what they draw does not change it"
    )
    (claim,) = paper(GAIN + 'over = ["b"]').claims(SmallGrid())
    of = {cell.key: 1.0 if cell.policy == "a" else 2.0 + 0.1 * cell.seed for cell in cells_of(claim)}
    done = {key: SmallFigures(jct=number) for key, number in of.items()}
    assert claim.measure(Runs(grid=SmallGrid(), done=done)).reason == "b: 2.20 (2.01 to 2.40); 5 seeds, 95 % intervals"
    assert found.by_seed["b"] == pytest.approx((2.0,) * 5)


@pytest.mark.parametrize(
    ("measure", "value", "text", "verdict"),
    [
        ("mean of others over own", "2.0", "2.00", Verdict.HOLDS),
        ("best of others over own", "1.0001", "1.00", Verdict.FAILS),
        ("worst of others over own", "4.0", "4.00", Verdict.HOLDS),
        ("ends of others over own", "[1.5, 4.0]", "1.00, 4.00", Verdict.FAILS),
        ("own over others", "2.0", "1.00, 0.25", Verdict.FAILS),
    ],
)
def test_figures_of_the_other_policies_are_joined_by_the_rule_of_the_row(
    measure: str, value: str, text: str, verdict: Verdict
) -> None:
    claim = f'measure = "{measure}"\nvalue = {value}\nown = "a"\nover = "both"'
    found = measured(claim, {("a", 1): 1.0, ("b", 1): 1.0, ("c", 1): 4.0})
    assert (found.text, found.verdict) == (text, verdict)
    assert ("chance favours it" in found.reason) == (MEASURES[measure].join in ("least", "greatest", "ends"))


def test_a_join_over_settings_uses_the_least_greatest_or_mean_setting() -> None:
    jct = {("a", 1): 1.0, ("b", 1): 1.5, ("a", 2): 1.0, ("b", 2): 3.0}
    claim = 'measure = "others over own, {}setting"\nvalue = 3.0\nown = "a"\nover = ["b"]\nat = "@each_load"'
    assert measured(claim.format("greatest "), jct).text == "3.00"
    assert measured(claim.format("least "), jct).text == "1.50"
    mean = measured(claim.replace("{}setting", "mean of settings"), jct)
    assert mean.text == f"{math.sqrt(4.5):.2f}"


def test_growth_is_the_last_ratio_over_the_first_one() -> None:
    claim = 'measure = "growth of the mean of others over own"\nkind = "at least"\nvalue = 1.0\nown = "a"\n'
    claim += 'over = "both"\nat = "@each_load"'
    jct = {("a", 1): 1.0, ("b", 1): 1.5, ("c", 1): 1.5, ("a", 2): 1.0, ("b", 2): 2.0, ("c", 2): 8.0}
    found = measured(claim, jct)
    assert (found.text, found.verdict) == (f"{4.0 / 1.5:.2f}", Verdict.HOLDS)
    assert "mean of b load 1, c load 1: 1.50" in found.reason and "mean of b load 2, c load 2: 4.00" in found.reason
    falls = {**jct, ("b", 2): 1.0, ("c", 2): 1.0}
    assert measured(claim, falls).verdict is Verdict.FAILS
    (made,) = paper(claim).claims(SmallGrid(loads="1"))
    assert {cell.load for cell in cells_of(made, SmallGrid(loads="1"))} == {1}


def test_the_least_favourable_of_many_comparisons_is_shown() -> None:
    jct = {("a", 1): 1.0, ("a", 2): 1.0, ("b", 1): 4.0, ("b", 2): 3.0, ("c", 1): 2.5, ("c", 2): 5.0}
    found = measured(GAIN + 'over = "both"\nat = "@each_load"', jct)
    assert found.text == "2.50 (c load 1)" and found.verdict is Verdict.HOLDS


def test_a_front_states_for_each_policy_whether_it_is_dominated() -> None:
    text = rows_text(GAIN.replace("over own", "over own, greatest number").replace("2.0", "1.0") + 'over = "both"')
    text = text.replace('number = "JCT"', 'number = ["JCT", "half"]\nfront = true\nkind = "at least"')
    numbers = {"JCT": lambda one: one.jct, "half": lambda one: one.jct / 2.0}
    own = dataclasses.replace(paper(), file=parse_rows(text, place="claims.toml"), numbers=numbers)
    (made,) = own.claims(SmallGrid())
    jct = {"a": 2.0, "b": 3.0, "c": 1.0}
    done = {cell.key: SmallFigures(jct=jct[cell.policy] + 0.01 * cell.seed) for cell in cells_of(made)}
    found = made.measure(Runs(grid=SmallGrid(), done=done))
    assert found.verdict is Verdict.FAILS
    assert "; b: dominated by ours (worse in all on 5 of 5 traces, better in all on 0)" in found.reason
    assert "; c: dominates ours (worse in all on 0 of 5 traces, better in all on 5)" in found.reason


def test_changes_in_percent_are_converted_to_ratios() -> None:
    row = rows('measure = "others over own"\nvalue = ["+8.1 %", "-19 %"]\nown = "a"\nover = "both"').claim[0]
    assert row.value == pytest.approx([1.081, 1.0 / 0.81])


def test_claims_of_at_most_and_of_a_level_are_judged_on_the_number() -> None:
    level = 'measure = "level"\nown = "a"\nvalue = 1.0\nkind = "{}"'
    assert measured(level.format("at most"), {("a", 1): 0.9}).verdict is Verdict.HOLDS
    assert measured(level.format("within"), {("a", 1): 1.0}).verdict is Verdict.HOLDS
    near = measured(level.format("within") + "\nmargin = 0.01", {("a", 1): 1.0})
    assert near.verdict is Verdict.UNDECIDED and "margin 1 %, the paper's" in near.reason
    assert measured(level.format("within"), {("a", 1): 1.5}).verdict is Verdict.FAILS


def test_a_row_without_random_draws_runs_once_and_is_judged_by_its_number() -> None:
    (claim,) = paper(GAIN + 'over = ["b"]\ndrawn = false').claims(SmallGrid(seeds=(3, 4)))
    assert [cell.seed for cell in claim.cells(3)] == [0, 0] and list(claim.cells(4)) == []
    found = measured(GAIN + 'over = ["b"]\ndrawn = false', {("a", 1): 1.0, ("b", 1): 1.7})
    assert (found.text, found.verdict) == ("1.70", Verdict.DIRECTION) and "one input" in found.reason


def test_a_claim_true_by_construction_has_its_own_verdict_unless_it_fails() -> None:
    claim = 'measure = "level"\nown = "a"\nvalue = 1.0\nkind = "within"\nconstruction = "a constraint"'
    assert measured(claim, {("a", 1): 1.0}).verdict is Verdict.BY_CONSTRUCTION
    assert measured(claim, {("a", 1): 2.0}).verdict is Verdict.FAILS


def test_a_gain_far_beyond_the_printed_one_states_the_likely_reason() -> None:
    found = measured(GAIN + 'over = ["b"]\nbeyond = "a strange baseline"', {("a", 1): 1.0, ("b", 1): 3.0})
    assert found.verdict is Verdict.HOLDS and "beyond the printed gain: a strange baseline" in found.reason


def test_a_number_that_no_run_gave_is_undecided() -> None:
    found = measured(GAIN + 'over = ["b"]', {("a", 1): math.nan, ("b", 1): 3.0})
    assert (found.verdict, found.text) == (Verdict.UNDECIDED, "-")
    found = measured(GAIN + 'over = ["b"]', {("a", 1): 1.0, ("b", 1): math.nan})
    assert (found.verdict, found.text) == (Verdict.UNDECIDED, "-")
    row = 'measure = "level of a ratio"\nvalue = 2.0\nown = "a"'
    assert measured(row, {("a", 1): math.nan}).verdict is Verdict.UNDECIDED
    assert measured(row, {("a", 1): 0.0}).verdict is Verdict.FAILS
    broken = dataclasses.replace(paper(row), numbers={"JCT": lambda one: 1.0 / (one.jct - one.jct)})
    (claim,) = broken.claims(SmallGrid())
    done = {cell.key: SmallFigures(jct=1.0) for cell in cells_of(claim)}
    assert claim.measure(Runs(grid=SmallGrid(), done=done)).verdict is Verdict.UNDECIDED


def test_ratios_with_a_zero_among_the_seeds_are_ratios_of_sums() -> None:
    effects = ratio_effects([0.2, 0.4, 0.3], [0.1, 0.0, 0.1])
    assert math.exp(sum(effects) / 3) == pytest.approx(4.5, rel=0.5)
    assert ratio_effects([0.1], [0.0]) == (math.log(100.0),)
    assert ratio_effects([0.0, 0.0], [0.0, 0.0]) == (0.0, 0.0)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_invalid_row_is_refused_with_its_place() -> None:
    with pytest.raises(InputErrors, match=r"claims must be rows: .*\(claims.toml, claim Fig 1: t: kind\)"):
        rows(GAIN + 'over = ["b"]\nkind = "gains"')
    with pytest.raises(InputErrors, match=r"a printed change must be such as '\+8.1 %'"):
        rows(GAIN.replace("2.0", '"8 percent"') + 'over = ["b"]')
    with pytest.raises(InputErrors, match=r"Extra inputs are not permitted.*owns"):
        rows(GAIN + 'owns = "b"')


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        (GAIN.replace("others over own", "others over owns"), "measure must be one of: .*did you mean"),
        (GAIN + 'over = ["b"]\nat = [{ load = 3 }, { load = 4 }, { load = 5 }]', "a row must have a printed value"),
    ],
)
def test_a_row_with_unknown_names_is_refused(claim: str, rule: str) -> None:
    bad = claim.replace("value = 2.0", "value = [2.0, 3.0]") if "printed value" in rule else claim
    with pytest.raises(InputError, match=rule):
        measured(bad, {(policy, load): 1.0 for policy in "ab" for load in (3, 4, 5)})


def test_a_row_must_name_cells_and_numbers() -> None:
    text = HEAD + '[[claim]]\nwhere = "F"\nsection = ""\ntext = "t"\nprinted = ""\nvalue = 1.0\nmeasure = "level"\n'
    for more, rule in (('number = "JCT"', "a row must name cells"), ('cells = "plain"', "number must be some of: JCT")):
        own = dataclasses.replace(paper(), file=parse_rows(text + more, place="claims.toml"))
        with pytest.raises(InputError, match=rule):
            own.claims(SmallGrid())


def test_sections_are_in_the_order_of_the_paper() -> None:
    given = ["App. J", "§8.10", "§2", "Abstract", "§8.9", "Abstract, §6.2", "App. I"]
    assert sorted(given, key=section_order) == [
        "Abstract", "§2", "Abstract, §6.2", "§8.9", "§8.10", "App. I", "App. J",
    ]  # fmt: skip


# --- presets and knowledge --------------------------------------------------------------------------------------------


def test_a_row_that_compares_policies_of_unequal_knowledge_is_refused_unless_it_says_so() -> None:
    claim = GAIN.replace('own = "a"', 'own = { policy = "a", knows = true }') + 'over = ["b"]'
    own = paper(claim.replace('over = ["b"]', 'over = [{ policy = "b", knows = false }]'))
    with pytest.raises(
        InputError, match=r"all policies of a row must know the same, .* but got the future \(Fig 1: t\)"
    ):
        own.claims(SmallGrid())
    said = claim.replace('over = ["b"]', 'over = [{ policy = "b", knows = false }]\ncontrast = "what it is worth"')
    (made,) = paper(said).claims(SmallGrid())
    assert made.marked == "knows the future: what it is worth"


def test_a_row_is_shown_with_its_variant_with_more_knowledge() -> None:
    both = [Variant(name="as shipped"), Variant(name="knowing the future", fields={"knows": True})]

    def cell_of(grid: Any, fields: Any, seed: int) -> SmallCell:
        return SmallCell(seed=seed, **{**fields, "knows": fields.get("knows", False) and fields["policy"] == "a"})

    usual = paper(GAIN + 'over = ["b"]', variants=lambda grid: both, depends_on="what is known")
    (made,) = dataclasses.replace(usual, cell=cell_of).claims(SmallGrid())
    cells = cells_of(made)
    done = {cell.key: SmallFigures(jct={"b": 2.0, "a": 1.0 if cell.knows else 3.0}[cell.policy]) for cell in cells}
    found = made.measure(Runs(grid=SmallGrid(), done=done))
    assert (found.verdict, found.beside) == (Verdict.FAILS, {"knowing the future": "holds: 2.00"})
    assert found.depends_on == "what is known"
    assert "knowing the future: a: preset fifo; knows the future" in made.differs


def test_a_row_may_be_measured_only_under_the_first_variant() -> None:
    both = [Variant(name="as shipped"), Variant(name="load 2", fields={"load": 2})]
    text = GAIN + 'over = ["b"]'
    (claim,) = paper(text + "\nfirst_variant = true", variants=lambda grid: both).claims(SmallGrid())
    assert {cell.load for cell in cells_of(claim)} == {1}
    (claim,) = paper(text, variants=lambda grid: both).claims(SmallGrid())
    assert {cell.load for cell in cells_of(claim)} == {1, 2}
    jct = {("a", 1): 1.0, ("b", 1): 2.0}
    found = measured(text + "\nfirst_variant = true", jct, variants=lambda grid: both)
    assert found.verdict is Verdict.HOLDS and found.beside == {} and found.depends_on == ""


def test_differences_name_every_setting_with_its_values() -> None:
    made = [
        Recipe(policy="a", preset="fifo", settings={"rounds.every": "5m"}),
        Recipe(policy="a", preset="fifo", settings={"rounds.every": "9m"}, knows=("x",), rules="rounds of theirs"),
        Recipe(policy="b", preset="las"),
    ]
    assert differences(made) == (
        "a: preset fifo; rounds.every 5m or 9m; knows x; rounds of theirs",
        "b: preset las",
    )
    assert known_by_some(made) == ("x",) and known_by_some([]) == ()


def test_in_reproductions_only_the_recipes_module_loads_profiles() -> None:
    loads = []
    for path in Path(reproduce.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and node.attr in ("load", "parse", "replace")
            if named and isinstance(node.value, ast.Name) and node.value.id == "Profile":
                loads.append(path.name)
    assert loads == ["recipes.py"]


@pytest.mark.parametrize("name", OWN)
def test_a_cell_runs_the_profile_of_its_recipe(name: str) -> None:
    tree = ast.parse((Path(reproduce.__path__[0]) / name / "cells.py").read_text())
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if call.startswith(("run_profile(", "clocked_profile("))]
    assert calls and {call.partition("(")[2] for call in calls} == {"recipe_of(cell))"}


@pytest.mark.parametrize("name", OWN)
def test_cells_differ_from_presets_only_by_the_settings_that_their_rows_print(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile of every policy of every row is loaded, and held against the lines that the row prints."""
    cells = importlib.import_module(f"{reproduce.__name__}.{name}.cells")
    own = find_paper(name)
    grid = own.grid(throughputs="rates.json") if name == "oef" else own.grid()
    loaded: list[tuple[str, dict[str, Any]]] = []
    load = Profile.load.__func__  # type: ignore[attr-defined]

    def watched(cls: Any, preset: str, *, settings: Any = (), **more: Any) -> Profile:
        loaded.append((preset, dict(settings)))
        made: Profile = load(cls, preset, settings=settings, **more)
        return made

    monkeypatch.setattr(Profile, "load", classmethod(watched))
    seen = 0
    for claim in own.claims(grid):
        for cell in {(cell.__class__, cells.recipe_of(cell).policy): cell for cell in claim.cells(0)}.values():
            loaded.clear()
            recipe = cells.recipe_of(cell)
            run_profile(recipe)
            ((preset, settings),) = loaded
            lines = [line for line in claim.differs if f"{recipe.policy}: preset " in line]
            if not lines:
                assert recipe.policy == "alone"  # apps alone are behind a floor, and no policy of the row
                continue
            text = " ".join(lines)
            assert preset in text, (claim.text, preset)
            assert all(key in text for key in settings), (claim.text, settings, text)
            seen += 1
    assert seen > 20


# --- the record -------------------------------------------------------------------------------------------------------


def plain(figure: str, verdict: str, **more: Any) -> dict[str, Any]:
    usual = {
        "section": "§1", "figure": figure, "claim": "c", "paper": "2", "here": "2.0", "verdict": verdict, "why": "w",
        "beside": {}, "depends_on": "", "goal": False, "marked": "", "stale": False, "differs": [], "values": [2.00001],
        "by_seed": {"b": [1.23456]},
    }  # fmt: skip
    return {**usual, **more}


def test_rows_that_were_not_simulated_keep_their_recorded_verdict_as_stale() -> None:
    earlier = [plain("Fig 1", "holds"), plain("Fig 2", "holds")]
    now = [
        plain("Fig 1", "not measured", why="no seed of it has been run"),
        plain("Fig 2", "does not hold"),
        plain("Fig 3", "not measured", why="no seed of it has been run"),
    ]
    found = merged(now, earlier, aged=True)
    assert [(row["verdict"], row["stale"]) for row in found] == [
        ("holds", True), ("does not hold", False), ("not measured", False),
    ]  # fmt: skip
    assert found[1]["by_seed"] == {"b": [1.235]} and found[1]["values"] == [2.0]
    assert not merged(now, earlier, aged=False)[0]["stale"]


def test_the_page_counts_claims_without_goals_and_marks_stale_ones(tmp_path: Path) -> None:
    claims = [
        plain("Fig 1", "holds", beside={"analytic S": "undecided: 1.1"}, depends_on="S"),
        plain("Fig 2", "does not hold", here="a|b"),
        plain("Goal", "holds", goal=True),
    ]
    outcome = {"schema": "x", "paper": "short", "out": "somewhere", "claims": claims}
    keep_record(tmp_path, outcome, title="Short", code="c1", fixed=["20 jobs"])
    outcome["claims"] = [plain("Fig 1", "not measured", why="no seed of it has been run"), *claims[1:]]
    keep_record(tmp_path, outcome, title="Short", code="c2", fixed=["20 jobs"])
    record = json.loads((tmp_path / "short.json").read_text())
    page = (tmp_path / "short.md").read_text()
    assert page == markdown(record) and "out" not in record
    assert "| 2 | 1 | 0 | 1 | 0 | 0 | 0 | 0 |" in page
    assert "| holds †, depends on S | w; analytic S: undecided: 1.1 |" in page and "a\\|b" in page
    assert "1 of 3 rows are stale" in page and "- 20 jobs" in page


TABLE = """
[[table]]
title = "JCT by load"
cells = "plain"
number = "JCT"
at = [{ label = "low", load = 1 }, { label = "high", load = 2 }]
over = ["a", { label = "b, knowing", policy = "b", knows = true }]
base = { policy = "a", knows = false }
"""


def test_a_table_gives_levels_and_ratios_on_the_same_seeds() -> None:
    own = dataclasses.replace(paper(), file=parse_rows(HEAD + TABLE, place="claims.toml"))
    grid = SmallGrid(seeds=(0, 1, 2))
    assert own.tables(Runs(grid=grid, done={})) == []
    done = {
        SmallCell(policy=policy, seed=seed, load=load, knows=policy == "b").key: SmallFigures(jct=load * jct + seed)
        for policy, jct in (("a", 10.0), ("b", 30.0))
        for load in (1, 2)
        for seed in grid.seeds
        if (policy, load, seed) != ("b", 2, 2)
    }
    stale = frozenset({SmallCell(policy="a", seed=0, load=1).key})
    (table,) = own.tables(Runs(grid=grid, done=done, stale=stale))
    assert table["lines"][0] == ["low", "a", "11"] and table["head"] == ["", "", "JCT"]
    (low, high), mean = table["lines"][1::2], math.exp(sum(math.log((30 + s) / (10 + s)) for s in range(3)) / 3)
    assert low[:2] == ["low", "b, knowing"] and low[2].startswith(f"31 ({mean:.3f}: ")
    assert high[2].startswith("60.5 (") and table["seeds"] == [2, 3] and table["stale"]
    assert not own.tables(Runs(grid=grid, done=done))[0]["stale"]


def test_a_table_with_fewer_seeds_does_not_replace_the_recorded_one(tmp_path: Path) -> None:
    def outcome(*tables: dict[str, Any]) -> dict[str, Any]:
        return {"schema": "x", "paper": "short", "claims": [plain("Fig 1", "holds")], "tables": list(tables)}

    def written(code: str, *tables: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
        keep_record(tmp_path, outcome(*tables), title="Short", code=code, fixed=[])
        record = json.loads((tmp_path / "short.json").read_text())
        return record["tables"], (tmp_path / "short.md").read_text()

    whole = {"title": "T", "head": ["", "", "JCT"], "lines": [["x1", "a", "3"]], "seeds": [5, 5], "stale": False}
    assert written("c1", whole)[0] == [whole]
    kept, page = written("c2", {**whole, "lines": [["x1", "a", "-"]], "seeds": [0, 5]})
    assert kept == [{**whole, "stale": True}] and "| x1 | a | 3 |" in page and "Means over 5 seeds" in page
    assert written("c2", {**whole, "lines": [["x1", "a", "4"]]})[0][0]["lines"] == [["x1", "a", "4"]]


@pytest.mark.parametrize("name", OWN)
def test_pages_of_papers_equal_those_that_the_command_wrote(name: str) -> None:
    record = json.loads((DOCS / f"{name}.json").read_text())
    assert (DOCS / f"{name}.md").read_text() == markdown(record)
    own = find_paper(name)
    known = {(row["figure"], row["claim"], row["paper"]) for row in record["claims"]}
    rows = {(claim.figure, claim.text, claim.printed) for claim in own.claims(own.grid())}
    assert rows == known, "write the page again: eunomia reproduce PAPER --within 0s --docs docs/reference/papers"


def test_reproduce_writes_the_page_of_the_paper(tmp_path: Path) -> None:
    command = ["reproduce", "themis", "--only", "table3", "--out", str(tmp_path / "run"), "-q"]
    assert run([*command, "--docs", str(tmp_path / "docs")]) == 0
    page = (tmp_path / "docs/themis.md").read_text()
    assert "| §4.3.3 | Table 3 | ρ with 1, 2, 4, 8, 16 GPUs |" in page


def test_rows_that_were_not_selected_keep_their_figures_on_the_page(tmp_path: Path) -> None:
    path = tmp_path / "docs/themis.json"
    path.parent.mkdir()
    shutil.copy(DOCS / "themis.json", path)
    before = {(row["figure"], row["claim"]): row for row in json.loads(path.read_text())["claims"]}
    command = ["reproduce", "themis", "--only", "fig9", "--within", "0s", "--out", str(tmp_path / "run"), "-q"]
    assert run([*command, "--docs", str(path.parent)]) == 0
    record = json.loads(path.read_text())
    after = {(row["figure"], row["claim"]): row for row in record["claims"]}
    assert list(after) == [(claim.figure, claim.text) for claim in find_paper("themis").claims(Grid())]
    measured = [row for row in before.values() if row["by_seed"] and row["figure"] != "Table 3"]
    for row in measured:
        now = after[row["figure"], row["claim"]]
        assert now["verdict"] == row["verdict"] and now["by_seed"] == row["by_seed"]
        assert now["stale"] or not row["stale"]
    assert after["Table 1", "images/s of VGG16 and Inception-v3 on one server and on two"]["verdict"] == (
        "not measurable here"
    )
    assert (
        f"seeds 0, 1, 2, 3, 4; {len(cells_of_paper(Grid().seeds, find_paper('themis').claims(Grid())))}"
        in (record["fixed"][0])
    )
