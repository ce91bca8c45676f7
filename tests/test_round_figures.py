"""What a round of the core costs in calls, functions and stores has limits, which only fall."""

import functools

import pytest

import round_figures

ROOM = 0.96
"""A figure below this part of its limit asks for a lower limit."""
LIMITS = {
    "stores written by a START": 7,
    "stores written by a START, where leases end": 8,
    "returns of functions while a START is adopted": 5,
    "functions of the core that write a table": 11,
    "methods of the largest class": 25,
    "attributes of the largest class": 20,
    "FIFO round with one START: functions": 44,
    "FIFO round with one START: modules": 18,
    "FIFO round with one START: calls": 62,
    "FIFO round with one START: lines": 879,
    "FIFO round with one START: percent of functions that are upkeep": 25,
    "Themis round: functions": 193,
    "Themis round: modules": 46,
    "Themis round: calls": 591,
    "Themis round: lines": 2474,
    "calls a job under FIFO": 221.5,
    "calls of a contended step of SRTF": 395,
    "calls of numpy in a contended step of SRTF": 3.5,
    "lines of the core": 19244,
}
WRITERS = {
    "core/eunomia/model/columns.py": {"Table.add", "Table.set"},
    "core/eunomia/store/writers.py": {
        "_hold",
        "count",
        "grant",
        "leave",
        "mark",
        "move",
        "release",
        "run",
        "set_verdict",
    },
}
"""The functions that write a table, by file. The list only shrinks, until a few writers in one file are left."""
MOST_METHODS, MOST_ATTRIBUTES = 25, 20
"""Of a class of core and simulator."""
figures = functools.cache(round_figures.figures)


@pytest.mark.parametrize("name", LIMITS)
def test_no_figure_of_a_round_exceeds_its_limit(name: str) -> None:
    figure = figures()[name]
    assert figure <= LIMITS[name], "python tests/round_figures.py prints what stands behind it"
    assert figure >= ROOM * LIMITS[name], "the figure has fallen: lower its limit"


def test_every_figure_has_a_limit() -> None:
    assert figures().keys() == LIMITS.keys()


def test_only_known_functions_write_a_table() -> None:
    known = {f"{file}:{name}" for file, names in WRITERS.items() for name in names}
    found = round_figures.writers()
    assert found - known == set(), "a column is written by a function that is on the list"
    assert known - found == set(), "take these entries off the list"


def test_no_class_is_too_large() -> None:
    sizes = round_figures.classes().items()
    found = {name for name, size in sizes if size.methods > MOST_METHODS or size.attributes > MOST_ATTRIBUTES}
    assert found == set(), "split the class by subject"


def test_every_form_of_writing_a_table_is_found_in_the_syntax_tree() -> None:
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


def test_a_step_that_changes_one_store_leaves_the_others_unchanged() -> None:
    changed, _ = round_figures.adopting_a_start()
    assert {"state.jobs", "state.holdings", "state.leases"} <= changed
    assert "state.users" not in changed
