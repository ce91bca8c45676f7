"""Turns the rows of a paper into claims, each with its cells and the function that measures it."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

from eunomia.errors import InputError
from eunomia.model.shapes import builds, value
from eunomia_testbed.reproduce.comparison_tables import TableLine, filled_table
from eunomia_testbed.reproduce.estimates import estimated
from eunomia_testbed.reproduce.files import NeededFile, Reading
from eunomia_testbed.reproduce.judging import measured_row
from eunomia_testbed.reproduce.measures import (
    EACH,
    ENDS,
    GREATEST,
    LEVEL,
    OTHERS,
    Comparison,
    compared,
    find_measure,
    joined,
    with_printed,
)
from eunomia_testbed.reproduce.paper import C, Claim, F, G, Paper, Runs
from eunomia_testbed.reproduce.recipes import Recipe, differences, known_by_some
from eunomia_testbed.reproduce.rows import ClaimRow, Fields, RowsFile, section_order
from eunomia_testbed.reproduce.verdicts import NOT_RUN, Measured, Verdict


@value
class Variant:
    """A setting under which all claims are measured; the first variant of a paper determines the verdicts."""

    name: str
    """Name in the table, such as ``analytic S``."""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Values that this variant gives to fields of the cells."""


Guarded = tuple[bool, str, Mapping[str, tuple[float, ...]]]
"""A guard's result: whether the workload can show a claim, an explanation, and by name the numbers of each seed."""


@builds
class RowPaper(Generic[G, C, F]):
    """The data that turns the rows of a paper into claims."""

    file: RowsFile
    cell: Callable[[G, Fields, int], C]
    """Returns a cell from the grid, its fields and a seed."""
    numbers: Mapping[str, Callable[[F], float]]
    """Functions from a cell's results to a number, by the name in a row's ``number``."""
    recipe: Callable[[C], Recipe]
    """Returns the preset and settings that a cell runs."""
    axis: str = "policy"
    """The cell field that holds the policy's name."""
    variants: Callable[[G], Sequence[Variant]] = lambda grid: (Variant(name=""),)
    depends_on: str = ""
    """The quantity in which variants differ, such as ``S``."""
    draws: Callable[[G], bool] = lambda grid: True
    """Whether seeds draw the input of a row with ``drawn``; otherwise its cells run once."""
    guard: Callable[[Runs[G, C, F], Sequence[Sequence[C]]], Guarded | None] | None = None
    """Decides from the claim's own cells, [seed][setting], whether the workload can show a claim with ``floor``."""
    behind: Callable[[C], Iterable[C]] = lambda cell: ()
    """Returns further cells that the guard needs for one of the claim's cells."""
    computed: Mapping[str, Callable[[], Mapping[str, float]]] = dataclasses.field(default_factory=dict)
    """Measurements without cells, by name; each returns numbers by label."""
    notes: Mapping[str, Callable[[Mapping[str, Sequence[F]]], str]] = dataclasses.field(default_factory=dict)
    """Functions that return a remark on a row's cells, by the name in the row's ``note``; the argument maps each label
    to the results of every seed."""
    group: Callable[[C], str] | None = None
    """Returns the key of a cell in the file's ``[seconds]``; None: the file has no measured times."""

    def seconds(self, cell: C) -> float | None:
        """Return the CPU seconds measured for the cell's group and policy; None: not measured."""
        if self.group is None:
            return None
        return self.file.seconds.get(self.group(cell), {}).get(getattr(cell, self.axis))

    def claims(self, grid: G) -> list[Claim[G, C, F]]:
        """Return a claim for each row, in the order of the paper's sections.

        Raises:
            InputError: a row has an undefined reference, or no ``contrast`` although its policies differ in knowledge.
        """
        rows: list[tuple[str, Claim[G, C, F]]] = []
        for group in self.file.missing:
            verdict = Verdict.UNMEASURED if group.measurable else Verdict.NOT_MEASURABLE
            found = Measured(text="-", verdict=verdict, reason=group.why)
            rows += [
                (section, _fixed(section, where, text, printed, found)) for section, where, text, printed in group.rows
            ]
        for row in self.file.claim:
            made = self._computed(row) if row.measure in self.computed else _RowClaim(self, row, grid).claim()
            rows.append((row.section, made))
        rows.sort(key=lambda pair: (pair[1].goal, section_order(pair[0])))
        return [claim for _, claim in rows]

    def tables(self, runs: Runs[G, C, F]) -> list[dict[str, Any]]:
        """Return the tables whose cells have been run, as plain values."""
        made = []
        for row in self.file.table:
            shared = {name: _of_the_grid(runs.grid, item) for name, item in self.file.cells[row.cells].items()}
            lines = [
                self._line(runs.grid, (_named(at), label), fields, {**fields, **row.base})
                for at in row.at
                for label, each in map(self._labelled, row.over)
                for fields in [_plain_fields({**shared, **at, **each})]
            ]
            columns = [
                (", ".join(filter(None, [number, variant.name])), dict(variant.fields), number)
                for variant in self.variants(runs.grid)
                for number in row.number
            ]
            used: set[str] = set()
            found = filled_table(row.title, lines, columns, functools.partial(self._levels, runs, used))
            if found is not None:
                made.append({**found, "stale": bool(used & runs.stale)})
        return made

    def _levels(self, runs: Runs[G, C, F], used: set[str], fields: dict[str, Any], number: str) -> dict[int, float]:
        """Return a number of a cell by seed, for seeds that were run; the keys of its cells are added to ``used``."""
        keys = {seed: self.cell(runs.grid, fields, seed).key for seed in runs.grid.seeds}
        used.update(keys.values())
        return {seed: _number(self.numbers[number], runs.done[key]) for seed, key in keys.items() if key in runs.done}

    def _line(self, grid: G, labels: tuple[str, str], fields: Fields, base: Fields) -> TableLine:
        """Return a line of a table; its base is None if both are the same cell."""
        first, other = (self.cell(grid, each, grid.seeds[0]) for each in (fields, base))
        return TableLine(labels=labels, fields=fields, base=None if first.key == other.key else base)

    def _labelled(self, one: str | Fields) -> tuple[str, Fields]:
        """Return a label and the cell fields for a policy's name, or for other fields."""
        return (one, {self.axis: one}) if isinstance(one, str) else (_named(one), one)

    def _computed(self, row: ClaimRow) -> Claim[G, C, F]:
        def measure(runs: Runs[G, C, F]) -> Measured:
            here = self.computed[row.measure]()
            bare = [
                Comparison(label=name, effects=(number,), is_ratio=False, printed=0.0) for name, number in here.items()
            ]
            return measured_row(row, with_printed(bare, row.value, 1, row.text), drawn=False)

        claim: Claim[G, C, F] = _fixed(row.section, row.where, row.text, row.printed, NOT_RUN)
        return dataclasses.replace(claim, measure=measure, goal=row.goal)


