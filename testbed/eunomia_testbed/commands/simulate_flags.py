"""The flags of ``eunomia simulate``."""

from pathlib import Path
from typing import Annotated

import typer

from eunomia.model.shapes import value


@value
class Flags:
    """What was given on the command line."""

    trace: Annotated[str | None, typer.Argument(help="A trace, gzipped or not; - is stdin.", show_default=False)] = None
    workload: Annotated[
        str | None, typer.Option(help="Generate a workload instead: themis1, gavel, shockwave, ...")
    ] = None
    cluster: Annotated[str | None, typer.Option(help='Such as "4x8 V100", or a cluster file.')] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A preset, a profile file or plugins (A, A+B); may be given several times. "
            "By default EUNOMIA_POLICY, else themis."
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value in each profile; trace.KEY is the reader's, WORKLOAD.KEY the generator's.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="All randomness follows from it.")] = 0
    seeds: Annotated[str | None, typer.Option(metavar="0-4", help="Several seeds, such as 0-4 or 0,3.")] = None
    load: Annotated[str, typer.Option(metavar="1,2", help="How many times as fast jobs arrive.")] = "1"
    trace_format: Annotated[str | None, typer.Option("--format", help="Of the trace, where it cannot be told.")] = None
    throughputs: Annotated[
        str | None, typer.Option(help="Measured throughputs, which Gavel's and Shockwave's traces need.")
    ] = None
    speeds: Annotated[
        str | None, typer.Option(help="A file or folder of measured speeds, or: analytic. How fast jobs really are.")
    ] = None
    rules: Annotated[str | None, typer.Option(help="A peer's round rules: gavel.")] = None
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="KEY=VALUE", help="One of these rules, set otherwise.")
    ] = None
    cost: Annotated[
        list[str] | None,
        typer.Option("--cost", metavar="start=20s", help="What start, checkpoint, restore, migrate, ... take."),
    ] = None
    failures: Annotated[
        str | None, typer.Option(help="between=30d,repair=1h for machines that fail, or a CSV file.")
    ] = None
    know: Annotated[
        str | None,
        typer.Option(
            help="What app masters know: declared, measured or oracle. By default declared, with --rules oracle."
        ),
    ] = None
    error: Annotated[float, typer.Option(help="Relative error of what app masters report.")] = 0.0
    lie: Annotated[
        list[str] | None, typer.Option("--lie", metavar="APP=2.0", help="A factor on the work that an app reports.")
    ] = None
    agents: Annotated[bool, typer.Option("--agents", help="App masters answer offers with bids of their own.")] = False
    until: Annotated[str | None, typer.Option(metavar="30d", help="Cut off after this much simulated time.")] = None
    rho: Annotated[str | None, typer.Option(help="The ρ to judge by: themis, static, contention or exclusive.")] = None
    unfair: Annotated[float, typer.Option(help="The ρ above which an app counts as treated unfairly.")] = 1.05
    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier run.")] = False
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the folder of an interrupted run.")] = False
    processes: Annotated[
        int | None, typer.Option("-j", min=1, help="Processes; by default as many as are worth it.", show_default=False)
    ] = None
    csv: Annotated[bool, typer.Option("--csv", help="Write tables as CSV too.")] = False
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True
    strict: Annotated[bool, typer.Option("--strict", help="Rows that are not used, apps left over: an error.")] = False
    plain: Annotated[
        bool, typer.Option("--plain", help="Every stage takes its plain way: slower, with the same tables.")
    ] = False
    tolerate_faults: Annotated[
        bool,
        typer.Option("--tolerate-faults", help="Go on after a plugin's fault; after several the fallback decides."),
    ] = False
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False

    @property
    def owner(self) -> str:
        """What settings of the reader or the generator begin with."""
        return f"{self.workload or 'trace'}."
