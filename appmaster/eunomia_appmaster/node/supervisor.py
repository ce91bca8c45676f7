"""Supervises an arbiter and a launcher on this machine: starts them, and restarts them when they die.

A restart needs no further data: the arbiter recovers from its journal, the launcher from its containers' files, and
they find each other through the state folder.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia.journal.journal import Journal
from eunomia.model.shapes import value
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.beats import DEFAULT_SILENCE_SECONDS, HANGS, LAST_HANG, STACKS, VARIABLE, Beats, end_hung
from eunomia_appmaster.node.exit_codes import BAD_INPUT, NOT_STARTED, REMOVED
from eunomia_appmaster.node.gpu_locks import GpuLocks, Holder
from eunomia_appmaster.node.kept_files import read_kept
from eunomia_appmaster.node.mark_file import MARK
from eunomia_appmaster.node.orphaned_launcher import end_orphaned
from eunomia_appmaster.node.parent_death import with_death_signal
from eunomia_appmaster.node.patience import STILL_SECONDS, Patience, StopAskedError, Wait
from eunomia_appmaster.node.stack_signal import STACKS_FOLDER
from eunomia_appmaster.node.writable import check_writable
from eunomia_appmaster.service.marks import Marks
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, run_dir

if TYPE_CHECKING:
    from eunomia_appmaster.service.certificates import Certificates

log = structlog.get_logger()

HEALTHY_SECONDS = 30.0
"""Seconds; a process that ran for at least this long is restarted at once."""
MOST_PAUSE_SECONDS = 5.0
MOST_FAILURES = 8
"""Consecutive short runs after which the supervisor stops restarting a process."""
STOP_SECONDS = 20.0
END_SECONDS = 60.0
"""Seconds in which a launcher must end the containers of an earlier one, not counting waits for a core."""
ACCEPT_LOSS: Final = "--accept-loss"
"""Option for the arbiter's first process only, so that a restarted arbiter asks again before it accepts a loss."""


