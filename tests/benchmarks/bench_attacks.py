"""What one user's bad app does to the calls of another user: silent connections, output, sparse logs, a full disk.

    python tests/benchmarks/bench_attacks.py
    python tests/benchmarks/bench_attacks.py connections output --seconds 20

Arbiter, launcher, app masters and workers are real processes; as root their state is in a file system of its own, so
that it can be filled. Meanwhile a good user asks for its app 20 times a second; printed are the median and the 99th
percentile of the round trip beside those of an undisturbed time, and what became of the attack. Asserts no timing.
"""

import argparse
import contextlib
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.cleaning import bytes_of
from eunomia_appmaster.app.outputs import STDOUT, newest_output
from eunomia_appmaster.client import Client
from eunomia_appmaster.node.supervisor import Serving, Supervisor

FLOORS = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
DISK_MIB, RESERVE_MIB, LOG_MIB = 512, 32, 16
CONNECTIONS = 6000
GOOD = "import os, time\nwhile not os.path.exists('end'): time.sleep(0.05)\n"
OUTPUT = """
import sys, time
line = "x" * 1023 + chr(10)
for _ in range(1 << 20):
    sys.stdout.write(line)
time.sleep(600)
"""
ROUNDS = 4
KNOCK = """
import os, resource, select, socket, sys, time
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # it is to take no processor from the service
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
host, port, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held, opened = [], 0
while not select.select([sys.stdin], [], [], 0.5)[0]:
    still = []
    for one in held:
        try:
            gone = not one.recv(65536)
        except BlockingIOError:
            gone = False
        except OSError:
            gone = True
        one.close() if gone else still.append(one)
    held = still
    while len(held) < most and not select.select([sys.stdin], [], [], 0)[0]:
        try:
            held.append(socket.create_connection((host, port), timeout=2.0))
        except OSError:
            break
        held[-1].setblocking(False)
        opened += 1
print(opened)
"""
"""An attacker, which is a process of its own: it does not wait for the interpreter of what measures."""
SPARSE = "import os, time\nos.ftruncate(1, 100_000_000_000)\ntime.sleep(600)\n"
FULL = """
import os, time
file = os.open(os.environ["EUNOMIA_RUN_DIR"] + "/big", os.O_WRONLY | os.O_CREAT)
while True:
    try:
        os.write(file, b"x" * 65536)
    except OSError:
        time.sleep(0.001)
"""


class Place:
    """The service, and the good user's calls."""

    def __init__(self, made: Supervisor, client: Client, folder: Path, seconds: float) -> None:
        self.made, self.client, self.folder, self.seconds = made, client, folder, seconds
        self.apps = made.state_dir / "apps"

    def submit(self, name: str, script: str) -> None:
        (self.folder / f"{name}.py").write_text(script)
        file = self.folder / f"{name}.toml"
        file.write_text(f'[app]\nname = "{name}"\n[job]\ncommand = "{sys.executable} {name}.py"\nslots = 1\n')
        self.client.submit(file)
        self.until(lambda: self.client.app(name).running == 1)

    def until(self, look: Callable[[], bool], limit: float = 60.0) -> float:
        """Wait until something is so; return the seconds."""
        began = time.monotonic()
        while not look():
            if time.monotonic() > began + limit:
                return float("nan")
            time.sleep(0.02)
        return time.monotonic() - began

    def calls(self, seconds: float) -> str:
        """Make the good user's calls for so long; return their figures."""
        return figures(self.times(seconds))

    def times(self, seconds: float) -> list[float]:
        """Make the good user's calls for so long; return the milliseconds of each, those that fail as infinite."""
        times, end = list[float](), time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                self.client.app("good")
                times.append(1000.0 * (time.monotonic() - began))
            except EunomiaError:
                times.append(np.inf)
            time.sleep(max(0.0, began + 0.05 - time.monotonic()))
        return times


def p99(times: list[float]) -> float:
    return float(np.percentile(times, 99))


def figures(times: list[float]) -> str:
    failed = sum(np.isinf(times))
    return f"{len(times)} calls, {failed} failed, median {np.median(times):.1f} ms, p99 {p99(times):.1f} ms"


