"""``eunomia reproduce``: measures a paper's claims and compares them with the published values."""

import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, BeforeValidator, ConfigDict

from eunomia.errors import InputError
from eunomia.own_stdout import own_stdout
from eunomia.words import did_you_mean, shown
from eunomia_appmaster.commands.model_flags import FlagType, with_flags
from eunomia_testbed.reproduce.keys import KeysInHelp, check_numbers

if TYPE_CHECKING:
    from eunomia_testbed.reproduce.paper import Claim, Paper, Row
    from eunomia_testbed.reproduce.running import Store

OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130
FIXED = "fixed.json"
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda given: given or ()), FlagType(list[str] | None)]


class ReproduceFlags(BaseModel):
    """The flags of ``eunomia reproduce``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: Annotated[str, typer.Argument(help="The paper, such as themis; a wrong name lists them.")]
    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    only: Annotated[Texts, typer.Option("--only", metavar="CLAIM", help="These claims alone, such as fig9.")] = ()
    seeds: Annotated[str, typer.Option(metavar="0-4", help="Seeds, such as 0-4 or 0,3.")] = "0-4"
    apps: Annotated[int | None, typer.Option(min=2, help="Apps of each workload, on every cluster.")] = None
    settings: Annotated[
        Texts,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value in what the paper fixes, by the keys below."),
    ] = ()
    within: Annotated[str, typer.Option(metavar="60m", help="Begin no simulation after this time.")] = "60m"
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Processes; by default one a CPU.", show_default=False)
    ] = None
    docs: Annotated[
        Path | None, typer.Option(help="Also write the table as PAPER.md and PAPER.json into this folder.")
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder of an earlier run.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless every claim holds.")] = False
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False


@with_flags(ReproduceFlags)
def reproduce(flags: ReproduceFlags) -> int:
    """Measure a paper's claims and compare them with the published values."""
    from eunomia.units import parse_duration
    from eunomia_testbed.reproduce.papers import find_paper
    from eunomia_testbed.reproduce.run_lock import locked
    from eunomia_testbed.results.folder import new_folder_name

    if flags.resume and flags.out is None:
        raise InputError("--resume must stand with --out, the folder to go on with", value="none", place="--out")
    if flags.docs and flags.docs.exists() and not flags.docs.is_dir():
        raise InputError("--docs must name a folder", value=f"the file {flags.docs}", place="--docs")
    paper = find_paper(flags.paper)
    seconds = parse_duration(flags.within, name="--within", place="--within", zero=True)
    grid = _grid(paper, flags)
    every = paper.claims(grid)
    claims = chosen(every, flags.only)
    folder = flags.out or Path("eunomia-out") / new_folder_name("reproduce", datetime.now(UTC))
    _check_folder(folder, _fixed_text(grid, flags), flags)
    with locked(folder):
        outcome, interrupted = _run(paper, grid, claims, flags, folder, seconds)
        rows = [(claim, claim.measure(outcome.runs)) for claim in claims]
        outcome.write(rows)
    if flags.docs:
        outcome.write_docs(flags.docs, every, dict(rows))
    return INTERRUPTED if interrupted else outcome.exit_code(rows)


app = typer.Typer(add_completion=False, rich_markup_mode=None)
"""The command-line app, whose help lists the keys of ``--set``."""
app.command(cls=KeysInHelp)(reproduce)


def _run(
    paper: "Paper[Any, Any, Any]",
    grid: Any,
    claims: "Sequence[Claim[Any, Any, Any]]",
    flags: ReproduceFlags,
    folder: Path,
    seconds: float,
) -> "tuple[_Outcome, bool]":
    """Run the cells that the claims still need, in a folder whose lock is held.

    Returns:
        All finished cells, and whether the user interrupted the run.

    Raises:
        EunomiaError: a cell failed, or the folder belongs to another run.
    """
    from eunomia_testbed.reproduce.estimates import to_come
    from eunomia_testbed.reproduce.files import check_files_and_content
    from eunomia_testbed.reproduce.paper import Runs, cells_of
    from eunomia_testbed.reproduce.run_lock import LOCK
    from eunomia_testbed.reproduce.running import processes_here, run_cells
    from eunomia_testbed.reproduce.table import fixed_lines

    cells = cells_of(grid.seeds, claims)
    store = _open(paper, grid, flags, folder)
    missing = store.missing(cells)
    fixed = [_sizes(paper, grid, cells), *paper.fixed(grid)]
    says = _say if flags.progress and not flags.quiet else lambda lines: None

    def done_one(cell: Any, figures: Any, done: int, of: int) -> None:
        says([f"{done} of {of}   {paper.said(cell, figures)}"])

    interrupted, processes = False, flags.processes or processes_here()
    try:
        if seconds > 0.0:
            given = [one for cell in missing for one in paper.files(cell)]
            check_files_and_content(given, f"reproduce {flags.paper}")
        says([f"{paper.title}, {len(claims)} claims. Fixed before the first run:", *fixed_lines(fixed)])
        if len(missing) < len(cells):
            says([to_come(paper.seconds, cells, missing)])
        with own_stdout():
            run_cells(paper, cells, store, processes=processes, seconds=seconds, done_one=done_one)
    except KeyboardInterrupt:
        interrupted = True
    except InputError:
        store.withdraw([folder / FIXED, folder / LOCK])
        raise
    done = store.load(cells)
    runs: Runs[Any, Any, Any] = Runs(grid=grid, done=done, stale=store.stale())
    outcome = _Outcome(flags=flags, paper=paper, runs=runs, cells=len(cells), fixed=fixed, folder=folder)
    return outcome, interrupted


