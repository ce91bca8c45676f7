"""Which ends of an app master count against its app, and what follows from them."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.appmaster.serving_lab import FLOORS, ROOT

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.launcher.own_ends import OwnEnds, is_own, last_words
from eunomia_appmaster.node.machine_faults import MACHINE_FAULT, is_machine_fault
from eunomia_appmaster.node.own_ends_limit import OwnEndsLimit
from eunomia_appmaster.protocol import launcher_pb2 as pb

LIMIT = OwnEndsLimit(ends=4, seconds=600.0)
OWN = pb.Exit(code=3)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 127])
def test_an_exit_code_of_the_app_master_itself_counts_as_its_failure(code: int) -> None:
    assert is_own(pb.Exit(code=code))


@pytest.mark.parametrize(
    "exit_",
    [
        pb.Exit(),  # its shepherd was lost, or its start failed
        pb.Exit(code=0),
        pb.Exit(code=MACHINE_FAULT),
        pb.Exit(code=75),  # it never began
        pb.Exit(code=143),
        *(pb.Exit(signal=number) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)),
    ],
    ids=str,
)
def test_ends_caused_by_the_machine_or_an_outside_signal_do_not_count_as_failures(exit_: pb.Exit) -> None:
    assert not is_own(exit_)
    ends = OwnEnds()
    for now in range(100):
        ends.judge(exit_, LIMIT, lasted=0.1, now=float(now))
    assert (ends.suspended, ends.times) == (False, [])


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_a_signal_raised_by_a_fault_of_the_app_master_counts_as_its_failure(number: signal.Signals) -> None:
    assert is_own(pb.Exit(signal=number))


def test_the_fifth_failure_in_ten_minutes_suspends_the_app() -> None:
    ends = OwnEnds()
    said = []
    for now in (0.0, 100.0, 200.0, 300.0, 599.0):
        ends.judge(OWN, LIMIT, lasted=1.0, now=now)
        said.append(ends.suspended)
    assert said == [False, False, False, False, True]
    assert ends.words(LIMIT, OWN, "why") == "ended by itself 5 times in 10 min, last with exit code 3: why"


def test_a_failure_every_three_minutes_never_suspends_the_app() -> None:
    ends = OwnEnds()
    for at in range(100):
        ends.judge(OWN, LIMIT, lasted=170.0, now=180.0 * at)
        assert not ends.suspended


def test_failures_before_the_clock_was_set_back_do_not_count() -> None:
    ends = OwnEnds((5000.0, 5001.0, 5002.0, 5003.0))
    ends.judge(OWN, LIMIT, lasted=1.0, now=100.0)
    assert (ends.suspended, ends.times) == (False, [100.0])


def test_backoffs_of_a_suspended_app_double_up_to_an_hour_and_reset_after_a_long_attempt() -> None:
    ends, now, pauses = OwnEnds((1.0, 2.0, 3.0, 4.0)), 5.0, []
    for _ in range(9):
        ends.judge(OWN, LIMIT, lasted=1.0, now=now)
        assert ends.suspended
        pauses.append(ends.pause_seconds)
        now += ends.pause_seconds
        ends = OwnEnds.of_record(ends.record())  # the launcher is restarted meanwhile
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0, 3600.0]
    assert ends.words(LIMIT, OWN, "") == "ended by itself once more after 8 suspensions, with exit code 3"
    ends.judge(pb.Exit(signal=signal.SIGKILL), LIMIT, lasted=1.0, now=now)
    assert not ends.suspended
    ends.judge(OWN, LIMIT, lasted=600.0, now=now + 600.0)
    assert (ends.suspended, ends.suspensions) == (False, 0)


def test_serve_passes_the_limit_to_the_arbiter_and_refuses_an_invalid_duration() -> None:
    options = ServeFlags(own_ends=2, own_ends_within="90s").arbiter_options
    at = options.index("--own-ends")
    assert options[at : at + 4] == ("--own-ends", "2", "--own-ends-seconds", "90.0")
    for text in ("5x", "0s", "-1m", ""):
        with pytest.raises(InputError, match="--own-ends-within must be a positive duration"):
            _ = ServeFlags(own_ends_within=text).arbiter_options


def test_faults_of_the_machine_are_distinguished_from_those_of_the_program() -> None:
    def chained(cause: BaseException) -> EunomiaError:
        error = EunomiaError("a thread of an app master must not fail")
        error.__cause__ = cause
        return error

    for number in (errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EDQUOT, errno.EROFS, errno.EIO):
        assert is_machine_fault(OSError(number, "no"))
        assert is_machine_fault(chained(OSError(number, "no")))
    assert is_machine_fault(MemoryError())
    assert is_machine_fault(RuntimeError("can't start new thread"))
    for error in (FileNotFoundError(errno.ENOENT, "no"), PermissionError(errno.EACCES, "no"), ValueError("no")):
        assert not is_machine_fault(error)
        assert not is_machine_fault(chained(error))


def test_an_app_master_without_descriptors_exits_with_the_code_of_a_machine_fault(tmp_path: Path) -> None:
    env = {"PYTHONPATH": ":".join(str(ROOT / floor) for floor in FLOORS), "PATH": "/usr/bin"}
    script = (
        "import resource, sys\n"
        "from eunomia_appmaster.master import __main__ as master\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "sys.exit(master.main())\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", script, "--app-dir", str(tmp_path)], env=env, capture_output=True, check=False
    )
    assert made.returncode == MACHINE_FAULT, made.stderr


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            '{"event": "master.failed", "why": "app.toml must be readable", "level": "error"}\n\n',
            "app.toml must be readable",
        ),
        ('{"event": "x", "exception": [{"exc_type": "KeyError", "exc_value": "7"}]}\n', "KeyError: 7"),
        ("Segmentation fault\n", "Segmentation fault"),
        ("[1, 2]\n", "[1, 2]"),
        ("word " * 80, "word " * 58 + "word ..."),
        ("", ""),
    ],
)
def test_the_reason_of_a_suspension_is_the_last_error_of_the_app_master(tmp_path: Path, lines: str, words: str) -> None:
    log = tmp_path / "appmaster.err.log"
    assert last_words(log) == ""
    log.write_text("x" * 100_000 + "\n" + lines)
    assert last_words(log) == (words or "x" * 296 + " ...")


def test_a_hang_of_an_app_master_counts_as_its_failure_but_a_stop_does_not() -> None:
    ends, limit = OwnEnds(), OwnEndsLimit(ends=0, seconds=600.0)
    killed, failed = pb.Exit(signal=9), pb.Exit(code=1)
    for stall in (pb.STALL_STOPPED, pb.STALL_STORAGE):
        ends.judge(failed, limit, lasted=1.0, now=100.0, stall=stall)
        assert not ends.suspended
    ends.judge(killed, limit, lasted=1.0, now=101.0, stall=pb.STALL_HUNG)
    assert ends.suspended
