"""A call of a plugin that takes too long ends its policy's runs by name, whatever the plugin does about it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.testbed.test_own_stdout import eunomia
from tests.testbed.test_running_many import CLUSTER, plan, workload

from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia_testbed.calls.clock import CPU, WALL, CallClock, LateCall
from eunomia_testbed.calls.limits import CallLimits, CallTooLongError
from eunomia_testbed.calls.notes import CallNotes
from eunomia_testbed.calls.page import SIZE, CallPage
from eunomia_testbed.calls.watch import CallWatch
from eunomia_testbed.running.many import run_plan
from eunomia_testbed.simulator import simulate_one

OFFENDERS = '''
import itertools, time
from eunomia import Metric, hookimpl

class Offender:
    """Never answers."""
    api = 1
    @hookimpl
    def eunomia_allocation(self, snapshot, menus, offer):
        self.go_on()

class Spinning(Offender):
    """Runs a loop of Python without end."""
    name = "spinning"
    def go_on(self):
        while True:
            pass

class Catching(Offender):
    """Catches every exception and goes on."""
    name = "catching"
    def go_on(self, depth=20):
        while True:
            try:
                if depth:
                    self.go_on(depth - 1)  # catches what comes while the inner one catches
                while True:
                    pass
            except BaseException:
                pass

class Native(Offender):
    """Never leaves a function in C that holds the interpreter's lock."""
    name = "native"
    def go_on(self):
        max(itertools.repeat(1))

class Sleeping(Offender):
    """Sleeps."""
    name = "sleeping"
    def go_on(self):
        time.sleep(1e6)
