"""What Shockwave's canonical trace costs under every baseline: CPU of the simulation, and of the whole command.

Run with ``python tests/benchmarks/bench_canonical.py [policy ...]``; ``bench_simulator.py`` measures the simulator by
itself. Prints medians of three runs, user and system time; asserts no timing. Bytecode is cached in a folder of its
own and warm, as it is where Eunomia is installed. The trace lies in ``../shared/data``; without it nothing is run.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "shockwave"
POLICIES: Final = (
    *("fifo", "srtf", "srsf", "las", "max_min", "isolated", "drf", "themis_rho", "edf", "index_rule"),
    *("max_min_fairness", "finish_time_fairness", "max_sum_throughput", "min_total_duration", "allox", "gandiva_fair"),
)
RUNS: Final = 3
SIMULATION, COMMAND = 0.3, 1.2
"""The limits in seconds that stand for each of them."""


def arguments(policy: str, out: Path) -> list[str]:
    """Of ``eunomia`` for one policy."""
    trace, rates = DATA / "canonical_120jobs_32gpus.trace", DATA / "tacc_throughputs.json.gz"
    given = ["simulate", str(trace), "--throughputs", str(rates), "--cluster", "32x1 V100", "--rules", "gavel"]
    return [*given, "--policy", policy, "--out", str(out), "--overwrite"]


def simulated(policy: str) -> tuple[float, int, int]:
    """CPU seconds of one simulation in this process, and its steps and events."""
    from eunomia.cli import run as command
    from eunomia_testbed.running import cell_files

    spent: list[tuple[float, int, int]] = []
    names = vars(cell_files)
    simulate_one = names["simulate_one"]

    def timed(*given: object, **named: object) -> object:
        began = time.process_time()
        run = simulate_one(*given, **named)
        spent.append((time.process_time() - began, run.steps, run.events))
        return run

    names["simulate_one"] = timed
    with tempfile.TemporaryDirectory() as folder:
        code = command([*arguments(policy, Path(folder) / "out"), "-q", "--no-report", "-j", "1"])
    if code:
        raise SystemExit(f"{policy}: exit code {code}")
    return spent[0]


def child(words: Sequence[str], cache: Path) -> tuple[float, str]:
    """CPU seconds, user and system, of a process of this Python, and what it printed."""
    environment: Mapping[str, str] = {
        **{name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
    }
    said = cache / "said.txt"
    opened = [
        (os.POSIX_SPAWN_OPEN, 1, str(said), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    number = os.posix_spawn(sys.executable, [sys.executable, *words], environment, file_actions=opened)
    _, status, used = os.wait4(number, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: failed with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime, said.read_text(encoding="utf-8")


def main(policies: Sequence[str] = POLICIES) -> None:
    """Measure policy by policy."""
    if not DATA.is_dir():
        print(f"nothing is measured, for the trace is not here: {DATA}")
        return
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        whole = ["-c", "from eunomia.cli import main; main()"]
        child([*whole, *arguments(policies[0], cache / "out")], cache)
        print(f"{'policy':<22} {'simulation s':>13} {'command s':>10} {'steps':>6} {'events':>7}")
        for policy in policies:
            commands = [child([*whole, *arguments(policy, cache / "out")], cache)[0] for _ in range(RUNS)]
            told = [child([__file__, "--one", policy], cache)[1].split()[-3:] for _ in range(RUNS)]
            spent, command = statistics.median(float(line[0]) for line in told), statistics.median(commands)
            over = " over" if spent > SIMULATION or command > COMMAND else ""
            print(f"{policy:<22} {spent:13.2f} {command:10.2f} {told[0][1]:>6} {told[0][2]:>7}{over}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(*simulated(sys.argv[2]))
    else:
        main(sys.argv[1:] or POLICIES)
