"""A worker without torch that behaves as a script with the training helper does, or as one without (``--plain``).

It makes a step every few milliseconds, logs val/accuracy = 1 - (lr - 0.3)^2 - 1 / step every tenth step, keeps
checkpoints, obeys orders and pauses at its rung. With ``--every N`` it saves each N steps, too, and logs train/loss
at each step.
"""

import argparse
import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.node.pulse import PulseWriter
from eunomia_appmaster.node.stack_signal import write_stacks_on_signal
from eunomia_appmaster.node.stall_watch import Phase
from eunomia_appmaster.profiler.crc32c import crc32c, masked


def scalar(tag: str, step: int, value: float) -> bytes:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    point = field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value)
    whole = bytes([1 << 3 | 1]) + struct.pack("<d", time.time()) + bytes([2 << 3]) + varint(step)
    data = whole + field(5, field(1, point))
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


class Orders:
    """The worker's end of orders.sock."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        folder = os.open(os.environ["EUNOMIA_CONTAINER_DIR"], os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{folder}/orders.sock")
        self.socket.setblocking(False)
        self.say(hello={"pid": os.getpid(), "rank": int(os.environ["RANK"])})

    def say(self, **content: object) -> None:
        self.socket.sendall(json.dumps(content).encode() + b"\n")

    def poll(self) -> list[dict[str, object]]:
        try:
            return [json.loads(line) for line in self.socket.recv(65536).splitlines()]
        except BlockingIOError:
            return []


def hangs_in_here() -> None:
    while True:
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=0.005)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--uncounted", action="store_true", help="as where nothing that counts steps was prepared")
    parser.add_argument("--every", type=int, default=0, help="steps between two checkpoints; 0: none but at its ends")
    parser.add_argument("--hurries-after", help="a file; once it is there, steps take next to no time")
    parser.add_argument("--nan", action="store_true")
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--fail-once", action="store_true")
    parser.add_argument("--hang-at", type=int, default=-1, help="hang at this step, in the first incarnation")
    args = parser.parse_args()
    run, incarnation = Path(os.environ["EUNOMIA_RUN_DIR"]), int(os.environ["EUNOMIA_INCARNATION"])
    main_worker = os.environ["RANK"] == "0"
    goal = int(os.environ["EUNOMIA_MAX_ITERATIONS"])
    stop_at = int(os.environ.get("EUNOMIA_STOP_AT") or goal + 1)
    store = JobCheckpoints(run / "checkpoints")
    last = store.begin(int(os.environ["EUNOMIA_ATTEMPT"]), incarnation) if main_worker else store.latest()
    step = 0 if last is None else last.step
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    orders = None if args.plain else Orders()
    pulse = PulseWriter(None if args.plain else Path(os.environ["EUNOMIA_CONTAINER_DIR"]))
    if not args.plain:
        write_stacks_on_signal(os.environ["EUNOMIA_CONTAINER_DIR"])
    mark = f"a{os.environ['EUNOMIA_ATTEMPT']}.r{incarnation}"
    node = os.environ["EUNOMIA_NODE"]
    log = (run / "logs" / f"events.out.tfevents.{int(time.time())}.{node}.{os.getpid()}.0.{mark}").open("ab")

    def save() -> None:
        if main_worker:
            store.save(step, lambda path: path.write_bytes(b"weights"), incarnation=incarnation) and None
            if orders:
                orders.say(saved={"step": step})

    while step < goal:
        for order in orders.poll() if orders else ():
            if order["order"] == "suspend":
                stopping.append(1)
            elif order["order"] == "stop_at":
                stop_at = int(str(order.get("step") or goal + 1))
        if stopping or (step >= stop_at and not args.plain):
            save()
            if orders and main_worker:
                orders.say(suspended={"step": step})
            return 75
        hurries = args.hurries_after and os.path.exists(args.hurries_after)  # noqa: PTH110 - cheap, at each step
        time.sleep(0.001 if hurries else args.seconds)
        step += 1
        pulse.beat(Phase.STEPS)
        if step == args.hang_at and incarnation == 1:
            hangs_in_here()
        if step == args.fail_at and (not args.fail_once or incarnation == 1):
            print("giving up: the data set is gone", file=sys.stderr)
            return 3
        if main_worker and args.every:
            log.write(scalar("train/loss", step, 1 / step))
            log.flush()
            if step % args.every == 0:
                save()
        if main_worker and not args.silent and step % 10 == 0:
            log.write(scalar("eunomia/step_seconds", step, args.seconds))
            log.write(scalar("val/accuracy", step, float("nan") if args.nan else 1 - (args.lr - 0.3) ** 2 - 1 / step))
            log.flush()
        if orders and main_worker and step % 10 == 0:
            orders.say(progress={"step": 0 if args.uncounted else step, "seconds_per_step": args.seconds})
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
