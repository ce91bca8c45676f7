"""``python -m chaos.damage --damages N --seed S``: exit code 1 if one is silent, crashes or is not found.

A third of the damages each hits rows of a journal, the files of a journal as a killed arbiter leaves them, and all
other files of the state folder of a live run; ``--only-journal`` leaves the last out.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos.damage.damages import damage
from chaos.damage.file_damages import damage_files
from chaos.damage.outcome import Begun, End, Outcome, begin, judge
from chaos.damage.side_files import run_side_files
from chaos.damage.world import JOURNAL, backup, build, build_killed
from eunomia_appmaster.node.process_logs import configure_logs

BAD = (End.SILENT, End.CRASHED, End.UNSEEN)


def run(damages: int, seed: int) -> Iterator[tuple[int, str, Outcome]]:
    """Damage a journal again and again, each time a whole one; yield seed, damage and outcome of each."""
    with tempfile.TemporaryDirectory() as place:
        closed, killed, earlier = (Path(place) / name for name in ("closed", "killed", "earlier"))
        folder = Path(place) / "state"
        build(closed)
        build_killed(killed, earlier)
        saved = Path(place) / "backup.sqlite"
        backup(earlier, saved)
        whole = {source: _begun(source, folder) for source in (closed, killed)}
        for number in range(seed, seed + damages):
            source = killed if number % 2 else closed
            _copy(source, folder)
            what = damage_files(folder, earlier, number) if number % 2 else damage(folder / JOURNAL, number)
            yield number, what, judge(folder, whole[source], saved)


def _begun(source: Path, folder: Path) -> Begun:
    _copy(source, folder)
    return begin(folder)


def _copy(source: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)


def _all(journal: int, side: int, seed: int, starts: int) -> Iterator[tuple[int, str, Outcome]]:
    yield from run(journal, seed)
    if side:
        with tempfile.TemporaryDirectory() as place:
            yield from run_side_files(Path(place), side, seed, starts)


def main() -> int:
    """Damage, and print what came of it."""
    options = argparse.ArgumentParser(prog="python -m chaos.damage", description=__doc__)
    options.add_argument("--damages", type=int, default=300)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only-journal", action="store_true", help="damage no other file")
    options.add_argument("--starts", type=int, default=20, help="of a whole service on damaged side files")
    options.add_argument("--verbose", action="store_true", help="a line a damage")
    chosen = options.parse_args()
    configure_logs(level="warning")
    sys.stdout.write(f"seed {chosen.seed}\n")
    ends: Counter[End] = Counter()
    side = 0 if chosen.only_journal else chosen.damages // 3
    for number, what, outcome in _all(chosen.damages - side, side, chosen.seed, chosen.starts):
        ends[outcome.end] += 1
        if chosen.verbose or outcome.end in BAD:
            sys.stdout.write(f"{number} {what}: {outcome.end.value}: {outcome.what}\n")
    sys.stdout.write("".join(f"{end.value:22} {ends[end]:5}\n" for end in End))
    return int(any(ends[end] for end in BAD))


if __name__ == "__main__":
    sys.exit(main())