def _fixed(section: str, where: str, text: str, printed: str, found: Measured) -> Claim[Any, Any, Any]:
    return Claim(
        figure=where, section=section, text=text, printed=printed, measure=lambda runs: found, cells=lambda seed: ()
    )


class _RowClaim(Generic[G, C, F]):
    """A row of claims with its cells, by variant and seed."""

    def __init__(self, paper: RowPaper[G, C, F], row: ClaimRow, grid: G) -> None:
        self._paper, self._row, self._grid = paper, row, grid
        self._place = f"{row.where}: {row.text}"
        self._measure = find_measure(row.measure, self._place)
        self._drawn = row.drawn and paper.draws(grid)
        if row.cells not in paper.file.cells:
            raise InputError("a row must name cells of its file", value=f'"{row.cells}"', place=self._place)
        if row.note and row.note not in paper.notes:
            rule = f"note must be one of: {', '.join(paper.notes)}"
            raise InputError(rule, value=f'"{row.note}"', place=self._place)
        unknown = [name for name in row.number if name not in paper.numbers]
        if unknown or not row.number:
            rule = f"number must be some of: {', '.join(paper.numbers)}"
            raise InputError(rule, value=f"{unknown or row.number}", place=self._place)
        self._own = {**paper.file.cells[row.cells], **self._fields(row.own)}
        over = paper.file.lists.get(row.over, [row.over]) if isinstance(row.over, str) else row.over
        self._others = [(one if isinstance(one, str) else _named(one), self._fields(one)) for one in over]
        self._settings = self._settings_of_the_row()
        self._variants = list(paper.variants(grid))[: 1 if row.first_variant else None]

    def claim(self) -> Claim[G, C, F]:
        """Return the row as a claim."""
        row, seed = self._row, self._grid.seeds[0]
        own = [self._paper.recipe(cell) for cell in self._cells(seed, self._variants[0])]
        apart = known_by_some(own)
        if apart and not row.contrast:
            rule = "all policies of a row must know the same, or its contrast must say what it compares"
            raise InputError(rule, value=", ".join(apart), place=self._place)
        differs = list(differences(own))
        for variant in self._variants[1:]:
            lines = differences(self._paper.recipe(cell) for cell in self._cells(seed, variant))
            differs += [f"{variant.name}: {line}" for line in lines if line not in differs]
        return Claim(
            figure=row.where,
            section=row.section,
            text=row.text,
            printed=row.printed,
            measure=self.measured,
            cells=self.cells,
            goal=row.goal,
            differs=tuple(differs),
            marked=f"knows {', '.join(apart)}: {row.contrast}" if apart else "",
        )

    def cells(self, seed: int) -> Iterator[C]:
        """Yield the cells of a seed under every variant; if the input is not drawn, only the first seed has cells."""
        if not self._drawn and seed != self._grid.seeds[0]:
            return
        for variant in self._variants:
            for cell in self._cells(seed, variant):
                yield cell
                yield from self._paper.behind(cell) if self._row.floor else ()

    def measured(self, runs: Runs[G, C, F]) -> Measured:
        """Measure the claim under the first variant, and add the verdicts under the others."""
        first, *rest = self._variants
        found = self._under(runs, first)
        own = {cell.key for cell in self._cells(self._grid.seeds[0], first)}
        beside, differ = {}, False
        for variant in rest:
            if {cell.key for cell in self._cells(self._grid.seeds[0], variant)} == own:
                continue
            other = self._under(runs, variant)
            beside[variant.name] = f"{other.verdict.value}: {other.text}"
            verdicts = {other.verdict, found.verdict}
            differ = differ or (len(verdicts) > 1 and Verdict.UNMEASURED not in verdicts)
        return dataclasses.replace(found, beside=beside, depends_on=self._paper.depends_on if differ else "")

    def _under(self, runs: Runs[G, C, F], variant: Variant) -> Measured:
        seeds = self._grid.seeds if self._drawn else self._grid.seeds[:1]
        cells = {seed: self._cells(seed, variant) for seed in seeds}
        whole = [seed for seed in seeds if all(cell.key in runs.done for cell in cells[seed])]
        if not whole or not self._settings:
            return self._not_run(variant)

        def numbers(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
            keys = [self._cell({**fields, **variant.fields}, seed).key for seed in whole]
            return tuple(_number(self._paper.numbers[name], runs.done[key]) for key in keys)

        groups = compared(self._measure, self._own, self._others, self._settings, self._row.number, numbers)
        printed = with_printed(joined(self._measure, groups), self._row.value, self._of_a_group, self._place)
        found = measured_row(self._row, self._marked_partial(printed), drawn=self._drawn, behind=groups)
        if self._row.note:
            noted = self._paper.notes[self._row.note](self._figures(runs, variant, whole))
            found = dataclasses.replace(found, reason=f"{found.reason}; {noted}")
        stale = any(cell.key in runs.stale for seed in whole for cell in cells[seed])
        return dataclasses.replace(self._guarded(runs, found, variant, whole), stale=stale)

    def _not_run(self, variant: Variant) -> Measured:
        """Return the result if no seed has finished; its reason states the estimated CPU time of the simulations."""
        if not self._settings:
            words = "none of its settings is among those of the run (--set)"
        else:
            seeds = self._grid.seeds if self._drawn else self._grid.seeds[:1]
            cells = list(dict.fromkeys(cell for seed in seeds for cell in self._cells(seed, variant)))
            words = f"{len(cells)} simulations, {estimated(self._paper.seconds, cells)}"
        remark = f"; {self._row.why}" if self._row.why else ""
        return dataclasses.replace(NOT_RUN, reason=f"{NOT_RUN.reason}: {words}{remark}")

    def _figures(self, runs: Runs[G, C, F], variant: Variant, whole: Sequence[int]) -> dict[str, list[F]]:
        """Return the results of the other policies' cells by label, one for each seed."""
        return {
            f"{name} {setting}".strip(): [
                runs.done[self._cell({**self._own, **changed, **fields, **variant.fields}, seed).key] for seed in whole
            ]
            for setting, changed in self._settings
            for name, fields in self._others
        }

    @property
    def _of_a_group(self) -> int:
        """Return the number of printed values for each setting of the row."""
        measure = self._measure
        if measure.join == ENDS:
            return 2
        joined_others = measure.across == OTHERS and measure.join != EACH
        return 1 if measure.form == LEVEL or joined_others else len(self._others)

    def _marked_partial(self, comparisons: list[Comparison]) -> list[Comparison]:
        """Mark comparisons at the greatest setting as partial if the paper has further settings."""
        if len(self._settings) >= self._row.whole or self._measure.join not in (ENDS, GREATEST):
            return comparisons
        first = comparisons[:1] if self._measure.join == ENDS else []
        return [*first, *(dataclasses.replace(one, partial=True) for one in comparisons[len(first) :])]

    def _guarded(self, runs: Runs[G, C, F], found: Measured, variant: Variant, whole: Sequence[int]) -> Measured:
        if not self._row.floor or self._paper.guard is None:
            return found
        own = [
            [self._cell({**self._own, **setting, **variant.fields}, seed) for _, setting in self._settings]
            for seed in whole
        ]
        guarded = self._paper.guard(runs, own)
        if guarded is None:
            return found
        measurable, words, by_seed = guarded
        return dataclasses.replace(
            found,
            verdict=found.verdict if measurable else Verdict.NOT_MEASURABLE,
            reason=f"{found.reason}. {words}",
            by_seed={**found.by_seed, **by_seed},
        )

    def _cells(self, seed: int, variant: Variant) -> list[C]:
        others = [fields for _, fields in self._others] if self._measure.form != LEVEL else []
        made = [
            self._cell({**self._own, **setting, **fields, **variant.fields}, seed)
            for _, setting in self._settings
            for fields in ({}, *others)
        ]
        return list(dict.fromkeys(made))

    def _cell(self, fields: Mapping[str, Any], seed: int) -> C:
        known = {name: _of_the_grid(self._grid, item) for name, item in _plain_fields(fields).items()}
        return self._paper.cell(self._grid, known, seed if self._drawn else 0)

    def _settings_of_the_row(self) -> list[tuple[str, Mapping[str, Any]]]:
        if not self._row.at:
            return [("", {})]
        found = _of_the_grid(self._grid, self._row.at) if isinstance(self._row.at, str) else self._row.at
        return [(_named(fields), fields) for fields in found]

    def _fields(self, given: str | Fields) -> Fields:
        if isinstance(given, str):
            return {self._paper.axis: given} if given else {}
        return dict(given)


def _number(number: Callable[[F], float], figures: F) -> float:
    """Return a number computed from a cell's results; NaN: the computation divides by 0."""
    try:
        return float(number(figures))
    except ZeroDivisionError:
        return math.nan


def _plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell without the label."""
    return {name: item for name, item in fields.items() if name != "label"}


def _of_the_grid(grid: Any, item: Any) -> Any:
    """Return the grid's attribute that a text such as ``@name`` refers to; other items are returned unchanged."""
    return getattr(grid, item[1:]) if isinstance(item, str) and item.startswith("@") else item


def _named(fields: Mapping[str, Any]) -> str:
    """Return fields as text, such as ``shrink 2``, or the field ``label`` if there is one."""
    if "label" in fields:
        return str(fields["label"])
    plain = {name.replace("_", " "): f"{item:g}" if isinstance(item, float) else item for name, item in fields.items()}
    return ", ".join(f"{name} {item}" for name, item in plain.items())


# --- a whole paper ----------------------------------------------------------------------------------------------------


def paper_of(
    rows: RowPaper[G, C, F],
    *,
    grid: type[G],
    figures: type[F],
    run: Callable[[C], F],
    facts: Callable[[G], Mapping[str, str]],
    shows: Mapping[str, str],
    hidden: Sequence[str] = (),
    files: Callable[[C], Iterable[NeededFile | Reading]] = lambda cell: (),
) -> Paper[G, C, F]:
    """Return the paper whose claims are these rows.

    Args:
        rows: the rows, and the functions that they refer to.
        grid: the settings of a reproduction.
        figures: the figures of a cell.
        run: simulates a cell; it must be a module's function, since worker processes import it.
        facts: texts to which the file's ``fixed`` refers, in addition to the fields of the grid.
        shows: the numbers, each with its unit, in the line printed for a finished cell; a NaN (not measured) is left
            out.
        hidden: fields of a cell that the line leaves out, such as file paths.
        files: returns the third-party files that a cell reads, and its readings of them; a run checks the files and
            makes each reading before its first simulation.
    """

    def fixed(settings: G) -> list[str]:
        known = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        cells = [cell for claim in rows.claims(settings) for cell in claim.cells(settings.seeds[0])]
        policies = differences(map(rows.recipe, dict.fromkeys(cells)))
        inputs = [f"numbers of the paper that are settings here, {line}" for line in rows.file.inputs]
        return [*(line.format(**known, **facts(settings)) for line in rows.file.fixed), *inputs, *policies]

    def said(cell: C, found: F) -> str:
        given = {field.name: field.default for field in dataclasses.fields(cell)}
        named = {name: getattr(cell, name) for name, usual in given.items() if getattr(cell, name) != usual}
        words = [str(named.pop(rows.axis, "")), f"seed {named.pop('seed', 0)}"]
        words += [_named({name: item}) for name, item in named.items() if name not in hidden]
        numbers = {name: rows.numbers[name](found) for name in shows}
        figures_of = [f"{name} {of:.4g} {shows[name]}".rstrip() for name, of in numbers.items() if not math.isnan(of)]
        return ": ".join(filter(None, [", ".join(words), ", ".join(figures_of)]))

    return Paper(
        title=rows.file.title,
        grid=grid,
        figures=figures,
        claims=rows.claims,
        run=run,
        fixed=fixed,
        said=said,
        seconds=rows.seconds,
        tables=rows.tables,
        files=files,
    )
