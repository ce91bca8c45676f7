"""Files of rates by kind: written and read back; each kind of bad input is named with rule, value and place."""

import math

import pytest

from eunomia import Locality
from eunomia.errors import InputError
from eunomia.model.kind_profiles import KnownRate
from eunomia.units import Basis
from eunomia_appmaster.service.kind_profile_files import parse_profile, profile_text

GOOD = 'kind = "resnet"\n[[point]]\ngpus = 2\ngpu_type = "V100"\nlocality = "machine"\nrate = 1.5\n'


def test_a_profile_is_read_back_as_it_was_written() -> None:
    rates = (
        KnownRate(
            gpus=1, gpu_type="V100", locality=Locality.ISLAND, rate=1.25, cpus=3.0, machine="m0", date="2026-11-23"
        ),
        KnownRate(gpus=2, gpu_type="V100", locality=Locality.RACK, rate=0.0, known=Basis.ASSUMED, batch_size=64.0),
    )
    kind, read = parse_profile(profile_text('a "kind"', rates), place="a.toml")
    assert kind == 'a "kind"'
    assert list(map(repr, read)) == list(map(repr, rates))
    assert math.isnan(read[0].batch_size)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (GOOD.replace("gpus = 2\n", ""), "gpus must be given"),
        (GOOD.replace("1.5", "-1.5"), "rate must be a number of 0 or more, at most 1e+09, but got -1.5"),
        (GOOD.replace("1.5", "nan"), "rate must be a number of 0 or more, at most 1e+09, but got nan"),
        (GOOD.replace("1.5", "inf"), "rate must be a number of 0 or more, at most 1e+09, but got inf"),
        (GOOD.replace("1.5", "1e308"), "rate must be a number of 0 or more, at most 1e+09, but got 1e+308"),
        (GOOD.replace("1.5", "9" * 400), "rate must be a number of 0 or more, at most 1e+09"),
        (GOOD.replace("1.5", "true"), "rate must be a number of 0 or more, at most 1e+09, but got true"),
        (GOOD.replace("gpus = 2", "gpus = 0"), "gpus must be a whole number from 1 to 1000000"),
        (GOOD.replace("gpus = 2", "gpus = 1000000000"), "gpus must be a whole number from 1 to 1000000"),
        (GOOD.replace('"V100"', '" "'), "gpu_type must be text that is not empty"),
        (GOOD.replace('"resnet"', '""'), "kind must be text that is not empty"),
        (GOOD + 'date = "yesterday"\n', 'date must be a day in quotes, such as "2026-11-23", but got "yesterday"'),
        (GOOD + 'date = "20261123"\n', 'date must be a day in quotes, such as "2026-11-23"'),
        (GOOD + "date = 2026-11-23\n", 'date must be a day in quotes, such as "2026-11-23"'),
        (GOOD + "memory_gib = 1e308\n", "memory_gib must be a number above 0, at most 1e+15"),
        (GOOD.replace('"machine"', '"moon"'), "locality must be one of island, machine, rack, cluster"),
        (GOOD + "cpu = 2\n", 'did you mean "cpus"?'),
        (GOOD + "cpus = 0\n", "cpus must be a number above 0, at most 1e+15"),
        (GOOD + GOOD.partition("\n")[2], "a setting must be given once"),
        ('kind = "resnet"\n', "[[point]] must be given"),
        (GOOD.replace('kind = "resnet"', "kind = 3"), "kind must be text"),
        ("kind = \n", "a profile of a kind must be TOML"),
    ],
)
def test_an_unreadable_profile_is_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(InputError) as error:
        parse_profile(text, place="bad.toml")
    assert rule in str(error.value)
    assert "bad.toml" in str(error.value)


def test_all_errors_of_a_file_are_reported_together() -> None:
    with pytest.raises(InputError) as error:
        parse_profile(GOOD.replace("1.5", "-1").replace('"machine"', '"moon"'), place="bad.toml")
    assert len(str(error.value).splitlines()) == 2
