"""``eunomia slurm up``, ``status`` and ``down``: an arbiter whose nodes are batch jobs of Slurm."""

import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from eunomia.errors import EunomiaError, InputError
from eunomia.platform.profiles import Profile
from eunomia.units import parse_duration
from eunomia.words import did_you_mean
from eunomia_appmaster.commands.console import NOT_KNOWN, AsJson, StateDir, duration, table
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.node.engine_note import drop_note
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.settings import default_state_dir
from eunomia_engines.engine import Engine, EngineNode, NodeState, one_of_each
from eunomia_engines.head.files import save_serving
from eunomia_engines.head.head import give_all_back
from eunomia_engines.head.starting import await_head, has_failed, last_line, members_of, node_facts
from eunomia_engines.pilots.records import Pilot, pilots
from eunomia_engines.requests import nodes_range
from eunomia_engines.slurm.asking import check_file, check_with_slurm, suitable, with_share
from eunomia_engines.slurm.engine import SlurmEngine, engine_of
from eunomia_engines.slurm.head_control import HeadControl
from eunomia_engines.slurm.head_job import head_script
from eunomia_engines.slurm.limits_check import check_limits, read_limits, room_note, save_note
from eunomia_engines.slurm.programs import SlurmNodes, SlurmPrograms
from eunomia_engines.slurm.request import (
    FOLDER,
    LEAST_HEAD_SECONDS,
    NAMES,
    Request,
    check_whole_jobs,
    gpus_asked,
    time_option,
)
from eunomia_engines.slurm.script import LOGS, check_more, job_script

SCHEMA: Final = "eunomia/slurm@1"
HEADS: Final = ("here", "job")

slurm = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="An arbiter whose nodes are batch jobs of Slurm: up, status, down.",
)


class UpFlags(BaseModel):
    """Flags of ``eunomia slurm up``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Annotated[str, typer.Option("--nodes", metavar="N|A..B", help="Nodes to have; A..B: more while jobs wait.")]
    nodes_per_job: Annotated[
        int, typer.Option("--nodes-per-job", metavar="N", min=1, help="Nodes of a batch job; they end together.")
    ] = 1
    time: Annotated[str, typer.Option("--time", metavar="TIME", help="Of a node: 24:00:00, 1-12:00:00 or 36h.")]
    gres: Annotated[str, typer.Option("--gres", metavar="GRES", help="GPUs of a node: gpu:a100:4 or gpu:4.")] = ""
    cpu_slots: Annotated[
        int | None, typer.Option("--cpu-slots", metavar="N", min=1, help="CPU slots of a node instead of its GPUs.")
    ] = None
    partition: Annotated[str, typer.Option("--partition", metavar="P", help="Default: Slurm's.")] = ""
    account: Annotated[str, typer.Option("--account", metavar="A", help="Default: Slurm's.")] = ""
    qos: Annotated[str, typer.Option("--qos", metavar="Q", help="Default: Slurm's.")] = ""
    cpus_per_gpu: Annotated[
        int | None, typer.Option("--cpus-per-gpu", metavar="N", min=1, help="Default: the GPUs' share of the node.")
    ] = None
    mem_per_gpu: Annotated[
        int | None, typer.Option("--mem-per-gpu", metavar="MIB", min=1, help="Default: the GPUs' share of the node.")
    ] = None
    setup: Annotated[
        Path | None, typer.Option("--setup", metavar="FILE", help="Sourced on each node first: modules, environments.")
    ] = None
    policy: Annotated[str | None, typer.Option("--policy", metavar="P", help="Preset, profile file or plugin.")] = None
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value.")] = None
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="After it, an idle node above the least is given back.")
    ] = "10m"
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="For which jobs must wait before a node more is asked for.")
    ] = "1m"
    node_dir: Annotated[
        Path, typer.Option("--node-dir", metavar="DIR", help="On each node's local disk, for the node's own files.")
    ] = Path("/var/tmp")
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Journal and apps; all nodes must see it.")
    ] = None
    head: Annotated[
        str,
        typer.Option("--head", metavar="here|job", help="Where the head runs: on this machine, or in a batch job."),
    ] = "here"
    head_partition: Annotated[
        str, typer.Option("--head-partition", metavar="P", help="Of the head's job; default: that of the nodes.")
    ] = ""
    head_time: Annotated[
        str | None, typer.Option("--head-time", metavar="TIME", help="Of the head's job; default: --time.")
    ] = None
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="Of the head; default: of its last start, or free."),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the job script, and submit nothing.")] = False
    as_json: AsJson = False
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- SBATCH OPTIONS]", help="Further options of sbatch.")
    ] = None

    @property
    def home(self) -> Path:
        """The arbiter's state folder."""
        return (self.state_dir or default_state_dir()).resolve()

    def _check_head(self) -> None:
        """Check the options of the head.

        Raises:
            InputError: an option is unknown, or requires another option.
        """
        if self.head not in HEADS:
            raise InputError("--head must be here or job", value=f'"{self.head}"{did_you_mean(self.head, HEADS)}')
        alone = {"--head-partition": self.head_partition, "--head-time": self.head_time}
        if self.head == "here" and (named := [name for name, given in alone.items() if given]):
            raise InputError(f"{named[0]} must come with --head job", value="--head here")
        if self.head == "job" and self.state_dir is None and "EUNOMIA_STATE_DIR" not in os.environ:
            rule = "--head job must come with --state-dir, a folder on storage that all nodes and this machine see"
            raise InputError(rule, value=str(self.home))

    def _head_seconds(self) -> float | None:
        return None if self.head_time is None else time_option(self.head_time, "--head-time", LEAST_HEAD_SECONDS)

    def request(self) -> Request:
        """Return the request.

        Raises:
            InputError: a value is invalid.
        """
        least, most = nodes_range(self.nodes)
        check_whole_jobs(least, most, self.nodes_per_job)
        if not self.gres and self.cpu_slots is None:
            rule = "a node must have GPUs (--gres gpu:TYPE:NUMBER) or CPU slots (--cpu-slots N)"
            raise InputError(rule, value="neither")
        gpus = gpus_asked(self.gres)[1] if self.gres else 0
        more = tuple(self.more or ())
        check_more(more)
        self._check_head()
        check_file(self.setup)
        per_gpu = {"--cpus-per-gpu": self.cpus_per_gpu, "--mem-per-gpu": self.mem_per_gpu}
        if not gpus and (named := [name for name, given in per_gpu.items() if given is not None]):
            raise InputError(f"{named[0]} must come with --gres", value="no GPUs")
        try:
            return Request(
                least=least,
                most=most,
                nodes_per_job=self.nodes_per_job,
                seconds=time_option(self.time),
                gres=self.gres,
                cpu_slots=self.cpu_slots,
                cpus=None if self.cpus_per_gpu is None else self.cpus_per_gpu * gpus,
                memory_mib=None if self.mem_per_gpu is None else self.mem_per_gpu * gpus,
                partition=self.partition,
                account=self.account,
                qos=self.qos,
                setup=None if self.setup is None else self.setup.resolve(),
                more=more,
                python=sys.executable,
                node_dir=self.node_dir,
                idle_seconds=float(parse_duration(self.idle, name="--idle", zero=True)),
                wait_seconds=float(parse_duration(self.wait, name="--wait", zero=True)),
                head="job" if self.head == "job" else "here",
                head_partition=self.head_partition,
                head_seconds=self._head_seconds(),
            )
        except ValidationError as error:
            raise InputError("a request to Slurm must be valid", value=str(error.errors()[0]["msg"])) from None