class Child:
    """A supervised process.

    Args:
        name: arbiter or launcher.
        command: argv.
        log_file: file for its stderr and stdout; None: this process's.
        env: its environment.
        orphaned: the signal that it gets if the supervisor itself is killed.
        stacks: folder for its stacks if its loop hangs; None: it sends no heartbeats and is not watched.
        most_silence: seconds without a heartbeat after which its loop counts as hung.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_file: Path | None,
        env: Mapping[str, str],
        orphaned: signal.Signals,
        stacks: Path | None = None,
        most_silence: float = DEFAULT_SILENCE_SECONDS,
    ) -> None:
        self.name = name
        self.hangs: list[str] = []
        """Why processes of this child were killed because their loop hung, oldest first."""
        self._stacks = stacks
        self._most_silence = most_silence
        self.command = list(command)
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.failure: str | None = None
        """Why the supervisor stopped restarting the process; None: it still restarts it."""
        self.refused = False
        """Whether the process rejected its input (exit code 2), so that the supervisor does not restart it."""
        self._log_file = log_file
        self._env = dict(env)
        self._orphaned = orphaned
        self.pass_fds: Sequence[int] = ()
        """Open files that every process of this child inherits."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"keep-{name}", daemon=True)

    def start(self) -> None:
        """Start the process, and restart it from now on when it ends."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Return the pid of the present process."""
        process = self.process
        return process.pid if process is not None and process.poll() is None else None

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the process with SIGTERM, and with SIGKILL after ``seconds``, in which waits for a core do not count."""
        self._stopping.set()
        patience = Patience()
        while self._thread.is_alive() and (left := seconds - patience.unhindered_seconds) > 0.0:
            self._signal(signal.SIGTERM)
            self._thread.join(min(1.0, left))
            patience.look([] if self.pid is None else [self.pid])
        if self._thread.is_alive():
            log.warning("process.killed", name=self.name)
            self._signal(signal.SIGKILL)
            self._thread.join(5.0)

    def run_once_more(self, *more: str, seconds: float) -> None:
        """Run the stopped process's command once more with additional options, and kill it after ``seconds``."""
        with contextlib.suppress(OSError), self._output() as out:
            process = subprocess.Popen(
                [*self.command, *more],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out if out is not None else sys.stderr.fileno(),
                stderr=out,
                start_new_session=True,
            )
            patience = Patience()
            while process.poll() is None and patience.unhindered_seconds < seconds:
                time.sleep(0.05)
                patience.look([process.pid])
            if process.poll() is None:
                log.warning("process.killed", name=self.name, options=list(more))
                process.kill()
            process.wait()

    def hang_up(self) -> None:
        """Send SIGHUP, so that the process reads its files again."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        process = self.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _keep(self) -> None:
        """Restart the process in a loop.

        This thread must outlive each process, since the death signal depends on the thread.
        """
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                code = self._run_once()
            except OSError as error:  # no process or file is available: try again later
                code = NOT_STARTED
                with _unheard():
                    log.error("process.not_started", name=self.name, why=str(error))
            if self._stopping.is_set():
                return
            if code == REMOVED:
                with _unheard():
                    log.warning("process.removed", name=self.name, what="its machine has no slots until the next serve")
                return
            lasted = time.monotonic() - began
            failures = 0 if lasted > HEALTHY_SECONDS else failures + 1
            if code == BAD_INPUT or failures > MOST_FAILURES:
                self.refused = code == BAD_INPUT
                self.failure = f"{self.name} ended with {_words(code)}"
                with _unheard():
                    log.error("process.given_up", name=self.name, code=code)
                return
            self.restarts += 1
            with _unheard():
                log.warning("process.restarted", name=self.name, code=code, lasted_seconds=round(lasted, 1))
            self._stopping.wait(min(MOST_PAUSE_SECONDS, 0.1 * 2**failures) if failures else 0.0)

    @contextlib.contextmanager
    def _output(self) -> Iterator[IO[bytes] | None]:
        """Open the process's log; None: it writes to this process's output."""
        if self._log_file is None:
            yield None
            return
        self._log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._log_file.open("ab") as out:
            yield out

    def _run_once(self) -> int:
        """Run the process to its end, and kill it if its loop hangs; returns its exit code."""
        if self._stacks is None:
            return self._start({}, ()).wait()
        beats = Beats(self._most_silence)
        try:
            hangs = {HANGS: str(len(self.hangs)), LAST_HANG: self.hangs[-1]} if self.hangs else {}
            process = self._start({VARIABLE: str(beats.write), STACKS: str(self._stacks), **hangs}, (beats.write,))
            silent = beats.wait(process.pid)
            if silent is not None:
                what = end_hung(process.pid, self.name, silent, self._stacks)
                self.hangs.append(what)
                with _unheard():
                    log.error("process.hung", name=self.name, why=what)
                process.kill()
            return process.wait()
        finally:
            beats.close()

    def _start(self, env: Mapping[str, str], fds: Sequence[int]) -> "subprocess.Popen[bytes]":
        with self._output() as out:
            self.process = subprocess.Popen(
                with_death_signal(self.command, self._orphaned),
                env={**self._env, **env},
                stdin=subprocess.DEVNULL,
                stdout=out if out is not None else sys.stderr.fileno(),
                stderr=out,
                start_new_session=True,  # only the supervisor handles Ctrl-C of the terminal
                pass_fds=(*self.pass_fds, *fds),
            )
        return self.process


@value
class Serving:
    """The settings of a supervisor's arbiter and launcher."""

    policy: str = "default"
    """The policy: a preset, a profile file or a plugin."""
    settings: Sequence[str] = ()
    """Changed settings of the profile, as ``KEY=VALUE``."""
    slots: int | None = None
    """Number of CPU slots if no GPU is found."""
    slot_types: str = ""
    """Paced CPU slots, as ``2x fast:1.0, 2x slow:0.5``; empty: none."""
    cpu_only: bool = False
    """Whether to use CPU slots even if there are GPUs."""
    address: str = DEFAULT_ADDRESS
    """Address to listen on; port 0: any free one."""
    seed: int = 0
    """Seed of all randomness."""
    log_dir: Path | None = None
    """Folder of arbiter.log and launcher.log; None: both write to stderr."""
    arbiter_options: Sequence[str] = ()
    """Additional options of ``eunomia_appmaster.service``."""
    launcher_silence: float = DEFAULT_SILENCE_SECONDS
    """Seconds without a heartbeat of the launcher's event loop after which the launcher is killed and restarted."""
    launcher_options: Sequence[str] = ()
    """Additional options of ``eunomia_appmaster.launcher``."""
    certificates: "Certificates | None" = None
    """The certificates for TLS; required for an address beyond loopback."""
    launcher: bool = True
    """Whether this machine runs a launcher; without one, all nodes are other machines that join."""


DEFAULT: Final = Serving()


