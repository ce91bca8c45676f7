"""Names of papers and systems lead to presets, or say that a system is not built."""

import json

import pytest

from eunomia.cli import run
from eunomia.errors import InputErrors
from eunomia.platform.papers import NOT_BUILT, presets_by_paper
from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry


def test_the_name_of_a_paper_selects_its_presets() -> None:
    with pytest.raises(InputErrors) as caught:
        Profile.load("Gavel")
    said = str(caught.value)
    assert '"Gavel" is a paper, and a policy must be one of its presets: max_min_fairness (its default), ' in said
    assert "eunomia plugins --paper gavel lists them" in said


@pytest.mark.parametrize("name", ["pollux", "Sia"])
def test_a_system_that_eunomia_does_not_implement_is_refused_as_such(name: str) -> None:
    with pytest.raises(InputErrors, match=r"and .* is not, but got"):
        Profile.load(name)


def test_every_paper_has_one_default_preset_and_all_its_presets_load() -> None:
    papers = presets_by_paper(default_registry().presets())
    assert {"themis", "oef", "synergy", "shockwave", "afs", "gavel"} <= set(papers)
    for paper, presets in papers.items():
        assert [each.default for each in presets] == [True] + [False] * (len(presets) - 1), paper
        for each in presets:
            assert Profile.load(each.preset).summary
    assert not set(papers) & set(NOT_BUILT)


def test_the_plugins_command_lists_the_presets_of_a_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--paper", "gavel"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("max_min_fairness ")
    assert lines[0].endswith("(default)")
    assert run(["plugins", "--paper", "OEF", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["presets"][0]["preset"] == "oef"
    assert run(["plugins", "--paper", "gavle"]) == 2
    assert 'did you mean "gavel"?' in capsys.readouterr().err
    assert run(["plugins", "--paper", "pollux"]) == 2
    assert "Pollux (OSDI'21) is not" in capsys.readouterr().err
