"""The pages on generators and performance models against the code."""

from pathlib import Path

import pytest

from eunomia_testbed.generators import GENERATORS, describe_generator
from eunomia_testbed.performance import Links
from eunomia_testbed.performance.facts import GPU_SPEED, MODELS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_every_option_of_a_generator_is_on_its_page(name):
    page = (REFERENCE / "generators.md").read_text()
    assert f"`{name}`" in page
    for option, entry in describe_generator(name).items():
        meaning = " ".join(str(entry["description"]).split()).replace("``", "`").replace("|G|", "GPUs held")
        if name != "themis2":  # has the options of themis1
            assert f"| `{option}` | {meaning} | " in page, option


def test_every_fact_of_a_performance_model_is_on_its_page():
    page = (REFERENCE / "performance-models.md").read_text()
    for name, facts in MODELS.items():
        numbers = (facts.parameters_millions, facts.batch_size, facts.items_per_second, facts.fixed_seconds)
        row = f"| {name} | {' | '.join(f'{number:g}' for number in numbers)} | {facts.gpu_type} |"
        assert row in page, name
        assert facts.source in page, name
    for name, (speed, source) in GPU_SPEED.items():
        assert f"| {name} | {speed:g} | {source} |" in page
    for place, gb_per_second in zip(("island", "machine", "rack", "cluster"), Links().gb_per_second, strict=True):
        assert f"| {place} | {gb_per_second:g} | " in page
