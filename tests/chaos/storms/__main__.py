"""``python -m chaos.storms --actions 1000 --runs 10 --seed 1 --out FOLDER``: the same command goes on after a stop.

Each process of live runs of four apps gets SIGKILL, SIGTERM, and SIGSTOP for 2 to 45 s and for 90 s: alone, in pairs
and groups, while it starts, and everything three times within two minutes; every other run beside eight busy loops. No
app may be lost, no slot held twice, no process left, nothing ended for a stop of less than a minute, and no resume may
do more than a checkpoint interval again. Exit code 1 where any of this does not hold.
"""

import argparse
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from chaos.storms.outcome import OUTCOME, StormRun, table
from chaos.storms.plan import plan, shares
from chaos.storms.runs import storm_run
from eunomia_appmaster.node.process_logs import configure_logs

END_SECONDS = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something is not as it must be."""
    chosen = _parser().parse_args(arguments)
    configure_logs(level="error")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the run's processes, too
    place = chosen.out or Path(tempfile.mkdtemp(prefix="eunomia-storms-"))
    seed = chosen.seed if chosen.seed is not None else _seed(place)
    _say(f"seed {seed}: {chosen.actions} actions in {chosen.runs} runs; folders: {place}")
    actions = plan(chosen.actions, seed)
    done = []
    for number, count in enumerate(shares(chosen.actions, chosen.runs), 1):
        mine, folder = list(islice(actions, count)), place / str(number)
        if (folder / OUTCOME).exists():
            done.append(StormRun.load(folder / OUTCOME))
            continue
        _put_aside(folder)
        run = storm_run(folder, mine, busy=number % 2 == 0, seed=seed + number, tell=partial(_tell, number))
        run.save(folder / OUTCOME)
        done.append(run)
        for line in (*(f"wrong: {each}" for each in run.wrong), *(f"finding: {each}" for each in run.findings)):
            _say(f"run {number} {line}")
    for line in ("", *table(done)):
        _say(line)
    return int(any(run.wrong or run.findings for run in done))


def _seed(place: Path) -> int:
    """Return the seed that a folder was begun with, else a new one."""
    place.mkdir(parents=True, exist_ok=True)
    kept = place / "seed"
    if not kept.exists():
        kept.write_text(str(secrets.randbelow(2**31)))
    return int(kept.read_text())


def _put_aside(folder: Path) -> None:
    """End what a run has left that was broken off, and remove its folder."""
    if not folder.exists():
        return
    command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(folder), "--arbiter", "127.0.0.1:1"]
    command += ["--token-file", str(folder / "run" / "launcher.token"), "--cpu-only", "--end"]
    subprocess.run([*command, "--stop-seconds", "1"], timeout=END_SECONDS, check=False)
    time.sleep(1.0)
    shutil.rmtree(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos.storms", description=__doc__)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed, and kept in the folder")
    parser.add_argument("--out", type=Path, default=None, help="folder of the runs; one that was begun is gone on with")
    return parser


def _tell(number: int, line: str) -> None:
    _say(f"run {number} {line}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