'''
RUN = ["simulate", "--workload", "gavel", "--set", "gavel.jobs=6", "--cluster", "1x8 V100", "--no-progress", "--json"]
MAPPED = [flag for name in ("id", "submit", "gpus", "duration") for flag in ("--set", f"trace.columns.{name}={name}")]
LIMITS = ["--call-cpu", "500ms"]


@pytest.fixture
def offenders(tmp_path: Path) -> list[str]:
    """The flags that make the offenders known."""
    (tmp_path / "offenders.py").write_text(OFFENDERS)
    return ["--plugin-path", str(tmp_path / "offenders.py")]


@pytest.mark.parametrize(
    ("policy", "limits", "said"),
    [
        ("spinning", LIMITS, "500ms of CPU time (--call-cpu), but got no answer from spinning (allocation at offend"),
        ("catching", LIMITS, "500ms of CPU time (--call-cpu), but got no answer from catching (allocation)"),
        ("native", LIMITS, "500ms of CPU time (--call-cpu), but got no answer from native (allocation)"),
        ("sleeping", ["--call-wall", "500ms"], "500ms (--call-wall), but got no answer from sleeping (allocation at"),
    ],
)
def test_a_call_that_does_not_return_ends_only_the_runs_of_its_policy(
    policy: str, limits: list[str], said: str, offenders: list[str], tmp_path: Path
) -> None:
    two = ["--policy", policy, "--policy", "fifo", "--seeds", "0-2", "--out", str(tmp_path / "run")]
    done = eunomia([*RUN, *offenders, *two, *limits], tmp_path)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert [(row["policy"], row["seed"]) for row in told["rows"]] == [("fifo", 0), ("fifo", 1), ("fifo", 2)]
    assert [(each["policy"], each["seed"]) for each in told["failed"]] == [(policy, 0), (policy, 1), (policy, 2)]
    assert all(said in each["error"] for each in told["failed"])
    assert all(f"({policy}, seed 0, round 1)" in each["error"] for each in told["failed"])
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"no answer from {policy}" in page
    assert f"{policy},0" in (tmp_path / "run" / "summary.csv").read_text()


@pytest.mark.parametrize(
    ("policy", "code", "said"),
    [
        ("spinning", 1, "--resume goes on"),
        ("catching", 1, "no exception ends the call, so this process is ended; without -j 1"),
        ("native", -signal.SIGKILL, "no exception ends the call, so this process is ended; without -j 1"),
    ],
)
def test_with_one_process_a_late_call_ends_the_run_or_the_process(
    policy: str, code: int, said: str, offenders: list[str], tmp_path: Path
) -> None:
    one = ["--policy", "fifo", "--policy", policy, "-j", "1", "--out", "run", "--no-report"]
    arguments = [each for each in RUN if each != "--json"] + offenders + one + LIMITS
    done = eunomia(arguments, tmp_path)
    assert done.returncode == code
    assert f"no answer from {policy} (allocation" in done.stderr
    assert said in done.stderr + done.stdout
    assert (tmp_path / "run" / ("summary.csv" if policy == "spinning" else ".cells/fifo-x1-seed0/done.json")).is_file()


def test_resamples_of_a_policy_that_failed_are_not_run(offenders: list[str], tmp_path: Path) -> None:
    rows = [f"j{row},{60 * row},1,100" for row in range(50)]
    (tmp_path / "own.csv").write_text("\n".join(["id,submit,gpus,duration", *rows]) + "\n")
    given = ["simulate", "own.csv", *MAPPED, "--cluster", "1x8 V100", "--no-progress", "--out", "run", "-j", "2"]
    given += ["--resample", "39", "--json"]
    done = eunomia([*given, *offenders, "--policy", "spinning", "--policy", "fifo", *LIMITS], tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("no answer from spinning") <= 2  # two began at once
    assert [each["policy"] for each in json.loads(done.stdout)["failed"]] == ["spinning"]


@pytest.mark.slow
def test_advice_leaves_out_the_policy_and_names_it(offenders: list[str], tmp_path: Path) -> None:
    rows = [f"j{row},{60 * row},1,100" for row in range(20)]
    (tmp_path / "own.csv").write_text("\n".join(["id,submit,gpus,duration", *rows]) + "\n")
    given = ["advise", "own.csv", *MAPPED, "--cluster", "1x8 V100", "--no-progress", "--out", "advice", "--json"]
    done = eunomia([*given, *offenders, "--policy", "catching", "--policy", "fifo", *LIMITS], tmp_path)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["compared"] == ["fifo"]
    (left,) = told["left_out"]
    assert left["policy"] == "catching"
    assert "no answer from catching (allocation)" in left["reason"]


@pytest.mark.parametrize("flag", ["--call-cpu", "--call-wall"])
@pytest.mark.parametrize("given", ["0s", "-5s", "60", "soon"])
def test_a_limit_must_be_a_duration(flag: str, given: str, tmp_path: Path) -> None:
    done = eunomia([*RUN[:-1], f"{flag}={given}", "--out", "run"], tmp_path)
    assert done.returncode == 2
    assert (
        f'{flag[2:]} must be a positive duration with a unit, such as "10m", but got "{given}" ({flag})' in done.stderr
    )
    assert not (tmp_path / "run").exists()


def test_the_limit_also_applies_to_metrics_of_plugins(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        "from eunomia import Metric, hookimpl\n"
        "def count(tables):\n    while True:\n        pass\n"
        "class Counting:\n"
        "    '''Counts for ever.'''\n"
        "    name, api = 'counting', 1\n"
        "    @hookimpl\n"
        "    def eunomia_metrics(self):\n"
        "        return [Metric(name='endless', table='jobs', unit='', meaning='never known', compute=count)]\n"
    )
    flags = ["--plugin-path", "counting.py", "--policy", "fifo", "--out", "run", *LIMITS]
    done = eunomia([*RUN, *flags], tmp_path)
    assert done.returncode == 1, done.stderr
    assert "no answer from counting (metric endless at counting.py:3)" in json.loads(done.stdout)["failed"][0]["error"]


def test_in_python_a_late_call_raises_the_error_and_the_timer_is_restored() -> None:
    class Spinning:
        """Runs a loop without end."""

        name, api = "spinning", 1

    from eunomia import hookimpl

    def eunomia_allocation(self: object, snapshot: object, menus: object, offer: object) -> None:
        while True:
            pass

    Spinning.eunomia_allocation = hookimpl(eunomia_allocation)  # type: ignore[attr-defined]
    profile = Profile.load("spinning", registry=default_registry().adding(Spinning))
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    watch = CallWatch(CallLimits(cpu_seconds=0.2), CallNotes("spinning, seed 7"))
    with pytest.raises(CallTooLongError, match=r"at most 200ms of CPU time .* \(spinning, seed 7, round 1\)"):
        simulate_one(workload(), CLUSTER, profile, watch=watch)
    assert signal.getsignal(signal.SIGALRM) is before
    left, interval = signal.getitimer(signal.ITIMER_REAL)  # the test runner may have one
    assert (left <= timer[0], bool(left), interval) == (True, bool(timer[0]), timer[1])


def test_limits_change_no_result_and_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    few = plan(limits=CallLimits(cpu_seconds=5.0, wall_seconds=5.0))
    one = run_plan(few, tmp_path / "one", processes=1, report=False)
    again = run_plan(plan(), tmp_path / "one", processes=1, report=False, resume=True)
    assert (one.done, again.done) == (4, 4)


def test_time_in_which_other_processes_run_does_not_count_towards_the_cpu_limit() -> None:
    clock = CallClock(10.0, 1000.0)
    looks = [(cpu, 20.0 * cpu) for cpu in range(13)]  # a twentieth of a CPU
    assert [clock.look(1, cpu, wall) for cpu, wall in looks] == [None] * 11 + [CPU, CPU]
    assert CallClock(10.0, 1000.0).look(0, 50.0, 50.0) is None


def test_time_in_which_the_process_was_stopped_does_not_count_towards_the_limit() -> None:
    clock = CallClock(10.0, 100.0)
    assert [clock.look(3, 0.0, wall) for wall in (0.0, 1.0, 1e6, 1e6 + 1.0)] == [None] * 4
    assert [clock.look(3, 0.0, 1e6 + 1.0 + second) for second in range(1, 99)][-3:] == [None, WALL, WALL]


def test_the_clock_starts_at_zero_for_each_call_with_a_grace_period() -> None:
    clock = CallClock(10.0, 1000.0)
    assert [clock.look(number, 9.0 * number, 9.0 * number) for number in range(1, 20)] == [None] * 19
    late = LateCall(10.0, 1000.0)
    found = [late.look(1, float(second), float(second)) for second in range(30)]
    assert found[:17] == [None] * 17
    assert found[-1] == CPU


def test_a_full_call_page_still_records_calls_but_without_names() -> None:
    page = CallPage()
    page.begin("fifo, seed 0")
    codes = [page.add(f"plugin {number}", "allocation") for number in range(SIZE)]
    page.numbers[0], page.numbers[1], page.numbers[2] = 1, codes[3], 9
    assert (page.call(), page.place()) == (("plugin 3", "allocation"), "fifo, seed 0, round 9")
    page.numbers[1] = codes[-1]
    assert page.call() == ("a plugin", "unknown")


def test_the_guard_process_ends_with_the_process_it_watches(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from eunomia_testbed.calls.guarding import guarded\n"
        "from eunomia_testbed.calls.limits import CallLimits\n"
        "with guarded(CallLimits(cpu_seconds=0.1, wall_seconds=0.1), Path('x')):\n"
        "    print(os.popen(f'ps -o pid= --ppid {os.getpid()}').read().split()[0]); sys.stdout.flush(); os._exit(0)\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    guardian = int(done.stdout)
    for _ in range(300):
        if not Path(f"/proc/{guardian}").exists():
            return
        time.sleep(0.1)
    pytest.fail("the guardian goes on without the process that it watched")
