"""A process that kills another one if no exception can end its plugin call: ``python -m ...guardian FILE PID ...``.

A plugin in a call of native code may hold the interpreter's lock forever, so nothing in its own process can end it.
The arguments are the descriptor of the page of calls, the process to watch, both limits, and the error texts.
"""

import os
import signal
import sys
import time

from eunomia_testbed.calls.clock import CPU, LateCall
from eunomia_testbed.calls.page import CallPage


def cpu_seconds(process: int) -> float | None:
    """Return the CPU seconds of a process; None: it has ended."""
    try:
        return time.clock_gettime((~process << 3) | 2)  # the clock that clock_getcpuclockid(3) names
    except OSError:
        return None


def main(file: str, process: str, cpu_limit: str, wall_limit: str, cpu_rule: str, wall_rule: str, rest: str) -> None:
    """Poll the page until the process ends; if a call takes too long, kill it and write the reason to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    page, watched, late = CallPage(int(file)), int(process), LateCall(float(cpu_limit), float(wall_limit))
    while os.getppid() == watched and (spent := cpu_seconds(watched)) is not None:
        exceeded = late.look(page.numbers[0], spent, time.monotonic())
        if exceeded is not None:
            plugin, what = page.call()
            rule, place = cpu_rule if exceeded == CPU else wall_rule, page.place()
            os.kill(watched, signal.SIGKILL)
            sys.stderr.write(f"error: {rule}, but got no answer from {plugin} ({what}) ({place}); {rest}\n")
            return
        time.sleep(late.tick)


if __name__ == "__main__":
    main(*sys.argv[1:])
