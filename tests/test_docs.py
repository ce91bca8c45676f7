"""Documents against the code: link targets, commands and modules that pages name exist."""

import ast
import functools
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"(?:^\s*(?:\.venv/bin/)?|`)make ([a-z-]+)", re.MULTILINE)
COMMAND = re.compile(r"(?:^\$? ?|`)eunomia ([a-z]+)", re.MULTILINE)
MODULE = re.compile(r"python -m (eunomia[\w.]*)")
TOOL = re.compile(r"(PYTHONPATH=tests )?python -m ((?:chaos|combinations|curves)[\w.]*)")


SIMULATION = re.compile(r"^\$ eunomia simulate (?:.*\\\n)*.*$", re.MULTILINE)  # with its continuation lines
PYTHON = re.compile(r"^```python.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_MODELLED = "not modelled"


@functools.cache
def links(page: Path) -> list[str]:
    """The targets of a page's links, without those in blocks of code."""
    return LINK.findall(FENCE.sub("", page.read_text()))


def test_link_targets_exist() -> None:
    within = [(page, link) for page in PAGES for link in links(page) if "://" not in link]
    targets = {(page, link.partition("#")[0]) for page, link in within if not link.startswith(("#", "mailto:"))}
    assert len(targets) > 500
    missing = [f"{page.relative_to(ROOT)}: {target}" for page, target in targets if not (page.parent / target).exists()]
    assert sorted(missing) == []


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them; a second heading of a text gets ``-1``."""
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", LINK.sub(lambda link: link[0][1:].partition("]")[0], heading).lower())
        slug = text.strip().replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def test_anchors_of_links_exist() -> None:
    missing = []
    for page in PAGES:
        for link in links(page):
            target, _, anchor = link.partition("#")
            if anchor and "://" not in link:
                other = (page.parent / target).resolve() if target else page
                missing += [] if anchor in anchors(other) else [f"{page.relative_to(ROOT)}: {link}"]
    assert missing == []


def test_commands_that_pages_name_exist() -> None:
    from eunomia.commands import BUILT_IN, OF_EXTRAS

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert set(TARGET.findall(text)) <= targets, page
        assert set(COMMAND.findall(text)) <= {*(command.name for command in BUILT_IN), *OF_EXTRAS}, page
        for module in MODULE.findall(text):
            assert importlib.util.find_spec(module.rstrip(".")) is not None, f"{page}: {module}"


def test_test_tools_named_in_the_docs_can_be_imported() -> None:
    for page in PAGES:
        for path, module in TOOL.findall(page.read_text()):
            found = importlib.util.find_spec(module)
            assert found is not None, f"{page}: {module}"
            if found.submodule_search_locations:
                assert importlib.util.find_spec(f"{module}.__main__") is not None, f"{page}: {module}"
            assert path, f"{page}: {module} is found only with PYTHONPATH=tests"


def test_no_page_contains_an_absolute_path_of_a_machine() -> None:
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(?:work|farm|home|root|tmp)/", page.read_text()), page


def test_the_index_of_policies_names_every_page() -> None:
    pages = ROOT / "docs" / "reference" / "policies"
    index = (pages / "README.md").read_text()
    for page in pages.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


def test_the_index_of_decisions_names_every_record() -> None:
    records = ROOT / "docs" / "decisions"
    index = (records / "README.md").read_text()
    for record in records.glob("0*.md"):
        assert f"]({record.name})" in index, record.name


def test_the_index_of_decisions_is_sorted_and_marks_replaced_decisions() -> None:
    records = ROOT / "docs" / "decisions"
    rows = re.findall(r"^- \[(\d{4})\]\((.*?)\) (.*)$", (records / "README.md").read_text(), re.MULTILINE)
    numbers = [number for number, _, _ in rows]
    assert numbers == sorted(set(numbers))
    for number, name, text in rows:
        status = re.search(
            r"^\*\*Status\.\*\* Replaced (?:in part )?by (.*)$", (records / name).read_text(), re.MULTILINE
        )
        if status is not None:
            successor = re.findall(r"\]\((\d{4}-.*?\.md)\)", status.group(1))[0]
            assert "(replaced" in text and successor in text, f"{number} is replaced, and its row does not say so"
        for successor in re.findall(r"\]\((\d{4}-.*?\.md)\)", text):
            assert f"[{number}]" in (records / successor).read_text(), f"{successor} does not name {number}"


def without_costs(text: str) -> list[str]:
    """Simulations without costs on a page, apart from sketches and, where the page says so, a peer's rules."""
    said = NOT_MODELLED in text
    commands = [match for match in SIMULATION.findall(text) if not match.endswith("...")]
    free = [command for command in commands if "--cost " not in command and not (said and "--rules " in command)]
    return free + [ast.unparse(call) for block in PYTHON.findall(text) for call in calls_without_options(block)]


def calls_without_options(block: str) -> list[ast.Call]:
    tree = ast.parse(block if "simulate(" in block else "")  # signatures of the reference are no statements
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    simulations = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "simulate"]
    return [call for call in simulations if "options" not in {keyword.arg for keyword in call.keywords}]


def test_simulations_on_a_page_set_costs_or_state_that_none_are_modelled() -> None:
    assert {page: free for page in PAGES if (free := without_costs(page.read_text()))} == {}


def test_a_simulation_without_costs_is_found() -> None:
    free = '$ eunomia simulate a.trace --cluster "2x8 V100" \\\n    --policy las --policy srtf'
    rules = f"{free} --rules gavel"
    call = "simulate(trace, '1x1 V100', policies=['fifo', 'las'])"
    assert without_costs(f"```console\n{free}\n```\n```python\nresult = {call}\n```\n") == [free, call]
    assert without_costs(f"{free} --cost start=30s\n```python sketch\n{call[:-1]}, options=costs)\n```\n") == []
    assert without_costs(f"{rules}\n") == [rules]
    assert without_costs(f"{rules}\nOther costs are not modelled.\n") == []