# -- before the first run


def chosen(claims: "Sequence[Claim[Any, Any, Any]]", names: Sequence[str]) -> "Sequence[Claim[Any, Any, Any]]":
    """Return the claims of the named figures; all claims if no figure is named.

    Args:
        claims: claims of the paper.
        names: names of figures, in any case and with or without spaces: ``fig9`` is ``Fig 9``.

    Raises:
        InputError: no claim has this name.
    """
    figures = {_plain(claim.figure): claim.figure for claim in claims}
    wanted = set()
    for name in names:
        if _plain(name) not in figures:
            known = dict.fromkeys(figures.values())
            hint = did_you_mean(name, known)
            raise InputError(f"claim must be one of: {', '.join(known)}", value=f"{shown(name)}{hint}", place="--only")
        wanted.add(_plain(name))
    return [claim for claim in claims if not names or _plain(claim.figure) in wanted]


def _plain(figure: str) -> str:
    return re.sub(r"\s|^§|\.$", "", figure).casefold().replace("figure", "fig")


def _sizes(paper: "Paper[Any, Any, Any]", grid: Any, cells: Sequence[Any]) -> str:
    """Return a line with the seeds, the number of simulations, and their estimated cost."""
    from eunomia_testbed.reproduce.estimates import estimated

    line = f"seeds {', '.join(map(str, grid.seeds))}; {len(cells)} simulations"
    return f"{line}, {estimated(paper.seconds, cells)}" if cells else line


def _grid(paper: "Paper[Any, Any, Any]", flags: ReproduceFlags) -> Any:
    """Return the paper's grid with the requested seeds and sizes.

    Raises:
        InputError: the grid lacks a setting, or a value is invalid.
    """
    from eunomia_testbed.spec.settings import filled, seed_list

    grid = filled(paper.grid, flags.settings, "--set")
    check_numbers(grid)
    sizes: dict[str, Any] = {}
    if flags.apps is not None:
        names = [field.name for field in dataclasses.fields(grid) if field.name.endswith("apps")]
        if not names:
            raise InputError("--apps must stand with a paper that has apps", value=str(flags.apps), place="--apps")
        sizes = dict.fromkeys(names, flags.apps)
    return dataclasses.replace(grid, seeds=seed_list(flags.seeds), **sizes)


def _fixed_text(grid: Any, flags: ReproduceFlags) -> str:
    """Return the settings of a run as JSON text, as stored in its folder."""
    from eunomia_testbed.reproduce.table import plain_grid

    return json.dumps({"paper": flags.paper, **plain_grid(grid)}, indent=2) + "\n"


def _check_folder(folder: Path, wanted: str, flags: ReproduceFlags) -> None:
    """Check that a folder is empty or belongs to this run.

    Raises:
        InputError: the folder is a file, belongs to another run, or has files and ``--resume`` is not given.
    """
    from eunomia_testbed.reproduce.run_lock import LOCK

    fixed = folder / FIXED
    if folder.exists() and not folder.is_dir():
        raise InputError("--out must be a folder", value=f"the file {folder}", place="--out")
    if not folder.exists() or all(path.name == LOCK for path in folder.iterdir()):
        return
    if not flags.resume:
        rule = "--out must be a new folder, or --resume be given"
        raise InputError(rule, value=f"the folder {folder}", place="--out")
    if not fixed.exists():
        rule = "--resume must name a folder that an earlier eunomia reproduce left"
        raise InputError(rule, value=f"{folder}, without {FIXED}", place="--out")
    if fixed.read_text() != wanted:
        rule = "--resume must be given the paper, seeds and sizes of the earlier run"
        raise InputError(rule, value=_differences(fixed.read_text(), wanted), place=str(fixed))