class Supervisor:
    """An arbiter and a launcher on this machine; a context manager.

    Args:
        state_dir: folder of the journal, the apps and the launcher's files.
        serving: the settings.
        stop_asked: returns whether to abort the start; called while it waits.
    """

    def __init__(
        self, state_dir: Path, serving: Serving = DEFAULT, *, stop_asked: Callable[[], bool] = lambda: False
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.run_dir = run_dir(state_dir)
        self._serving = serving
        self._address = serving.address
        self._stop_asked = stop_asked
        self.arbiter: Child | None = None
        self.launcher: Child | None = None
        self.locks = GpuLocks()
        self.shares_cpus_with: Sequence[Holder] = ()
        """Other arbiters that use some of this machine's CPUs, if its slots are CPU slots."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt:
            self.end_now()
        else:
            self.stop()

    @property
    def address(self) -> str:
        """The arbiter's host:port.

        Raises:
            OSError: it has not published its address yet.
        """
        return (self.run_dir / "address").read_text().partition("\n")[0].strip()

    @property
    def token_file(self) -> Path:
        """The file with the operator's token."""
        return self.run_dir / "token"

    def start(self, *, still_seconds: float = STILL_SECONDS) -> None:
        """Start arbiter and launcher, and wait until the machine is registered or the arbiter asks to accept a loss.

        There is no limit on the whole time, for slow machines; the log names what is waited for.

        Args:
            still_seconds: limit in seconds on the time in which neither process uses a core, waits for one or for the
                disk, or is stopped (``Patience``).

        Raises:
            InputError: another arbiter has locked the journal or a GPU; or the journal is empty although it had steps.
            StopAskedError: ``stop_asked`` returned True.
            EunomiaError: arbiter or launcher ended too often, or both were idle too long.
        """
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # otherwise gRPC logs every start of a process
        check_writable(self.state_dir)
        with Journal.open(self.state_dir / "journal.sqlite") as journal:
            Marks(journal, self.state_dir / MARK).check_begun(accepted=ACCEPT_LOSS in self._serving.arbiter_options)
        self._address = self._left_address() or self._address
        (self.run_dir / "address").unlink(missing_ok=True)
        try:
            if self._serving.launcher:
                end_orphaned(self.state_dir / "launcher")
                self._take_locks()
            self.arbiter = self._make("arbiter", self._arbiter_command(), signal.SIGTERM)
            self.arbiter.start()
            self._await(lambda _: (self.run_dir / "address").exists(), "the arbiter listens", still_seconds)
            # a port that was free once is kept over restarts
            self._address = f"{self._address.rpartition(':')[0]}:{self.address.rpartition(':')[2]}"
            self.arbiter.command = [option for option in self._arbiter_command() if option != ACCEPT_LOSS]
            if self._serving.launcher:
                self.launcher = self._make("launcher", self._launcher_command(), signal.SIGHUP)
                self.launcher.pass_fds = self.locks.fds
                self.launcher.start()
            self._await(self._ready, "the arbiter has its machine", still_seconds)
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def stop(self) -> None:
        """End the arbiter, then the launcher, which first orders all containers to suspend."""
        # The arbiter first: it must not take the end of the app masters for failures.
        for child in (self.arbiter, self.launcher):
            if child is not None:
                child.stop()
        if self.launcher is not None and left_running(self.state_dir):  # the launcher was killed before ending all
            log.warning("containers.left", state_dir=str(self.state_dir))
            self.launcher.run_once_more("--end", seconds=END_SECONDS)
        (self.run_dir / "address").unlink(missing_ok=True)
        self.locks.close()

    def end_now(self) -> None:
        """End arbiter and launcher at once, then the launcher's containers, without a grace period."""
        for child in (self.arbiter, self.launcher):
            if child is not None:
                child.stop(0.0)
        if self.launcher is not None and left_running(self.state_dir):
            self.launcher.run_once_more("--end", "--stop-seconds", "0", seconds=END_SECONDS)
        (self.run_dir / "address").unlink(missing_ok=True)
        self.locks.close()

    def reload(self) -> None:
        """Make the arbiter read its certificates again."""
        if self.arbiter is not None:
            self.arbiter.hang_up()

    def _take_locks(self) -> None:
        """Lock this machine's GPUs for as long as this process or its launcher lives."""
        serving = self._serving
        machine = local_machine.detect(serving.slots, use_gpus=not serving.cpu_only, slot_types=serving.slot_types)
        uuids = [slot.uuid for slot in machine.slots if slot.uuid]
        if uuids:
            self.locks.take(uuids, self.state_dir)
            return
        self.shares_cpus_with = self.locks.note_cpus(self.state_dir)
        for other in self.shares_cpus_with:
            log.info("cpus.shared", by=other.words())

    def _left_address(self) -> str | None:
        """Return the address of an arbiter that was killed with its supervisor, since app masters still call there."""
        host, _, port = self._address.rpartition(":")
        try:
            left = self.address
            if port != "0" or (self._serving.certificates is None and left.rpartition(":")[0] != host):
                return None
            with socket.create_server((host.strip("[]"), int(left.rpartition(":")[2]))):
                return f"{host}:{left.rpartition(':')[2]}"
        except (OSError, ValueError):
            return None

    def _ready(self, timeout_seconds: float) -> bool:
        from eunomia_appmaster.client import Client

        try:
            with Client(self.address, token_file=self.token_file, timeout_seconds=timeout_seconds) as client:
                health = client.health()
                return health.ready or bool(health.question) or not self._serving.launcher
        except (EunomiaError, OSError):
            return False

    def _await(self, done: Callable[[float], bool], what: str, still_seconds: float) -> None:
        """Wait until a condition holds; see ``Wait``."""
        wait = Wait(what, still_seconds, place=str(self.state_dir))
        while not done(wait.call_seconds):
            self.check()
            if self._stop_asked():
                raise StopAskedError("the service was asked to stop", place=str(self.state_dir))
            wait.look([child for child in (self.arbiter, self.launcher) if child is not None])
            time.sleep(0.03)

    def check(self) -> None:
        """Check that the supervisor still restarts both processes when they end.

        Raises:
            EunomiaError: it no longer restarts one of them; an ``InputError`` if that process rejected its input.
        """
        for child in (self.arbiter, self.launcher):
            if child is not None and child.failure is not None:
                kind = InputError if child.refused else EunomiaError
                value = f"{child.failure}{self._last_words(child.name)}"
                raise kind("arbiter and launcher must run", value=value)

    def _last_words(self, name: str) -> str:
        """Return a colon and the last line of the process's log; empty: it has no log file."""
        if self._serving.log_dir is None:
            return ""
        with contextlib.suppress(OSError):
            lines = (self._serving.log_dir / f"{name}.log").read_text(errors="replace").splitlines()
            return f": {lines[-1][:500]}" if lines else ""
        return ""

    def _make(self, name: str, command: Sequence[str], orphaned: signal.Signals) -> Child:
        log_file = None if self._serving.log_dir is None else self._serving.log_dir / f"{name}.log"
        env = {key: setting for key, setting in os.environ.items() if not key.startswith("EUNOMIA_STATE")}
        return Child(
            name,
            command,
            log_file=log_file,
            env=env,
            orphaned=orphaned,
            stacks=self.state_dir / "launcher" / STACKS_FOLDER if name == "launcher" else None,
            most_silence=self._serving.launcher_silence,
        )

    def _arbiter_command(self) -> list[str]:
        command = [sys.executable, "-m", "eunomia_appmaster.service", "--state-dir", str(self.state_dir)]
        command += ["--run-dir", str(self.run_dir), "--address", self._address, "--policy", self._serving.policy]
        command += ["--seed", str(self._serving.seed)]
        for setting in self._serving.settings:
            command += ["--set", setting]
        files = self._serving.certificates
        if files is not None:
            command += ["--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca)]
        return [*command, *self._serving.arbiter_options]

    def _launcher_command(self) -> list[str]:
        command = [sys.executable, "-m", "eunomia_appmaster.launcher", "--state", str(self.state_dir)]
        command += ["--arbiter", self.address, "--token-file", str(self.run_dir / "launcher.token")]
        command += ["--slots", str(self._serving.slots)] if self._serving.slots is not None else []
        command += ["--slot-types", self._serving.slot_types] if self._serving.slot_types else []
        command += ["--cpu-only"] if self._serving.cpu_only else []
        command += ["--gpu-locks", ",".join(map(str, self.locks.fds))] if self.locks.fds else []
        return [*command, *self._serving.launcher_options]


def left_running(state_dir: Path) -> bool:
    """Return whether a state folder has containers whose end no launcher has recorded."""
    from eunomia_appmaster.launcher.container import RECORD

    try:
        return any(_may_run(link / RECORD) for link in (state_dir / "launcher" / "live").iterdir())
    except OSError:  # no launcher has run; or a file is not readable, which the next launcher reports
        return False


def _may_run(record: Path) -> bool:
    try:
        known = read_kept(record, remedy="the next launcher sees that nothing is left").content
    except InputError:
        return True
    return known is not None and known.get("state") != "COMPLETED"


def _unheard() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that ignores errors of a closed output, which must not end the supervision."""
    return contextlib.suppress(OSError, ValueError)


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
