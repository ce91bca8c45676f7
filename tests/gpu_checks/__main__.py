"""``python -m gpu_checks``: prints a line for each check; exit code 1 where one failed, 0 where there is no GPU."""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from gpu_checks.catalogue import CHECKS
from gpu_checks.check import GpuCheckError
from gpu_checks.devices import why_no_gpu, why_not_usable
from gpu_checks.running import run_checks

NAMES = [check.name for check in CHECKS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    chosen = _parser().parse_args(arguments)
    if chosen.inside is not None:
        return _inside(chosen.inside, chosen.out)
    if reason := why_no_gpu():
        print(f"no GPU, so none of {len(CHECKS)} checks ran: {reason}")
        return 0
    if reason := why_not_usable():
        print(f"there is a GPU, but none of {len(CHECKS)} checks ran: {reason}")
        return 1
    folder = chosen.out or Path(tempfile.mkdtemp(prefix="eunomia-gpu-"))
    picked = [check for check in CHECKS if check.name in (chosen.only or NAMES)]
    ends = run_checks(picked, folder, lambda line: print(line, flush=True))
    failed = sum(not end.passed for end in ends)
    print(f"{len(ends) - failed} of {len(ends)} checks passed; output in {folder}")
    return 1 if failed else 0


def _inside(name: str, place: Path) -> int:
    """Make one check in this process; its last line is the result."""
    check = next(check for check in CHECKS if check.name == name)
    try:
        print(check.run(place))
    except GpuCheckError as error:
        print(error)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return 1
    sys.stdout.flush()
    os._exit(0)  # a context of CUDA may hang at the end of the interpreter


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpu_checks", description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, help="this check; may be repeated")
    parser.add_argument("--out", type=Path, help="folder for output; a new one by default")
    parser.add_argument("--inside", choices=NAMES, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
