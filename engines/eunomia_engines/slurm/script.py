"""The script of the batch job that holds a node, or several."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_engines.pilots.records import PILOTS
from eunomia_engines.slurm.request import FOLDER, Request, node_job_name

LOGS: Final = "logs"
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Value of PATH in a job, which its setup file may change."""
SHORT_SECONDS: Final = 20
MOST_SHORT: Final = 5
"""Number of consecutive launchers, each of which ran for less than ``SHORT_SECONDS``, after which a node ends."""
PILOT_ID: Final = "EUNOMIA_PILOT"
"""Variable with the id of a node that is not a batch job of its own: a step of an allocation, or a task of a job."""
MADE: Final = "A node of an arbiter: a launcher runs here until the job ends. Made by `eunomia slurm up`."
TASK: Final = "END_OF_TASK"
OWN: Final = (
    *("job-name", "output", "error", "nodes", "ntasks", "ntasks-per-node", "signal", "export"),
    *("array", "requeue", "no-requeue", "no-kill"),
)
"""Options of sbatch that Eunomia sets itself, so that ``-- sbatch options`` may not."""


def check_more(options: tuple[str, ...]) -> None:
    """Check the additional options of sbatch.

    Raises:
        InputError: a text is not an option, is set by Eunomia, or has a character not allowed in a line of a script.
    """
    for option in options:
        if not option.startswith("--") or any(ord(sign) < 32 for sign in option):
            rule = "an option of sbatch after -- must be of the form --NAME or --NAME=VALUE"
            raise InputError(rule, value=f'"{option}"')
        if option[2:].partition("=")[0] in OWN:
            raise InputError("an option of sbatch after -- must be none that Eunomia sets", value=f'"{option}"')


def job_script(request: Request, state: Path, *, seconds: float | None = None) -> str:
    """Return the script of a batch job that holds a node, or as many as the request says; it contains no token.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder, at the same path on all nodes.
        seconds: time limit of this job; None: the request's.
    """
    folder, nodes = state / FOLDER, request.nodes_per_job
    options = {
        "job-name": node_job_name(state),
        "nodes": str(nodes),
        "ntasks": str(nodes),
        "ntasks-per-node": "" if nodes == 1 else "1",
        "time": slurm_time(request.seconds if seconds is None else seconds),
        "gres": request.gres,
        "cpus-per-task": _given(request.cpus),
        "mem": "" if request.memory_mib is None else f"{request.memory_mib}M",
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "signal": f"B:TERM@{request.signal_seconds}",
        "output": f"{folder}/{LOGS}/%j.log",
        "open-mode": "append",
        "export": f"HOME,USER,LOGNAME,LANG,PATH={PATH}",
    }
    lines = [f"#SBATCH --{name}={shlex.quote(text)}" for name, text in options.items() if text]
    lines += ["#SBATCH --no-requeue", *([] if nodes == 1 else ["#SBATCH --no-kill"])]
    lines += [f"#SBATCH {shlex.quote(option)}" for option in request.more]
    made = MADE if nodes == 1 else MADE.replace("A node", f"{nodes} nodes").replace("here", "on each")
    body = _body(request, state) if nodes == 1 else _tasks(request, state)
    return "\n".join(["#!/bin/bash", f"# {made}", *lines, *body, ""])


def step_script(request: Request, state: Path) -> str:
    """Return the script of a step that holds a node of an allocation.

    The step ends once a file ``ID.stop`` exists beside its record. Slurm's own signal would reach the workers, too: if
    Slurm tracks processes by their parents, it signals all processes of a step.
    """
    made = MADE.replace("eunomia slurm up", "eunomia serve --on slurm").replace("job", "step")
    body = _body(request, state, _watch(state, f"${PILOT_ID}"), ('rm -f "$stop"',))
    return "\n".join(["#!/bin/bash", f"# {made}", *body, ""])


