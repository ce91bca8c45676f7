"""A replay of an hour, and whether anything of it grows: ``python -m chaos.soak --replay``."""

import csv
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from chaos.soak.samples import SAMPLE_SECONDS, SAMPLES, Samples, of_process, of_tree
from chaos.storms.targets import of_folder
from eunomia_appmaster.journal_check import check_folder
from eunomia_appmaster.launcher.processes import identify

POLICY: Final = "las"
SLOTS: Final = "4x cpu:0.35"
LOAD: Final = 0.7
"""Share of the slots for which work arrives, so that no queue grows."""
MODELS: Final = ("MobileNetV2", "LSTM", "Autoencoder")
LENGTHS: Final = (8.0, 40.0)
"""Seconds of a job alone."""
COLUMNS: Final = (
    "job", "user", "arrival_seconds", "least_gpus", "most_gpus", "iterations", "seconds_per_iteration", "model",
    "reference_type", "batch_size",
)  # fmt: skip


class ReplaySoak:
    """A replay of a trace of arrivals, and samples of its processes.

    Args:
        folder: of the trace and the result; new.
        chance: draws the trace.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self.counts = Counter[str]()
        self.states = Counter[str]()
        self.samples = Samples()

    def run(self, seconds: float) -> list[str]:
        """Replay arrivals of so many seconds; return what is wrong."""
        self._write(seconds)
        command = [str(Path(sys.executable).with_name("eunomia")), "replay", "trace.csv", "--policy", POLICY]
        command += ["--slots", SLOTS, "--speeds", "equal", "--speed", "1x", "--budget", f"{2 * seconds:.0f}s"]
        command += ["--out", "out"]
        log = self._folder / "log.txt"
        with log.open("wb") as to, subprocess.Popen(command, cwd=self._folder, stdout=to, stderr=to) as made:
            try:
                self._watch(made, min(SAMPLE_SECONDS, seconds / SAMPLES))
            except BaseException:
                made.send_signal(signal.SIGINT)
                raise
        state = self._folder / "out" / "runs" / f"{POLICY}-0"
        if made.returncode:
            return [f"the replay ended with {made.returncode}: {log.read_text(encoding='utf-8')[-500:]}"]
        wrong = [str(finding) for finding in check_folder(state, over=True).findings]
        return wrong + [f"{each} is left" for each in of_folder(state)]

    def _write(self, seconds: float) -> None:
        at, number = 0.0, 0
        with (self._folder / "trace.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(COLUMNS)
            while at < seconds:
                gpus, length = self._chance.choice((1, 1, 2)), self._chance.uniform(*LENGTHS)
                row = (f"j{number}", f"u{number % 3}", f"{at:.1f}", gpus, gpus, max(5, round(length / 0.1)), 0.1)
                out.writerow((*row, self._chance.choice(MODELS), "V100", 32))
                at += self._chance.expovariate(4.0 * LOAD / (sum(LENGTHS) / 2 * 4.0 / 3.0))
                number += 1
        self.counts["jobs"] = number

    def _watch(self, made: "subprocess.Popen[bytes]", every: float) -> None:
        began, run = time.monotonic(), self._folder / "out" / "runs" / f"{POLICY}-0"
        while made.poll() is None:
            replay = identify(made.pid)
            if run.is_dir() and replay is not None:
                found = of_process("replay", replay)
                for name, process in of_tree(made.pid).items():
                    found |= of_process(name, process)
                self.samples.add(time.monotonic() - began, found)
            time.sleep(every)
