"""The script of the batch job that holds a node."""

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
"""Variable with the id of a node that is a step of an allocation; without it, a node has the id of its batch job."""
MADE: Final = "A node of an arbiter: a launcher runs here until the job ends. Made by `eunomia slurm up`."
OWN: Final = ("job-name", "output", "error", "nodes", "ntasks", "signal", "export", "array", "requeue", "no-requeue")
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
    """Return the script of a node's batch job; it contains no token.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder, at the same path on all nodes.
        seconds: time limit of this job; None: the request's.
    """
    folder = state / FOLDER
    options = {
        "job-name": node_job_name(state),
        "nodes": "1",
        "ntasks": "1",
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
    lines += ["#SBATCH --no-requeue", *(f"#SBATCH {shlex.quote(option)}" for option in request.more)]
    return "\n".join(["#!/bin/bash", f"# {MADE}", *lines, *_body(request, state), ""])


def step_script(request: Request, state: Path) -> str:
    """Return the script of a step that holds a node of an allocation.

    The step ends once a file ``ID.stop`` exists beside its record. Slurm's own signal would reach the workers, too: if
    Slurm tracks processes by their parents, it signals all processes of a step.
    """
    made = MADE.replace("eunomia slurm up", "eunomia serve --on slurm").replace("job", "step")
    folder = shlex.quote(str(state / FOLDER / PILOTS))
    watch = [
        f"stop={folder}/${PILOT_ID}.stop",
        "# Listing the folder lets shared storage show a new file.",
        f'(until ls {folder} > /dev/null && [ -e "$stop" ]; do sleep 2; done; kill -TERM $$) &',
        "watch=$!",
    ]
    return "\n".join(["#!/bin/bash", f"# {made}", *_body(request, state, watch), ""])


def _body(request: Request, state: Path, watch: Sequence[str] = ()) -> list[str]:
    """Return the lines of the script after Slurm's options.

    Args:
        request: the request of ``eunomia slurm up``.
        state: the arbiter's state folder.
        watch: lines that start a process which ends the script; they set the shell variable ``watch`` to its pid.
    """
    record, whole = shlex.quote(str(state / FOLDER / PILOTS)), shlex.quote(str(state))
    setup = [] if request.setup is None else [f". {shlex.quote(str(request.setup))} || finish 9"]
    return [
        f"record={record}/${{{PILOT_ID}:-$SLURM_JOB_ID}}.end",
        "finish() {",
        '  printf "%s\\n" "$1" > "$record.new" && mv "$record.new" "$record"',
        *(['  kill "$watch" 2>/dev/null; rm -f "$stop"'] if watch else []),
        *(['  [ -z "$relay" ] || kill "$relay" 2>/dev/null'] if request.head == "job" else []),
        f'  [ "$1" != 0 ] || "$python" -m eunomia_engines.slurm.pilot {whole} --clear',
        '  exit "$1"',
        "}",
        'rm -f "$record"',
        *watch,
        f"python={shlex.quote(request.python)}",
        *setup,
        "set +eu; trap - ERR EXIT  # whatever the setup file has set",
        'python="${EUNOMIA_PYTHON:-$python}"  # the setup file may name another one',
        *_relay(request, whole),
        "ends=0",
        "child=0",
        "short=0",
        'trap \'ends=1; [ "$child" = 0 ] || kill -TERM "$child" 2>/dev/null\' TERM INT',
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