def _tasks(request: Request, state: Path) -> list[str]:
    """Return the lines of a job of several nodes after Slurm's options: a task on each node runs a launcher.

    SIGTERM to ``srun`` kills the tasks at once, and a signal to its step reaches the workers, too. So the job's script
    orders the tasks to end by a file that each of them looks for. A task outlives ``srun`` if that dies.
    """
    folder, nodes = state / FOLDER, request.nodes_per_job
    log = f"{shlex.quote(str(folder / LOGS))}/${PILOT_ID}.log"
    options = [
        *(f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--no-kill"),
        *("--wait=0", "--mem=0", *([] if request.cpus is None else [f"--cpus-per-task={request.cpus}"])),
    ]
    return [
        f"records={shlex.quote(str(folder / PILOTS))}",
        'stop="$records/$SLURM_JOB_ID.stop"',
        'rm -f "$stop"',
        "trap 'touch \"$stop\"' TERM INT",
        f"read -r -d '' task << '{TASK}'",
        f'export {PILOT_ID}="$SLURM_JOB_ID-$((SLURM_NODEID + 1))"',
        f"exec >> {log} 2>&1",
        *_body(request, state, _watch(state, "$SLURM_JOB_ID")),
        TASK,
        f'srun {" ".join(options)} --export=ALL bash -c "$task" &',
        "child=$!",
        'wait "$child"; code=$?',
        'while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done  # a signal ends one wait alone',
        "left() {",
        '  for one in "$records/$SLURM_JOB_ID"-*.json; do',
        '    [ ! -e "$one" ] || [ -e "${one%.json}.end" ] || return 0',
        "  done",
        "  return 1",
        "}",
        "# Tasks end in order even if srun was killed.",
        'if [ "$code" -gt 128 ]; then',
        '  touch "$stop"',
        f"  for ((second = 0; second < {int(request.end_seconds)}; second++)); do left || break; sleep 1; done",
        "fi",
        'rm -f "$stop"',
        'exit "$code"',
    ]


def _watch(state: Path, name: str) -> Sequence[str]:
    """Return lines that start a process which ends the script once there is a file ``NAME.stop`` beside the records."""
    folder = shlex.quote(str(state / FOLDER / PILOTS))
    return [
        f"stop={folder}/{name}.stop",
        "# Listing the folder lets shared storage show a new file.",
        f'(until ls {folder} > /dev/null && [ -e "$stop" ]; do sleep 2; done; kill -TERM $$) &',
        "watch=$!",
    ]


def _body(request: Request, state: Path, watch: Sequence[str] = (), last: Sequence[str] = ()) -> list[str]:
    """Return the lines that run a node's launcher until the node ends.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder.
        watch: lines that start a process which ends the script; they set the shell variable ``watch`` to its pid.
        last: commands after the end of the launcher.
    """
    record, whole = shlex.quote(str(state / FOLDER / PILOTS)), shlex.quote(str(state))
    setup = [] if request.setup is None else [f". {shlex.quote(str(request.setup))} || finish 9"]
    return [
        f"record={record}/${{{PILOT_ID}:-$SLURM_JOB_ID}}.end",
        "finish() {",
        '  printf "%s\\n" "$1" > "$record.new" && mv "$record.new" "$record"',
        *(['  [ -z "$watch" ] || kill "$watch" 2>/dev/null'] if watch else []),
        *(f"  {command}" for command in last),
        *(['  [ -z "$relay" ] || kill "$relay" 2>/dev/null'] if request.head == "job" else []),
        f'  [ "$1" != 0 ] || "$python" -m eunomia_engines.slurm.pilot {whole} --clear',
        '  exit "$1"',
        "}",
        'rm -f "$record"',
        f"python={shlex.quote(request.python)}",
        *setup,
        "set +eu; trap - ERR EXIT  # whatever the setup file has set",
        'python="${EUNOMIA_PYTHON:-$python}"  # the setup file may name another one',
        *_relay(request, whole),
        "ends=0",
        "child=0",
        "short=0",
        'trap \'ends=1; [ "$child" = 0 ] || kill -TERM "$child" 2>/dev/null\' TERM INT',
        *watch,
        "# A launcher that died is started again, since its workers live on as long as this job.",
        "while [ $ends = 0 ]; do",
        "  began=$SECONDS",
        f'  "$python" -m eunomia_engines.slurm.pilot {whole} &',
        "  child=$!",
        '  wait "$child"; code=$?',
        '  while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done  # a signal ends one wait alone',
        '  case $code in 0|2|126|127) finish "$code";; esac',
        f"  [ $((SECONDS - began)) -lt {SHORT_SECONDS} ] && short=$((short + 1)) || short=0",
        f'  [ $short -lt {MOST_SHORT} ] || finish "$code"',
        "  [ $ends = 1 ] || sleep 2",
        "done",
        'finish "${code:-0}"',
    ]


def _relay(request: Request, whole: str) -> list[str]:
    """Return the lines that run a relay to the head, if the head runs in batch jobs and so changes its machine."""
    if request.head != "job":
        return []
    return [
        "# The node's processes reach the head through it; it is started again if it dies.",
        f"(trap 'kill \"$!\" 2>/dev/null; exit 0' TERM; while :; do "
        f'"$python" -m eunomia_engines.slurm.relay {whole} & wait "$!"; sleep 1; done) &',
        "relay=$!",
    ]


def slurm_time(seconds: float) -> str:
    """Return a time as Slurm writes it: ``1-02:03:04``."""
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _given(number: int | None) -> str:
    return "" if number is None else str(number)
