"""``python -m chaos.fuzz --messages N --seed S``: exit code 1 if anything broke."""

import argparse
import sys

from chaos.fuzz.run import PARTS, run, table


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> int:
    """Send messages and print what they did."""
    options = argparse.ArgumentParser(prog="python -m chaos.fuzz", description=__doc__)
    options.add_argument("--messages", type=int, default=5000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--wire-share", type=float, default=0.01, help="part that goes over a real connection")
    options.add_argument("--part", type=int, action="append", choices=range(len(PARTS)), help="only this part")
    chosen = options.parse_args()
    parts = chosen.part or range(len(PARTS))
    broken = False
    for one in run(chosen.messages, chosen.seed, wire_share=chosen.wire_share, tell=_tell, parts=parts):
        lines = [
            *table([one]),
            f"answers {one.codes}; made {one.kinds}; {one.steps} steps journaled; {one.seconds:.0f} s",
        ]
        lines += [f"fault: {text}" for text in one.faults[:20]]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        broken |= bool(one.faults or one.witness_changed)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