def _differences(earlier: str, wanted: str) -> str:
    """Return as text the settings in which two runs differ, with the values of this run and of the earlier one."""
    try:
        was, now = json.loads(earlier), json.loads(wanted)
        keys = [key for key in dict.fromkeys([*now, *was]) if was.get(key) != now.get(key)]
        keys = ["paper"] if "paper" in keys else keys
        return ", ".join(f"{key} {_short(now.get(key))} in place of {_short(was.get(key))}" for key in keys)
    except (ValueError, AttributeError, TypeError):
        return "a file that no run wrote"


def _short(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _open(paper: "Paper[Any, Any, Any]", grid: Any, flags: ReproduceFlags, folder: Path) -> "Store[Any, Any]":
    """Open the folder of a run, whose lock is held, and write the run's settings.

    Raises:
        InputError: another run, which has ended in the meantime, left its files in the folder.
    """
    from eunomia_testbed.reproduce.fingerprint import code_of
    from eunomia_testbed.reproduce.running import Store

    wanted = _fixed_text(grid, flags)
    _check_folder(folder, wanted, flags)
    store: Store[Any, Any] = Store(folder, paper.figures, code_of(paper))
    (folder / FIXED).write_text(wanted)
    return store


# -- at the end


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The results of a reproduction, for files and the screen."""

    flags: ReproduceFlags
    paper: "Paper[Any, Any, Any]"
    runs: Any
    cells: int
    fixed: Sequence[str]
    folder: Path

    def write(self, rows: "Sequence[Row]") -> None:
        """Write ``claims.json`` and ``report.html``, and print the requested output."""
        from eunomia_testbed.reproduce.page import page
        from eunomia_testbed.reproduce.table import screen_lines

        plain = self._plain(rows)
        (self.folder / "claims.json").write_text(json.dumps(plain, ensure_ascii=False, indent=2) + "\n")
        report = self.folder / "report.html"
        title = f"{self.paper.title}, measured again"
        report.write_text(page(title, rows, self.fixed))
        if self.flags.as_json:
            typer.echo(json.dumps(plain, ensure_ascii=False))
        elif self.flags.quiet:
            typer.echo(self.folder)
        else:
            done = len(self.runs.done)
            part = f"{done} of {self.cells} simulations done, {self._cpu_seconds / 60:.0f} min of CPU time"
            more = "" if done == self.cells else "; --resume goes on"
            typer.echo("\n".join([*screen_lines(rows), f"{part}{more}", f"Report   {report}"]))

    def write_docs(self, folder: Path, claims: "Sequence[Claim[Any, Any, Any]]", measured: Mapping[Any, Any]) -> None:
        """Write the paper's record and page; claims that were not requested keep their earlier results.

        Args:
            folder: folder of the documents.
            claims: all claims of the paper.
            measured: results by requested claim.
        """
        from eunomia_testbed.reproduce.fingerprint import code_of
        from eunomia_testbed.reproduce.paper import Runs, cells_of
        from eunomia_testbed.reproduce.record import keep_record

        grid = self.runs.grid
        nothing: Runs[Any, Any, Any] = Runs(grid=grid, done={})
        rows = [(claim, measured[claim] if claim in measured else claim.measure(nothing)) for claim in claims]
        fixed = [_sizes(self.paper, grid, cells_of(grid.seeds, claims)), *self.fixed[1:]]
        keep_record(folder, self._plain(rows), title=self.paper.title, code=code_of(self.paper), fixed=fixed)

    @property
    def _cpu_seconds(self) -> float:
        return float(sum(figures.cpu_seconds for figures in self.runs.done.values()))

    def _plain(self, rows: "Sequence[Row]") -> dict[str, Any]:
        from eunomia_testbed.reproduce.table import plain_grid, plain_rows

        return {
            "schema": "eunomia/reproduce@2",
            "paper": self.flags.paper,
            "out": str(self.folder),
            "simulations": {"done": len(self.runs.done), "of": self.cells, "cpu_seconds": self._cpu_seconds},
            "fixed": plain_grid(self.runs.grid),
            "claims": plain_rows(rows),
            "tables": self.paper.tables(self.runs),
        }

    def exit_code(self, rows: "Sequence[Row]") -> int:
        """Return 1 if ``--strict`` is given and a claim of the paper does not hold; otherwise 0."""
        from eunomia_testbed.reproduce.verdicts import Verdict

        failed = any(found.verdict is not Verdict.HOLDS for claim, found in rows if not claim.goal)
        return ANSWER_IS_NO if self.flags.strict and failed else OK


def _say(lines: Sequence[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