@slurm.callback()
def _slurm() -> None:
    """Serve an arbiter whose nodes are batch jobs of Slurm: up, status, down."""


@slurm.command("up")
@with_flags(UpFlags)
def up(flags: UpFlags) -> int:
    """Serve an arbiter from this machine, with batch jobs of Slurm as its nodes."""
    state, programs = flags.home, SlurmPrograms()
    asked = flags.request()
    policy = flags.policy or os.environ.get("EUNOMIA_POLICY") or "default"
    Profile.load(policy, settings=flags.settings or ())
    here = suitable(asked, programs.nodes())
    request = with_share(asked, here)
    notes = _notes(request, here, programs)
    if not flags.as_json:
        typer.echo("\n".join([*_asked_lines(request, asked), *(f"note: {note}" for note in notes)]))
    check_with_slurm(request, state, programs)
    if flags.dry_run:
        _show_scripts(request, state, notes, as_json=flags.as_json)
        return 0
    head, engine = HeadControl(request, state, programs), SlurmEngine(request, state)
    head.prepare()
    request.save(state)
    save_serving(state / FOLDER, policy=policy, settings=flags.settings or (), port=flags.port)
    waits = head.start()
    if not waits:
        await_head(NAMES, state, lambda: _active(engine), "a node is asked for")
    if flags.as_json:
        _show(state, engine, as_json=True, more={"notes": notes, "request": request.model_dump(mode="json")})
        return 0
    _show(state, engine, as_json=False)
    where = "" if flags.state_dir is None else f" --state-dir {shlex.quote(str(flags.state_dir))}"
    if waits:
        typer.echo(waits)
    commands = ("submit app.toml", "slurm status", "slurm down")
    typer.echo("   ".join(f"eunomia {command}{where}" for command in commands))
    return 0


