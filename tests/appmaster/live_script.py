"""A worker without torch that speaks the words of live changes, as a script with the training helper does.

Rank 0 says how far it is. A newcomer says that it is ready, and joins when it is ordered to; with ``--unfit``
it cannot. A worker with a file ``leaves.CONTAINER`` leaves alone; one with ``hangs.CONTAINER`` does nothing any more,
and its peers wait for it. While there is a file ``holds``, all hear nothing. Each worker writes what it does into
``trace.CONTAINER`` of the run folder.
"""

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from eunomia_appmaster.node.pulse import PulseWriter
from eunomia_appmaster.node.stall_watch import Phase

NAME = os.environ["EUNOMIA_CONTAINER_ID"].partition("@")[0]
TRACE = Path(os.environ["EUNOMIA_RUN_DIR"]) / f"trace.{NAME}"


class Orders:
    """The worker's end of orders.sock."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._socket: socket.socket | None = None
        self.say(hello={"pid": os.getpid(), "rank": int(os.environ["RANK"])})

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        folder = os.open(os.environ["EUNOMIA_CONTAINER_DIR"], os.O_RDONLY)
        try:
            made.connect(f"/proc/self/fd/{folder}/orders.sock")
        finally:
            os.close(folder)
        made.setblocking(False)
        for kind, content in self._said.items():
            made.sendall(json.dumps({kind: content}).encode() + b"\n")
        return made

    def say(self, **words: Any) -> None:
        self._said |= words
        try:
            if self._socket is None:
                self._socket = self._connect()
            else:
                self._socket.sendall(json.dumps(words).encode() + b"\n")
        except OSError:
            self._socket = None

    def poll(self) -> list[dict[str, Any]]:
        try:
            if self._socket is None:
                self._socket = self._connect()
            data = self._socket.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._socket = None
        return [json.loads(line) for line in data.splitlines()]


def trace(*words: object) -> None:
    with TRACE.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def say_resized(orders: Orders, generation: int, members: list[str], step: int) -> None:
    seconds = {"join_seconds": 0.02, "pause_seconds": 0.01, "at": time.time()}
    orders.say(resized={"generation": generation, "size": len(members), "step": step, **seconds})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--unfit", action="store_true")
    parser.add_argument("--slow", action="store_true", help="a newcomer is ready once there is a file named quick")
    parser.add_argument("--late", action="store_true", help="it takes 5 s to start")
    parser.add_argument("--apart", action="store_true", help="the first gang breaks before its first step")
    parser.add_argument("--waits", action="store_true", help="the first step waits for a file named quick")
    parser.add_argument("--deaf", action="store_true", help="no worker hears of a change")
    parser.add_argument("--fixed", action="store_true", help="its group cannot change")
    options = parser.parse_args()
    host, _, port = os.environ["EUNOMIA_STORE"].rpartition(":")
    generation, members = int(os.environ["EUNOMIA_GENERATION"]), json.loads(os.environ["EUNOMIA_MEMBERS"])
    trace("began", generation, *members)
    time.sleep(5.0 if options.late else 0.0)
    orders, step, joined = Orders(), 0, generation == 0
    if generation == 0:
        while True:  # the store listens soon
            try:
                socket.create_connection((host, int(port)), 1.0).close()
                break
            except OSError:
                time.sleep(0.05)
    elif options.unfit:
        orders.say(unfit={"generation": generation, "why": "its model has other shapes"})
        return 1
    else:
        while options.slow and not Path("quick").exists():
            time.sleep(0.02)
        orders.say(ready={"generation": generation})
    while options.apart and ".1.1." in NAME:
        orders.say(broken={"generation": 0})
        if NAME.endswith(".0"):
            orders.say(leaving={"generation": 0, "step": 0})
            return 75
        if {"suspend"} & {order.get("order") for order in orders.poll()}:
            return 75
        time.sleep(0.05)
    if options.fixed:
        orders.say(unfit={"generation": 0, "why": "the script has a process group of its own"})
    while options.waits and not Path("quick").exists() and NAME in members:
        time.sleep(0.02)
        for order in orders.poll():
            change = order.get("change", {"generation": 0})
            if change["generation"] > generation:
                generation, members = change["generation"], change["members"]
                trace("before its first step", generation, *members)
    if NAME in members and members[0] == NAME and joined:
        say_resized(orders, generation, members, 0)
    pulse = PulseWriter(Path(os.environ["EUNOMIA_CONTAINER_DIR"]))
    while step < options.steps:
        time.sleep(0.01)
        if NAME not in members and joined:
            orders.say(leaving={"generation": generation, "step": step})
            return 75
        if Path(f"leaves.{NAME}").exists():
            orders.say(leaving={"generation": generation, "step": step})
            return 75
        hangs = any(Path(f"hangs.{each}").exists() for each in members if each != NAME)
        if not hangs:
            pulse.beat(Phase.STEPS)
        elif pulse.phase is not Phase.PEERS:
            pulse.beat(Phase.PEERS)
        while Path(f"hangs.{NAME}").exists():
            time.sleep(0.05)
        while Path("holds").exists():
            time.sleep(0.02)
        for order in orders.poll():
            if order.get("order") == "suspend":
                trace("suspended", step)
                if joined:
                    orders.say(suspended={"step": step})
                return 75
            change = None if options.deaf else order.get("change")
            if change is None or change["generation"] <= (generation if joined else 0):
                continue
            generation, members = change["generation"], change["members"]
            if NAME not in members:
                trace("leaving", generation)
                orders.say(leaving={"generation": generation, "step": step})
                return 75
            joined = True
            trace("entered", generation, *members)
            if members[0] == NAME:
                say_resized(orders, generation, members, step)
        if joined and not hangs:
            step += 1
            if members[0] == NAME:
                orders.say(progress={"step": step, "seconds_per_step": 0.01})
    return 0


if __name__ == "__main__":
    sys.exit(main())
