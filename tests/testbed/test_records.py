"""Packed rows: what goes in comes out as columns; what many rows say is there once."""

import numpy as np
import polars as pl
import pytest

from eunomia_testbed.results.counting import held_twice
from eunomia_testbed.results.slots import slots_of
from eunomia_testbed.results.tables import frame_of_columns, keyed
from eunomia_testbed.running.memory import hand_back
from eunomia_testbed.simulator.logs.records import Codes, Records, spelt


def test_packed_rows_are_returned_once_as_columns_of_64_bits() -> None:
    records = Records("iqdB")
    records.add(-1, 2**40, 0.1, 255)
    records.add(7, -5, float("nan"), 0)
    whole, long, real, small = records.take()
    assert (whole.tolist(), long.tolist(), small.tolist()) == ([-1, 7], [2**40, -5], [255, 0])
    assert {column.dtype.name for column in (whole, long, small)} == {"int64"} and real.dtype == np.float64
    np.testing.assert_array_equal(real, [0.1, np.nan])
    assert [column.size for column in records.take()] == [0, 0, 0, 0]


def test_a_number_that_is_too_large_is_refused_and_not_truncated() -> None:
    with pytest.raises(Exception, match="format"):
        Records("i").add(2**31)


def test_texts_are_stored_as_numbers() -> None:
    codes = Codes("")
    numbers = np.array([codes[text] for text in ("late", "", "early", "late")])
    assert spelt(numbers, list(codes)).tolist() == ["late", "", "early", "late"]


@pytest.mark.parametrize("rows", [0, 3, 100_000])
def test_policy_and_seed_are_in_every_row_of_a_small_and_a_large_table(rows: int) -> None:
    frame = keyed(pl.DataFrame({"round": np.arange(rows)}), policy="fifo", seed=3)
    assert frame.schema == {"policy": pl.String, "seed": pl.Int64, "round": pl.Int64} and frame.height == rows
    assert frame["policy"].to_list() == ["fifo"] * rows and frame["seed"].to_list() == [3] * rows


def test_slots_are_read_from_leases_even_if_there_are_none() -> None:
    named = {"machine": ["m2", "m10", "m2"], "slot": [1, 0, 1], "start_seconds": [0.0, 0.0, 5.0], "app": ["a"] * 3}
    leases = frame_of_columns("leases", named, policy="fifo", seed=0, height=3)
    assert slots_of(leases).rows() == [("m10", 0), ("m2", 1)]
    assert held_twice(leases) == 1
    assert slots_of(leases.clear()).is_empty() and held_twice(leases.clear()) == 0


def test_returning_free_memory_to_the_system_raises_no_error() -> None:
    hand_back()