@slurm.command("status")
def status(as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show the jobs of Slurm, and the nodes that they became."""
    state = _state(state_dir)
    _show(state, engine_of(Request.load(state), state), as_json=as_json)


@slurm.command("down")
def down(
    now: Annotated[
        bool, typer.Option("--now", help="End the head first, so that it hears of nothing that nodes save last.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """End the nodes, their jobs of Slurm and the head; running jobs save first and go on after the next `up`."""
    state = _state(state_dir)
    request = Request.load(state)
    engine = engine_of(request, state)
    HeadControl(request, state).end(now=now)
    give_all_back(engine)
    if left := [node.unit for node in one_of_each(engine.nodes()) if node.state is not NodeState.ENDED]:
        raise EunomiaError("jobs of Slurm must end once they are cancelled", value=", ".join(left))
    drop_note(state)
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "head": None, "nodes": [], "state_dir": str(state)}))
        return
    typer.echo(f"down: no head and no job of Slurm is left; the apps stay in {state}, and go on after eunomia slurm up")


def _active(engine: Engine) -> bool:
    return any(node.state is not NodeState.ENDED for node in engine.nodes())


def _state(given: Path | None) -> Path:
    return (given or default_state_dir()).resolve()


def _notes(request: Request, here: Sequence[SlurmNodes], programs: SlurmPrograms) -> list[str]:
    """Return notes on how the site's limits affect a request.

    Raises:
        InputError: the limits let none of its jobs run, or fewer jobs than requested.
    """
    names, limits = sorted({one.partition for one in here}), read_limits(programs)
    return [*check_limits(request, names, limits), *room_note(request, here), save_note(request, names, limits)]


def _asked_lines(request: Request, asked: Request) -> Sequence[str]:
    """Return lines on the CPUs and memory that a node gets from Slurm, if the command did not name them."""
    parts: list[str] = []
    if request.cpus != asked.cpus:
        parts.append(f"{request.cpus} CPUs")
    if request.memory_mib != asked.memory_mib:
        parts.append(f"{request.memory_mib} MiB")
    whose = f"{request.gres} and their share of a node, " if request.gres else ""
    return [f"a node: {whose}{' and '.join(parts)}"] if parts else []


def _show_scripts(request: Request, state: Path, notes: Sequence[str], *, as_json: bool) -> None:
    """Print the scripts of the batch jobs, without submitting them."""
    script = job_script(request, state)
    head = head_script(request, state) if request.head == "job" else None
    if as_json:
        typer.echo(json.dumps({"schema": SCHEMA, "notes": list(notes), "script": script, "head_script": head}))
        return
    typer.echo(script if head is None else f"{head}\n{script}")


def _show(state: Path, engine: Engine, *, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    begun, nodes, members = pilots(state / FOLDER), engine.nodes(), members_of(state)
    line, head = HeadControl(Request.load(state), state).facts()
    rows = [node for node in nodes if node.state is not NodeState.ENDED or has_failed(node, begun.get(node.id))]
    if as_json:
        facts = [{"job": node.unit, "id": node.id, **node_facts(node, begun.get(node.id), members)} for node in rows]
        typer.echo(json.dumps({"schema": SCHEMA, "head": head, "nodes": facts, **(more or {})}))
        return
    typer.echo(line)
    headers = ("JOB", "STATE", "NODE", "SLOTS", "ENDS", "WHY")
    counts = Counter(node.unit for node in rows)
    firsts = {node.id for node in one_of_each(rows)}
    shown = [node for node in rows if node.state is not NodeState.ASKED or node.id in firsts]
    lines = [_row(state, node, begun.get(node.id), members, counts[node.unit]) for node in shown]
    typer.echo("\n".join(table(headers, lines)))


def _row(
    state: Path, node: EngineNode, pilot: Pilot | None, members: dict[str, pb.NodeView], count: int
) -> tuple[str, ...]:
    """Return the row of a node, or of all ``count`` nodes of a job that waits."""
    name = "" if pilot is None else pilot.node
    if node.state is NodeState.ASKED and count > 1:
        name = f"{count} nodes"
    member = members.get(name) if node.state is NodeState.RUNS else None
    slots = NOT_KNOWN if member is None else ", ".join(f"{n} {kind}" for kind, n in sorted(member.slots.items()))
    failed = _failure(state, node) if has_failed(node, pilot) else ""
    why = "; ".join(filter(None, [node.why, failed, "" if member is None or member.state == "up" else member.why]))
    words = _words(node, member, heard=bool(members))
    return (node.unit, words, name or node.host or NOT_KNOWN, slots, _until(node), why)


def _failure(state: Path, node: EngineNode) -> str:
    """Return the last line of a node's log, else of its job's, with its path."""
    logs = [state / FOLDER / LOGS / f"{name}.log" for name in (node.id, node.unit)]
    return next((f"{last_line(log)} ({log})" for log in logs if log.exists()), "")


def _words(node: EngineNode, member: pb.NodeView | None, *, heard: bool) -> str:
    if node.state is NodeState.ASKED:
        return "pending"
    if node.state is NodeState.RUNS:
        return member.state if member is not None else "starting" if heard else "running"
    return str(node.state.value)


def _until(node: EngineNode) -> str:
    if node.ends_at is None or node.state is NodeState.ENDED:
        return NOT_KNOWN
    at = datetime.fromtimestamp(node.ends_at).astimezone()
    return f"{at:%a %H:%M} (in {duration(max(0.0, node.ends_at - time.time()))})"
