"""How jobs ended, as a short text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia_appmaster.service.ended_numbers import compact, expanded
from strength import examples

ENDED = st.dictionaries(st.integers(0, 3000), st.sampled_from(("finished", "failed", "cancelled")), max_size=400)


@settings(max_examples=examples(100), deadline=None)
@given(ENDED)
def test_the_compact_text_of_ended_jobs_expands_to_the_same_jobs(ended: dict[int, str]) -> None:
    jobs = {f"a/{number}": how for number, how in ended.items()}
    assert expanded("a", compact(jobs)) == jobs


def test_the_compact_text_of_ten_thousand_ended_jobs_is_short_in_any_order() -> None:
    row = {f"a/{number}": "finished" for number in range(1, 10_001)}
    assert compact(row) == {"finished": "1-10000"}
    every_other = {job: how for place, (job, how) in enumerate(row.items()) if place % 2}
    assert len(compact(every_other)["finished"]) < 2600
    assert expanded("a", compact(every_other)) == every_other
    far = {f"a/{999_999_999 - 2 * number}": "failed" for number in range(300)}
    assert len(compact(far)["failed"]) < 4000, "no bit for each number below"
    assert expanded("a", compact(far)) == far


def test_a_note_of_an_earlier_version_is_read_and_invalid_text_is_refused() -> None:
    assert expanded("a", {"a/1": "finished"}) == {"a/1": "finished"}
    with pytest.raises(ValueError, match="invalid literal"):
        expanded("a", {"finished": "x"})
