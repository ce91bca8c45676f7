"""The flags of ``eunomia replay``."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict

_LEFT_OUT = ("resume", "progress", "as_json", "quiet", "out", "overwrite")
"""Flags that a resumed replay takes from the present call, not from the earlier one."""


class ReplayFlags(BaseModel):
    """Flags of ``eunomia replay``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: Annotated[str | None, typer.Argument(help="A trace, as eunomia simulate reads it.", show_default=False)] = (
        None
    )
    workload: Annotated[
        str | None, typer.Option(help="Generate a workload instead: themis1, gavel, shockwave, ...")
    ] = None
    policies: Annotated[
        list[str] | None,
        typer.Option("--policy", help="A preset, a profile file or a plugin; may be given several times."),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another value in each profile, in the trace's time; trace.KEY is the reader's.",
        ),
    ] = None
    slots: Annotated[
        str,
        typer.Option(
            metavar='"4x cpu:0.35"',
            help='Slots of this machine: "4x cpu:0.35" is paced, "4x cpu" is not; gpus, or "gpu:0, gpu:1".',
        ),
    ] = ""
    unpaced: Annotated[bool, typer.Option("--unpaced", help="The CPU slots have no pace.")] = False
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="HOST:PORT", help="Run on this arbiter, which runs already, under its policy."),
    ] = None
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="With --at: the arbiter's state folder, as seen from here."),
    ] = None
    as_me: Annotated[
        bool, typer.Option("--as-me", help="With --at: all jobs are yours, instead of the trace's users'.")
    ] = False
    shared: Annotated[bool, typer.Option("--shared", help="With --at: even if the arbiter serves apps of others.")] = (
        False
    )
    speed: Annotated[
        str | None,
        typer.Option(
            metavar="200x", help="How many times as fast as the trace; by default as slow as the budget allows."
        ),
    ] = None
    budget: Annotated[
        str, typer.Option(metavar="10m", help="Time of a run of one policy, which the simulation must fit.")
    ] = "10m"
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each policy, interleaved with those of the others.")] = 1
    gangs: Annotated[
        int, typer.Option(min=1, metavar="4", help="How many of the trace's GPUs a slot of a gang stands for.")
    ] = 1
    cluster: Annotated[
        str | None, typer.Option(help='The trace\'s own cluster, such as "4x8 V100": for its GPU types and its size.')
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first repeat; each further one adds 1.")] = 0
    profiles: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rates and costs measured before, instead of measuring them.")
    ] = None
    faults: Annotated[
        int | None,
        typer.Option(min=1, metavar="30", help="Kill and stop processes so many times in each run, by a seeded plan."),
    ] = None
    fault_seed: Annotated[
        int | None, typer.Option(min=0, metavar="7", help="Seed of the plan of --faults; by default 0.")
    ] = None
    fault_kinds: Annotated[
        str | None,
        typer.Option(metavar="worker,stop", help="Of worker, app-master, arbiter, launcher and stop; by default all."),
    ] = None
    measure_only: Annotated[
        bool, typer.Option("--measure-only", help="Measure rates and costs, leave profiles.toml, and end.")
    ] = False
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Run even if costs take over a quarter of the slot time, or profiles are of another machine.",
        ),
    ] = False
    no_stand_ins: Annotated[
        bool, typer.Option("--no-stand-ins", help="Refuse models whose architecture no program has.")
    ] = False
    format: Annotated[str | None, typer.Option("--format", help="Of the trace, if not seen from its name.")] = None
    throughputs: Annotated[str | None, typer.Option(help="Measured throughputs, which Gavel's traces need.")] = None
    speeds: Annotated[
        str | None, typer.Option(help="How fast the trace's jobs were, as eunomia simulate takes it.")
    ] = None
    unknown_models: Annotated[list[str] | None, typer.Option("--unknown-models", help="As of eunomia simulate.")] = None
    elastic: Annotated[
        str | None, typer.Option(metavar="1..4", help="Let every job of a trace of fixed gangs run on these sizes.")
    ] = None
    resizes: Annotated[
        Literal["live", "restart"],
        typer.Option(help="How jobs of several sizes change their size: live, or by a restart from a checkpoint."),
    ] = "restart"
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with an interrupted replay: its done runs are kept.")
    ] = None
    out: Annotated[Path | None, typer.Option(help="The folder to leave; a new one in ./eunomia-out by default.")] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder of an earlier replay.")] = False
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show what happens.")] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the folder's path alone.")] = False

    def kept(self) -> dict[str, Any]:
        """Return the flags on which the plan depends, as JSON values."""
        plain = self.model_dump(mode="json")
        return {name: item for name, item in plain.items() if name not in _LEFT_OUT}

    def again(self, kept: dict[str, Any]) -> "ReplayFlags":
        """Return the flags of an earlier call, with this call's flags in ``_LEFT_OUT``: folder and display."""
        return ReplayFlags(**kept | {name: getattr(self, name) for name in _LEFT_OUT})
