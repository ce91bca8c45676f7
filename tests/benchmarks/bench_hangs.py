"""What hangs: seconds until it is seen and until it runs again, what each screen said, whether there are stacks.

    python tests/benchmarks/bench_hangs.py [--only NAME] [--stops]

With the limits that users have: a step of a minute, 30 s of silence of an app master or of a launcher's loop, 20 s for
an answer of the zygote. ``--stops``: arbiter, launcher and app master are stopped for 60 s instead, one after another,
and it is printed what was ended.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))
from tests.appmaster.serving_lab import FLOORS, activity, eventually, live, supervisor, tiny_app, went_on  # noqa: E402

from eunomia_appmaster import Client  # noqa: E402
from eunomia_appmaster.node.process_logs import configure_logs  # noqa: E402
from eunomia_appmaster.node.supervisor import Supervisor  # noqa: E402

TESTS = ROOT / "tests" / "appmaster"
SLEEPS = """
import signal, sys, time
words = " ".join(sys.orig_argv)
if "eunomia_appmaster.launcher" in words or "eunomia_appmaster.master" in words:
    signal.signal(signal.SIGUSR2, lambda *_: time.sleep(10_000))
"""
"""Is imported by each Python: the main thread of launcher, zygote and app masters sleeps on a signal."""
PATIENCE = 240.0
STOPPED_SECONDS = 60.0
READY_SECONDS = 45.0
"""For a zygote to import torch, on a busy machine too."""


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--only", choices=sorted(CASES), help="one row")
    options.add_argument("--stops", action="store_true", help="stop arbiter, launcher and app master for 60 s")
    given = options.parse_args()
    configure_logs(level="error")
    if given.stops:
        _stops()
        return
    print(f"{'hung':34}{'seen, s':>10}{'again, s':>10}{'stacks':>8}  screens")
    for name in [given.only] if given.only else CASES:
        with tempfile.TemporaryDirectory() as folder, _serving(Path(folder)) as (made, client):
            seen, again, stacks, screens = CASES[name](Path(folder), made, client)
        print(f"{name:34}{seen:10.1f}{again:10.1f}{'yes' if stacks else 'NO':>8}  {screens[0]}")
        for line in screens[1:]:
            print(f"{'':64}{line}")


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[Supervisor, Client]]:
    (folder / "sitecustomize.py").write_text(SLEEPS)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *(str(ROOT / floor) for floor in FLOORS)])
    options = ("--stop-seconds", "2", "--control-groups", "none")
    arbiter = ("--not-durable", "--heartbeat-seconds", "0.3", "--metrics", "127.0.0.1:0")
    with (
        supervisor(folder, launcher_options=options, arbiter_options=arbiter) as made,
        Client(made.address, token_file=made.token_file) as client,
    ):
        yield made, client
        for app in client.list().apps:
            client.cancel(app.app)


Row = tuple[float, float, bool, Sequence[str]]


def _worker(more: str, slots: int = 1, *, torch: bool = False) -> Callable[[Path, Supervisor, Client], Row]:
    def run(folder: Path, made: Supervisor, client: Client) -> Row:
        if torch:
            shutil.copy(TESTS / "hanging_script.py", folder / "train.py")
            file = folder / "hang.toml"
            job = f'slots = {slots}\nmax_iterations = 60\ncheckpoint_every = "1s"\n'
            file.write_text(f'[app]\nname = "hang"\n[job]\ncommand = "{sys.executable} train.py {more}"\n{job}')
        else:
            file = tiny_app(folder, "hang", iterations=4000, seconds=0.01, more=more)
        client.submit(file)
        _await(lambda: went_on(made, "hang"))
        began = time.monotonic()
        _await(lambda: client.app("hang").standing.stalls == 1)
        seen = time.monotonic()
        _await(lambda: [line["event"] for line in activity(made, "hang")].count("start") == 2)
        again = time.monotonic()
        found = _texts(made.state_dir / "apps" / "hang", "*/stacks/*.txt")
        return seen - began, again - seen, "most recent call first" in found, _screens(made, "hang/1")

    return run


def _app_master(folder: Path, made: Supervisor, client: Client) -> Row:
    client.submit(tiny_app(folder, "hang", iterations=6000, seconds=0.05))
    _await(lambda: went_on(made, "hang"))
    ((_, pid),) = live(made, masters=True)
    began = time.monotonic()
    os.kill(pid, signal.SIGUSR2)
    _await(lambda: client.app("hang").app_master_stalls == 1)
    seen = time.monotonic()
    _await(lambda: client.app("hang").part == 2)
    again = time.monotonic()
    found = _texts(made.state_dir / "apps" / "hang", "appmaster/stacks/*.txt")
    return seen - began, again - seen, "most recent call first" in found, _screens(made, "hang")


def _launcher(folder: Path, made: Supervisor, client: Client) -> Row:
    client.submit(tiny_app(folder, "hang", iterations=6000, seconds=0.05))
    _await(lambda: went_on(made, "hang"))
    assert made.launcher is not None and made.launcher.pid is not None
    began = time.monotonic()
    os.kill(made.launcher.pid, signal.SIGUSR2)
    _await(lambda: made.launcher is not None and made.launcher.hangs)
    seen = time.monotonic()
    why = made.launcher.hangs[0]
    _await(lambda: "machine" in _health(made))  # the next launcher has registered
    again = time.monotonic()
    found = _texts(made.state_dir / "launcher" / "stacks", "launcher-*.txt")
    return (
        seen - began,
        again - seen,
        "most recent call first" in found,
        [f"serve's log: {why}", *_screens(made, "hang")],
    )


def _zygote(folder: Path, made: Supervisor, client: Client) -> Row:
    assert made.launcher is not None
    launcher = made.launcher.pid
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    _await(lambda: children.read_text().split())
    time.sleep(READY_SECONDS)  # nothing on a screen says that it is ready
    names = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in map(int, children.read_text().split())}
    (pid,) = (pid for pid, name in names.items() if "zygote of workers" in name)
    os.kill(pid, signal.SIGUSR2)
    began = time.monotonic()
    client.submit(tiny_app(folder, "hang", iterations=6000, seconds=0.05))
    _await(lambda: "zygote.hung" in _texts(folder / "log", "launcher.log"))
    seen = time.monotonic()
    _await(lambda: went_on(made, "hang"))
    found = _texts(made.state_dir / "launcher" / "stacks", "zygote-*.txt")
    lines = [line for line in _texts(folder / "log", "launcher.log").splitlines() if "zygote.hung" in line]
    return seen - began, time.monotonic() - seen, "most recent call first" in found, [f"launcher's log: {lines[0]}"]


CASES: dict[str, Callable[[Path, Supervisor, Client], Row]] = {
    "a worker": _worker(" --hang-at 100"),
    "sleep in a backward pass": _worker("--sleep-in-backward 20 --seconds 0.5", torch=True),
    "rank 1 stopped in an all-reduce": _worker("--stop-rank-1 20 --seconds 0.5", slots=2, torch=True),
    "an app master": _app_master,
    "a launcher's loop": _launcher,
    "a zygote": _zygote,
}


def _stops() -> None:
    for name in ("arbiter", "launcher", "app master"):
        with tempfile.TemporaryDirectory() as folder, _serving(Path(folder)) as (made, client):
            client.submit(tiny_app(Path(folder), "hang", iterations=60_000, seconds=0.05))
            _await(lambda made=made: went_on(made, "hang"))  # type: ignore[misc]
            before = _processes(made)
            os.kill(before[name], signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            try:
                os.kill(before[name], signal.SIGCONT)
            except ProcessLookupError:
                print(f"{name}: ended before its continuation")
            time.sleep(5.0)
            _await(lambda client=client: client.health().ready)  # type: ignore[misc]
            after, app = _processes(made), client.app("hang")
            ended = [each for each in before if before[each] != after.get(each)]
            print(
                f"{name} stopped for {STOPPED_SECONDS:.0f} s: ended {', '.join(ended) or 'nothing'}; the app is "
                f"{app.state}, stalls of its jobs {app.standing.stalls}, of its app master {app.app_master_stalls}"
            )


def _processes(made: Supervisor) -> dict[str, Any]:
    found: dict[str, Any] = {"worker": dict(live(made, masters=False)), "app master": dict(live(made, masters=True))}
    found["app master"] = next(iter(found["app master"].values()), None)
    for child in (made.arbiter, made.launcher):
        if child is not None:
            found[child.name] = child.pid
    return found


def _await(look: Callable[[], Any]) -> None:
    eventually(look, seconds=PATIENCE)


def _texts(folder: Path, pattern: str) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.glob(pattern))


def _screens(made: Supervisor, name: str) -> list[str]:
    """Return the lines about a hang of the commands that users give."""
    found = []
    for words in (["apps"], ["explain", name]):
        command = [str(Path(sys.executable).with_name("eunomia")), *words, "--state-dir", str(made.state_dir)]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines = [line.strip() for line in said.splitlines() if "stall" in line or "hung" in line]
        found.append(f"{words[0]}: {lines[0][:160] if lines else '-'}")
    return [*found, f"/health: {_health(made)[:160] or '-'}"]


def _health(made: Supervisor) -> str:
    """Return what ``/health`` has under ``stalled``; empty: nothing, or the arbiter is away."""
    try:
        address = (made.run_dir / "metrics").read_text().strip()
        with urllib.request.urlopen(f"http://{address.removeprefix('http://')}/health", timeout=5.0) as answer:
            stalled = json.loads(answer.read())["stalled"]
    except (OSError, ValueError):
        return ""
    return json.dumps(stalled) if stalled else ""


if __name__ == "__main__":
    main()
