"""``python -m chaos.kills``: live runs in which workers, app masters and the arbiter are killed.

Each victim gets SIGKILL, half of them inside an auction, while a checkpoint is written, or while a container starts;
the others at any moment. Afterwards every app must have finished, the journal checker must find nothing, and no kill
may have cost more work than one checkpoint interval. Exit code 1 where any of this does not hold. The seed of victims
and moments is printed.
"""

import argparse
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from chaos.kills.outcome import KillRun, table
from chaos.kills.runs import kill_run
from chaos.kills.victims import ALL_KINDS, KINDS, Kill
from eunomia.errors import EunomiaError
from eunomia_appmaster.node.process_logs import configure_logs

MORE_RUNS = 3
"""How many runs may follow for kills that came too late, and as many again as half of the runs."""


def share_out(kills: int, runs: int, luck: random.Random, kinds: Sequence[str] = KINDS) -> list[list[str]]:
    """Say which kinds are killed in which run: as many of each kind as can be, shuffled, runs of equal length."""
    victims = [kinds[number % len(kinds)] for number in range(kills)]
    shared = [victims[number * len(victims) // runs : (number + 1) * len(victims) // runs] for number in range(runs)]
    for each in shared:
        luck.shuffle(each)
    return shared


def spread(left: Sequence[str], planned: list[list[str]]) -> list[list[str]]:
    """Give kinds that were left over to the runs that follow, or to a run of their own."""
    if not planned:
        return [list(left)] if left else []
    return [[*kinds, *left[number :: len(planned)]] for number, kinds in enumerate(planned)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something is not as it must be."""
    chosen = _parser().parse_args(arguments)
    configure_logs(level="error")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the run's processes, too
    seed = chosen.seed if chosen.seed is not None else secrets.randbelow(2**31)
    _say(f"seed {seed}: {chosen.kills} kills in {chosen.runs} runs")
    luck = random.Random(seed)
    place = chosen.out or Path(tempfile.mkdtemp(prefix="eunomia-kills-"))
    done, wrong = _run_all(chosen, luck, place)
    for line in ("", *table(done), "", *(f"wrong: {each}" for each in wrong)):
        _say(line)
    if chosen.out is None and not wrong:
        shutil.rmtree(place, ignore_errors=True)
    else:
        _say(f"folders: {place}")
    return 1 if wrong else 0


def _run_all(chosen: argparse.Namespace, luck: random.Random, place: Path) -> tuple[list[KillRun], list[str]]:
    """Make the runs, and more where kills are left over; also return all that is wrong."""
    done: list[KillRun] = []
    wrong: list[str] = []
    planned = share_out(chosen.kills, chosen.runs, luck, chosen.kinds.split(","))
    for number in range(1, chosen.runs + chosen.runs // 2 + MORE_RUNS + 1):
        if not planned:
            break
        folder, kinds = place / str(number), planned.pop(0)
        tell = partial(_tell_kill, number)
        try:
            run = kill_run(folder, kinds, luck, tell=tell, length=chosen.length, settings=chosen.set)
        except EunomiaError as error:
            wrong.append(f"run {number}: {error}")
            _say(f"run {number}  broken off: {error}")
            continue
        done.append(run)
        wrong += [f"run {number}: {each}" for each in run.wrong]
        _tell(number, run)
        planned = spread(run.left, planned)
        if chosen.out is None and not run.wrong:
            shutil.rmtree(folder, ignore_errors=True)
    wrong += [f"{sum(map(len, planned))} processes were not killed"] if planned else []
    return done, wrong


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=9, help="in all: the kinds in turn")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kinds", type=_kinds, default=",".join(KINDS), help=f"of {', '.join(ALL_KINDS)}")
    parser.add_argument("--length", type=float, default=None, help="of the apps; default: by the number of kills")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the profile")
    parser.add_argument("--seed", type=int, default=None, help="of victims and moments; default: a new one, printed")
    parser.add_argument("--out", type=Path, default=None, help="where to leave the runs' folders; default: nowhere")
    return parser


def _kinds(text: str) -> str:
    if not set(text.split(",")) <= set(ALL_KINDS):
        raise argparse.ArgumentTypeError(f"kinds must be of {', '.join(ALL_KINDS)}, separated by commas")
    return text


def _tell_kill(number: int, kill: Kill) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(kill.at))
    _say(f"run {number}  {clock}  killed {kill.kind:<11}{kill.victim:<28}{kill.moment}")


def _tell(number: int, run: KillRun) -> None:
    most, steps = max((loss.seconds for loss in run.losses), default=0.0), sum(loss.steps for loss in run.losses)
    finished = sum(state == "finished" for state in run.states.values())
    _say(
        f"run {number}  {finished} of {len(run.states)} apps finished in {run.seconds:.0f} s; findings: "
        f"{len(run.findings)}; work lost: {steps} steps, at most {most:.2f} s at once"
    )
    for each in run.wrong:
        _say(f"run {number}  wrong: {each}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
