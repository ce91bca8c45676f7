"""The pages of the built-in plugins name their options, as they are."""

from pathlib import Path

import pytest

from eunomia.platform.registry import DEFAULT_PLUGINS, Registry

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "policies"


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README"))
def test_the_page_of_a_policy_names_every_option_with_its_default(name: str) -> None:
    assert name in DEFAULT_PLUGINS
    text = (PAGES / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    options_type = getattr(Registry.find(installed=False).load(name), "options_type", None)
    for option in options_type.model_fields if options_type is not None else ():
        assert f"`{option}`" in text, option
