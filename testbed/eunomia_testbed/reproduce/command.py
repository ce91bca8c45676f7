"""``eunomia reproduce``: a paper's claims, each as printed beside what is measured here."""

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eunomia.errors import InputError

if TYPE_CHECKING:
    from eunomia_testbed.reproduce.cells import Cell, Figures
    from eunomia_testbed.reproduce.grid import Grid, Store

PAPERS = ("themis",)
OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130


def reproduce(
    paper: Annotated[str, typer.Argument(help="The paper: themis.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="0-4", help="Seeds, such as 0-4 or 0,3.")] = "0-4",
    apps: Annotated[int | None, typer.Option(min=2, help="Apps of each workload, on both clusters.")] = None,
    within: Annotated[str, typer.Option(metavar="60m", help="Begin no simulation after this time.")] = "60m",
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Processes; by default one a CPU.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder of an earlier run.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless every claim holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False,
) -> int:
    """Measure a paper's claims again."""
    from eunomia.units import parse_duration
    from eunomia_testbed.reproduce.grid import Grid, processes_here, run_grid
    from eunomia_testbed.reproduce.page import page
    from eunomia_testbed.reproduce.table import fixed_lines, plain_grid, plain_rows, screen_lines
    from eunomia_testbed.reproduce.themis_claims import claims
    from eunomia_testbed.reproduce.verdicts import Verdict
    from eunomia_testbed.results.folder import new_folder_name
    from eunomia_testbed.spec.settings import seed_list

    if paper not in PAPERS:
        raise InputError(f"paper must be one of: {', '.join(PAPERS)}", value=f'"{paper}"')
    seconds = parse_duration(within, name="--within", place="--within", zero=True)
    sizes = {} if apps is None else {"testbed_apps": apps, "simulator_apps": apps}
    grid = Grid(seeds=seed_list(seeds), **sizes)
    folder = out or Path("eunomia-out") / new_folder_name("reproduce", datetime.now(UTC))
    store = _open(folder, grid, resume=resume)
    shown = not quiet
    if shown:
        _say([f"Themis (NSDI 2020), {len(claims())} claims. Fixed before the first run:", *fixed_lines(grid)])
    interrupted = False
    try:
        run_grid(grid, store, processes=processes or processes_here(), seconds=seconds, told=_teller(shown=shown))
    except KeyboardInterrupt:
        interrupted = True
    runs = _runs(grid, store)
    rows = [(claim, claim.measure(runs)) for claim in claims()]
    cpu_seconds = sum(figures.cpu_seconds for figures in runs.done.values())
    outcome: dict[str, Any] = {
        "schema": "eunomia/reproduce@1",
        "paper": paper,
        "out": str(folder),
        "simulations": {"done": len(runs.done), "of": len(grid.cells()), "cpu_seconds": cpu_seconds},
        "fixed": plain_grid(grid),
        "claims": plain_rows(rows),
    }
    (folder / "claims.json").write_text(json.dumps(outcome, ensure_ascii=False, indent=2) + "\n")
    (folder / "report.html").write_text(page("Themis (NSDI 2020), measured again", rows, runs))
    if as_json:
        typer.echo(json.dumps(outcome, ensure_ascii=False))
    elif quiet:
        typer.echo(folder)
    else:
        part = f"{len(runs.done)} of {len(grid.cells())} simulations done, {cpu_seconds / 60:.0f} min of CPU time"
        more = "" if len(runs.done) == len(grid.cells()) else "; --resume goes on"
        typer.echo("\n".join([*screen_lines(rows), f"{part}{more}", f"Report   {folder / 'report.html'}"]))
    if interrupted:
        return INTERRUPTED
    return ANSWER_IS_NO if strict and any(found.verdict is not Verdict.HOLDS for _, found in rows) else OK


def _open(folder: Path, grid: "Grid", *, resume: bool) -> "Store":
    """Open the folder of a run, and fix what is run.

    Raises:
        InputError: the folder is of another run, or is there and is not to be gone on with.
    """
    from eunomia_testbed.reproduce.grid import Store
    from eunomia_testbed.reproduce.table import plain_grid

    fixed = folder / "fixed.json"
    wanted = json.dumps(plain_grid(grid), indent=2) + "\n"
    if folder.exists() and any(folder.iterdir()):
        if not resume:
            raise InputError("--out must be a new folder, or --resume be given", value=str(folder))
        if not fixed.exists() or fixed.read_text() != wanted:
            raise InputError("--resume must be given the seeds and apps of the earlier run", value=str(fixed))
    store = Store(folder)
    fixed.write_text(wanted)
    return store


def _runs(grid: "Grid", store: "Store") -> Any:
    from eunomia_testbed.reproduce.grid import Runs

    return Runs(grid=grid, done=store.load(grid.cells()))


def _teller(*, shown: bool) -> Any:
    """What is told of each simulation that is done."""
    from eunomia_testbed.reproduce.cells import Cell

    def told(cell: "Cell", figures: "Figures", done: int, of: int) -> None:
        if shown:
            left = f", {figures.unfinished} apps unfinished" if figures.unfinished else ""
            usual = Cell(policy=cell.policy, seed=cell.seed)
            fields = (field.name for field in dataclasses.fields(cell) if field.name not in ("policy", "apps"))
            other = [f"{name} {getattr(cell, name)}" for name in fields if getattr(cell, name) != getattr(usual, name)]
            what = ", ".join([cell.policy, f"seed {cell.seed}", *other])
            _say([f"{done} of {of}   {what}: worst ρ {figures.worst_rho:.2f}{left}"])

    return told


def _say(lines: list[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
