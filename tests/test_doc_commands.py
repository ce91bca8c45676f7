"""Every command of the documents runs, or is on the list of those that are only parsed, and why."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

from documents.alarms import check_expression, check_rules
from documents.finding import (
    CONSOLE,
    FENCE,
    LANGUAGES,
    PAGES,
    ROOT,
    Block,
    Command,
    blocks,
    commands,
    commands_of,
    steps,
)
from documents.only_parsed import ONLY_PARSED, REASON_OF
from documents.parsing import NotParsedError, parse, parsed
from documents.running import not_said, prepare, run_command
from strength import THOROUGH

WITH_COMMANDS = [page for page in PAGES if commands(page)]
LONG = () if THOROUGH else ("docs/how-to/intervals.md", "docs/how-to/simulate.md")
"""Pages whose commands take ten CPU seconds and more: `make test` parses these commands, `make thorough` runs them."""


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; the environment of the command line is as outside of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EUNOMIA_STATE_DIR", str(tmp_path / "state"))
    for name in ("EUNOMIA_POLICY", "EUNOMIA_CLUSTER", "EUNOMIA_PLUGIN_PATH"):
        monkeypatch.setenv(name, "")  # so that the end of the test removes what a command sets
        monkeypatch.delenv(name)
    return tmp_path


def test_a_fenced_block_names_its_language() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{page}:{block.line}: {block.language}"
            if block.language != CONSOLE:
                assert "\n$ " not in f"\n{block.text}", f"{page}:{block.line}: commands stand in console blocks"


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=ids)
def test_each_command_of_a_page_runs_or_is_only_parsed(
    page: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prepare(page, folder)
    for command in commands(page):
        if command.text in REASON_OF or ids(page) in LONG:
            try:
                parse(command.text)
            except NotParsedError as error:
                pytest.fail(f"{command.place}: {command.text}\n{error}")
        else:
            run_command(command, capfd)


def test_inline_commands_have_known_flags(folder: Path) -> None:
    for page in PAGES:
        for text in re.findall(r"`(eunomia [a-z][^`]*)`", FENCE.sub("", page.read_text(encoding="utf-8"))):
            _, _, said = parsed(steps(text)[0][1:])
            assert "No such" not in said, f"{page}: {text}: {said}"


@pytest.mark.parametrize("page", [page for page in PAGES if "**Try it.**" in page.read_text(encoding="utf-8")], ids=ids)
def test_inline_commands_under_try_it_parse(page: Path, folder: Path) -> None:
    tried = page.read_text(encoding="utf-8").partition("**Try it.**")[2].partition("\n")[0]
    found = re.findall(r"`(eunomia [^`]*)`", tried)
    assert found
    for text in found:
        parse(text)


def test_a_wrong_flag_in_an_inline_command_is_found(folder: Path) -> None:
    assert "No such option" in parsed(["submit", "--more-trails", "8", "digits"])[2]


def test_the_list_of_commands_that_are_only_parsed_is_current_and_has_no_duplicate() -> None:
    there = {command.text for page in PAGES for command in commands(page)}
    named = [text for texts in ONLY_PARSED.values() for text in texts]
    assert sorted(set(named) - there) == []
    assert len(named) == len(set(named))
    assert set(LONG) <= {ids(page) for page in WITH_COMMANDS}


# -- configuration of other programs


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=ids)
def test_yaml_on_a_page_is_valid_for_prometheus(page: Path) -> None:
    for block in blocks(page, "yaml"):
        tree = yaml.safe_load(block.text)
        if "groups" in tree:
            assert check_rules(block.text) > 0
        else:
            assert set(tree) == {"scrape_configs"}
            assert all(set(job) == {"job_name", "static_configs"} for job in tree["scrape_configs"])


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(eunomia_slots",
        "eunomia_machine_upp == 0",
        "eunomia_machine_up{host='a'} == 0",
        "sum(eunomia_queue{reason='outrankd'}) > 0",
        "eunomia_slots{state='idle'} > 0",
        "rate(eunomia_stage_seconds_bucket) > 1",
    ],
)
def test_an_invalid_alarm_expression_is_found(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        check_expression(wrong)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "ini")], ids=ids)
def test_a_systemd_unit_starts_a_command_that_parses(page: Path, folder: Path) -> None:
    for block in blocks(page, "ini"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(block.text)
        assert set(unit.sections()) == {"Unit", "Service", "Install"}
        parse(unit["Service"]["ExecStart"])


# -- the checks find what is wrong


@pytest.mark.parametrize(
    "wrong",
    [
        "eunomia simulate example.csv --cluster '2x8 V100' --polcy fifo",
        "eunomia simulate example.csv --cluster '2x8 V100' --policy fifoo",
        "eunomia simulate example.csv --cluster '2x8 V100' --cost strat=30s",
        "eunomia simulate example.csv --cluster '2y8 V100' --policy fifo",
        "eunomia simulate example.csv --cluster '2x8 V100' --know everythin",
        "eunomia simulate example.csv --cluster '2x8 V100' --set trace.by_groop=true",
        "eunomia simulate example.csv --cluster '2x8 V100, 1x8 K80' --policy shockwave",
        "eunomia simulat example.csv",
        "eunomia advise example.csv --cluster '2x8 V100' --goal mean_jtc",
        "eunomia apps --wach",
        "eunomia audit oef_noncooperative --only under_report",
        "eunomia demo --policy lotery",
        "eunomia reproduce themis --only fig99",
        "eunomia serve --slots none",
        "eunomia serve --set rounds.leese=10s",
        "eunomia submit missing.toml",
        "make dmo",
        "pip instal .",
        "pip install '.[liv]'",
        "python -m chaos.kills --kils 30",
        "python -m eunomia_testbed.demo.shares --scale much",
        "curl -s http://127.0.0.1:7721/helth",
        "export EUNOMIA_ADRESS=a:1",
        "sqlite3 journal.sqlite 'SELECT nothing FROM steps'",
        "cd docs/exampels",
        "frobnicate --all",
    ],
)
def test_a_wrong_command_does_not_parse(wrong: str, folder: Path) -> None:
    with pytest.raises(NotParsedError):
        parse(wrong)


def planted(text: str) -> list[Command]:
    return commands_of(Block(Path("planted.md"), 1, CONSOLE, text))


def test_a_planted_command_that_fails_is_found(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, wrong = planted(
        '$ eunomia example\n$ eunomia simulate example.csv --cluster "1x8 V100" \\\n    --polcy fifo   # a comment\n'
    )
    run_command(good, capfd)
    assert wrong.text == 'eunomia simulate example.csv --cluster "1x8 V100" --polcy fifo'
    assert wrong.text not in REASON_OF
    with pytest.raises(AssertionError, match=r"planted\.md:3: exit code 2\n.*--polcy"):
        run_command(wrong, capfd)


def test_a_planted_output_that_no_command_prints_is_found(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_command(planted("$ eunomia example\nexample.csv   72 jobs of ...\n")[0], capfd)
    with pytest.raises(AssertionError, match=r"the page shows 'example\.csv   73 jobs"):
        run_command(planted("$ eunomia example\nexample.csv   73 jobs of ...\n")[0], capfd)
    with pytest.raises(AssertionError, match="exit code 0"):
        run_command(planted("$ eunomia example\nerror: a file must be there\n")[0], capfd)


def test_output_on_a_page_is_compared_by_lines_or_parts_of_lines() -> None:
    said = "srtf   173 min   0.03 s\nerror: one long line, which a page breaks\n"
    assert not_said(("srtf 173 min ...", "", "...", "error: one long", "line, which a page breaks"), said) == []
    assert not_said(("srtf 174 min ...",), said) == ["srtf 174 min ..."]
