import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eunomia.errors import InputError
from eunomia.units import format_duration, parse_duration, parse_memory
from eunomia.words import exact_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("10s", 10.0), ("10m", 600.0), ("1h30m", 5400.0), ("2d", 172800.0), ("1.5h", 5400.0)],
)
def test_durations_are_parsed_with_their_unit(text: str, seconds: float) -> None:
    assert parse_duration(text, name="lease") == seconds


@pytest.mark.parametrize("text", ["-5s", "10", "", "s", "10 m", "1h-3m", "0s", "nan s", "1e3s", 10, None, True, "١٠q"])
def test_a_bad_duration_is_refused_with_the_rule_first(text: object) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(text, name="lease", place="mixed.toml, [rounds].lease")
    assert str(caught.value).startswith('lease must be a positive duration with a unit, such as "10m", but got ')
    assert str(caught.value).endswith("(mixed.toml, [rounds].lease)")


def test_a_duration_beyond_a_century_is_refused() -> None:
    with pytest.raises(InputError, match="at most 100 years"):
        parse_duration("99999999999d", name="lease")


@given(st.floats(min_value=1e-6, max_value=3e9, allow_nan=False))
def test_an_exact_duration_parses_back_to_the_same_value(seconds: float) -> None:
    assert math.isclose(parse_duration(exact_duration(seconds), name="it"), seconds, rel_tol=1e-9, abs_tol=1e-12)


@given(st.integers(min_value=1, max_value=10**9))
def test_whole_seconds_parse_back_exactly(seconds: int) -> None:
    assert parse_duration(exact_duration(seconds), name="it") == seconds


def test_durations_are_shown_in_two_units() -> None:
    assert [format_duration(s) for s in (0.5, 6.0, 600.0, 5400.0, 90061.0)] == ["500ms", "6s", "10m", "1h30m", "1d1h"]


def test_memory_is_parsed_in_decimal_and_binary_units() -> None:
    assert parse_memory("1GiB", name="memory") == 1.0
    assert parse_memory("500GB", name="memory") == pytest.approx(465.661, abs=1e-3)
    for text in ("500", "-5GB", "0GB", "5XB", 5):
        with pytest.raises(InputError, match="memory must be a positive amount of memory"):
            parse_memory(text, name="memory")
