"""``python -m chaos.soak --for 1h``: apps arrive, end, are cancelled and killed; nothing of the service may grow.

``--replay``: a replay runs for so long instead, without kills.

Every ten seconds memory, descriptors and threads of arbiter, launcher and zygote (and of the replay) are sampled, and
of the service how many folders and processes there are. At the end each figure's slope is printed with its 95 %
confidence interval. Exit code 1 where an interval lies above zero, where an app was lost, or where the journal checker
finds something.
"""

import argparse
import csv
import random
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.soak.replayed import ReplaySoak
from chaos.soak.samples import Samples
from chaos.soak.service import Soak
from chaos.soak.slopes import slope
from eunomia.units import parse_duration
from eunomia_appmaster.node.process_logs import configure_logs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where something grows, or is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__)
    parser.add_argument("--for", dest="length", default="1h", metavar="TIME")
    parser.add_argument("--replay", action="store_true", help="a replay instead of a service")
    parser.add_argument("--out", type=Path, default=None, help="file for the samples, as CSV")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    chosen = parser.parse_args(arguments)
    seconds = float(parse_duration(chosen.length, name="--for"))
    configure_logs(level="error")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = chosen.seed if chosen.seed is not None else secrets.randbelow(2**31)
    _say(f"seed {seed}: {chosen.length}")
    with tempfile.TemporaryDirectory(prefix="eunomia-soak-") as place:
        soak = (ReplaySoak if chosen.replay else Soak)(Path(place), random.Random(seed))
        wrong = soak.run(seconds)
        _say(", ".join(f"{count} {what}" for what, count in sorted(soak.counts.items())))
        if soak.states:
            _say("the last apps: " + ", ".join(f"{count} {state}" for state, count in sorted(soak.states.items())))
        _say(f"{'':28}{'mean':>10}{'an hour':>10}{'95 % interval':>24}")
        if chosen.out is not None:
            _save(chosen.out, soak.samples)
        for name, (at, values) in sorted(soak.samples.by_name.items()):
            made = slope(at, values)
            said = "GROWS" if made.grows else ("zero is inside" if made.holds_zero else "falls")
            _say(f"{name:28}{made.mean:10.2f}{made.per_hour:10.2f}{made.low:12.2f}{made.high:12.2f}  {said}")
            wrong += [f"{name} grows by {made.low:.2f} to {made.high:.2f} an hour"] if made.grows else []
    for each in wrong:
        _say(f"wrong: {each}")
    return int(bool(wrong))


def _save(path: Path, samples: Samples) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(("figure", "seconds", "value"))
        out.writerows(
            (name, at, value) for name, each in samples.by_name.items() for at, value in zip(*each, strict=True)
        )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
