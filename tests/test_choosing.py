"""The page on which policy suits which cluster has every preset, and says of each what the code and its runs say."""

import re
from pathlib import Path

import pytest

from documents.finding import ROOT, Command, commands
from documents.only_parsed import REASON_OF
from documents.running import run_command
from eunomia import Cluster, Profile
from eunomia.cli import run
from eunomia.platform.registry import Registry
from eunomia_testbed.spec.fitting import unsuited

PAGE = ROOT / "docs" / "how-to" / "choose-a-policy.md"
ROW = re.compile(
    r"^\| `(\w+)` \| ([^|]*) \| (one|any) \| ([^|]*) \| (used|not used) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE
)
ROWS = {match[1]: match for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))}
RUNS = [command for command in commands(PAGE) if " simulate " in command.text]
REGISTRY = Registry.find(installed=False)
FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*")


def plain(name: str) -> str:
    return name.casefold().replace("-", " ")


def test_the_page_lists_every_preset_once() -> None:
    assert set(ROWS) == set(REGISTRY.presets())
    assert len(ROW.findall(PAGE.read_text(encoding="utf-8"))) == len(ROWS)


@pytest.mark.parametrize("preset", ROWS)
def test_gpu_types_needs_and_paper_of_a_row_equal_those_of_the_preset(preset: str) -> None:
    _, paper, types, needs, _, _ = ROWS[preset].groups()
    profile = Profile.load(preset, registry=REGISTRY)
    whole = "1x2 V100 24cpu 100GB"
    assert unsuited(profile, Cluster.parse(whole)) is None
    assert (types == "one") == (unsuited(profile, Cluster.parse(f"{whole}, 1x2 K80 24cpu 100GB")) is not None)
    assert ("CPUs and memory" in needs) == (unsuited(profile, Cluster.parse("1x2 V100")) is not None)
    many_sizes = profile.merged.tree["stages"]["elasticity"] in ("range", "throughput", "profiled_sizes")
    assert ("several sizes" in needs) == many_sizes or (
        preset.startswith(("themis", "demo"))  # an app divides its GPUs among its jobs, of one size or several
    )
    assert plain(profile.merged.tree.get("paper", "")) in plain(paper)


@pytest.mark.parametrize("preset", ROWS)
def test_the_figures_of_a_preset_equal_those_of_its_row_in_the_run(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where, _, figures = ROWS[preset][6].partition(": ")
    if where.startswith("`eunomia plugins"):
        assert run(where.strip("`").split()[1:]) == 0
        assert re.sub(r"(\w+) (\"\w+\")", r"\1 = \2", figures) in capsys.readouterr().out
        return
    shown = RUNS[int(where.removeprefix("run ")) - 1].output
    own, *others = figures.split("; ")
    assert_in_row(preset, own, shown)
    for other in others:
        name, text = other.removeprefix("`").split("` ", 1)
        assert_in_row(name, text.partition(" (")[0], shown)
        if " (its mean JCT is " in text:
            assert_in_row(preset, text.partition(" (its ")[2].partition(":")[0], shown)


def assert_in_row(policy: str, figures: str, shown: tuple[str, ...]) -> None:
    """The numbers of a text, of which there are some, stand in the row of a policy."""
    (row,) = [line for line in shown if line.split()[:1] == [policy]]
    numbers = FIGURE.findall(re.sub(r"p\d\d", "", figures.replace(", ", " ")))
    assert numbers
    assert all(re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", row) for number in numbers), (figures, row)


@pytest.mark.slow
@pytest.mark.parametrize("command", [each for each in RUNS if "static_100job" not in each.text], ids=["1", "2", "3"])
def test_a_run_of_the_page_prints_the_output_that_the_page_shows(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["example"]) == 0
    assert command.text in REASON_OF
    run_command(command, capfd)