def connections(place: Place) -> str:
    """Open thousands of connections that say nothing, and open again what is closed; between undisturbed times."""
    with_them, without = [], [place.times(place.seconds)]
    opened = 0
    for _ in range(ROUNDS):
        with subprocess.Popen(
            [sys.executable, "-c", KNOCK, *place.made.address.rsplit(":", 1), str(CONNECTIONS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as attacker:  # fmt: skip
            with_them.append(place.times(place.seconds))
            said, _ = attacker.communicate("")
            opened += int(said)
        time.sleep(3.0)  # the closed ones are noticed
        without.append(place.times(place.seconds))
    around = [(p99(before) + p99(after)) / 2.0 for before, after in itertools.pairwise(without)]
    listed = ", ".join(f"{p99(one) / beside:.2f}" for one, beside in zip(with_them, around, strict=True))
    together = f"{figures([*itertools.chain(*with_them)])}; without {figures([*itertools.chain(*without)])}"
    return f"{together}; {opened} opened; p99 beside the undisturbed of before and after: {listed} times"


def output(place: Place) -> str:
    """Print 1 GiB as fast as the disk takes it."""
    place.submit("printer", OUTPUT)
    measured = place.calls(place.seconds)
    log = newest_output(place.apps / "printer" / "1", STDOUT)
    state = log.stat()
    place.client.cancel("printer")
    return (
        f"{measured}; {state.st_size >> 20} MiB written, {(state.st_blocks * 512) >> 20} MiB taken of {LOG_MIB} allowed"
    )


def sparse(place: Place) -> str:
    """Make the log a sparse file of 100 GB."""
    place.submit("sparse", SPARSE)
    measured = place.calls(place.seconds)
    began = time.monotonic()
    taken = bytes_of(place.apps / "sparse")
    looked = time.monotonic() - began
    state = place.client.app("sparse").state
    place.client.cancel("sparse")
    return f"{measured}; app {state}, takes {taken >> 10} KiB, measured in {1000 * looked:.1f} ms"


def full_disk(place: Place) -> str:
    """Fill the disk and go on; another app ends, and the filler is cancelled."""
    if not place.made.state_dir.is_mount() and not place.made.state_dir.parent.is_mount():
        return "not done: no file system of its own"
    place.submit("filler", FULL)
    place.until(lambda: bool(place.client.health().warnings))
    measured = place.calls(place.seconds)
    (place.folder / "end").touch()
    ended_after = place.until(lambda: place.client.app("good").state == "finished")
    began = time.monotonic()
    place.client.cancel("filler")
    answered = time.monotonic() - began
    free = place.until(lambda: all(slot.state == "free" for slot in place.client.list(slots=True).slots))
    (place.apps / "filler" / "1" / "big").unlink()
    whole = place.until(lambda: not place.client.health().warnings)
    return (
        f"{measured}; the good app's end seen after {ended_after:.1f} s, cancel answered in {answered:.2f} s,"
        f" slots free {free:.1f} s later, reserve whole {whole:.1f} s after there was room"
    )


ATTACKS = {"connections": connections, "output": output, "sparse": sparse, "full-disk": full_disk}


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """Mount a file system of its own where this process may, else give a folder."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield place
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=False)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("attacks", nargs="*", help=", ".join(ATTACKS))
    options.add_argument("--seconds", type=float, default=30.0, help="of each attack")
    chosen = options.parse_args()
    if unknown := set(chosen.attacks) - set(ATTACKS):
        options.error(f"attacks must be of {', '.join(ATTACKS)}, but got {', '.join(sorted(unknown))}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    root = Path(__file__).parent.parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join(str(root / floor) for floor in FLOORS)
    with tempfile.TemporaryDirectory(prefix="eunomia-attacks-") as name, disk(Path(name)) as place:
        serving = Serving(
            slots=2,
            cpu_only=True,
            address="127.0.0.1:0",
            log_dir=Path(name) / "log",
            arbiter_options=("--reserve-mib", str(RESERVE_MIB), "--log-mib", str(LOG_MIB), "--app-gib", "1"),
            launcher_options=("--no-zygote",),
        )
        made = Supervisor(place / "state", serving)
        with made, Client(made.address, token_file=made.token_file) as client:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            work = Path(name) / "work"
            work.mkdir()
            here = Place(made, client, work, chosen.seconds)
            here.until(lambda: client.health().ready)
            here.submit("good", GOOD)
            print(f"undisturbed: {here.calls(chosen.seconds)}", flush=True)
            for attack in [name for name in ATTACKS if name in (chosen.attacks or ATTACKS)]:
                print(f"{attack}: {ATTACKS[attack](here)}", flush=True)


if __name__ == "__main__":
    main()
