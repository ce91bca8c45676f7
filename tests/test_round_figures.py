"""What a round of the core costs in calls, functions and stores has limits, which only fall."""

import functools

import pytest

import round_figures

ROOM = 0.97
"""A figure below this part of its limit asks for a lower limit."""
LIMITS = {
    "stores written by a START": 14,
    "stores written by a START, where leases end": 15,
    "returns of functions while a START is adopted": 29,
    "functions of the core that write a table": 46,
    "methods of the largest class": 47,
    "attributes of the largest class": 56,
    "FIFO round with one START: functions": 140,
    "FIFO round with one START: modules": 40,
    "FIFO round with one START: calls": 188,
    "FIFO round with one START: lines": 1729,
    "Themis round: functions": 305,
    "Themis round: modules": 54,
    "Themis round: calls": 1512,
    "Themis round: lines": 3143,
    "calls a job under FIFO": 533,
    "calls of a contended step of SRTF": 1095,
    "calls of numpy in a contended step of SRTF": 116,
    "lines of the core": 22400,
}
figures = functools.cache(round_figures.figures)


@pytest.mark.parametrize("name", LIMITS)
def test_a_figure_of_the_round_keeps_its_limit(name: str) -> None:
    figure = figures()[name]
    assert figure <= LIMITS[name], "python tests/round_figures.py prints what stands behind it"
    assert figure >= ROOM * LIMITS[name], "the figure has fallen: lower its limit"


def test_every_figure_has_a_limit() -> None:
    assert figures().keys() == LIMITS.keys()


def test_the_writers_that_the_syntax_tree_shows() -> None:
    source = """
class Table:
    def whole(self):
        self.live.column[:] = 0
def named(state, row):
    jobs, apps = state.jobs.cells, state.apps
    jobs.since[row], rest = 0.0, 1
def one_column(state, row):
    epoch = state.gpus.cells.epoch
    epoch[row] += 1
def only_reads(state, row):
    jobs = state.jobs.cells
    found = {}
    found[row] = jobs.since[row]
    held = jobs.since[row]
    held[0] = 1
"""
    assert round_figures.writers_in(source) == {"Table.whole", "named", "one_column"}


def test_stores_are_told_apart_and_a_change_is_seen() -> None:
    changed, _ = round_figures.adopting_a_start()
    assert {"state.jobs", "state.holdings", "state.leases"} <= changed
    assert "state.users" not in changed
