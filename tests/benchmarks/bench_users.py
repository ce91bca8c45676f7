"""How long the heartbeats of good users take while another user attacks, beside the same without an attack.

    python tests/benchmarks/bench_users.py
    python tests/benchmarks/bench_users.py --masters 20 --seconds 20

The arbiter of ``bench_heartbeats.py`` serves app masters of twenty users. The attacker is a process of its own with a
user's valid token on this machine, so what it takes of the processors counts too. As fast as it is answered, in turn,
it submits apps of a weight of a million and small ones, cancels and explains other users' apps, lists all, calls
methods of the operator, and sends bids for another app, also with forged tokens. Goal: the p99 delay under attack is at
most twice the undisturbed one. Prints what each attack was answered; asserts no timing.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from bench_heartbeats import HEADERS, Town

from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc

APP = '[app]\nname = "eve"\nweight = {weight}\n[job]\ncommand = "python train.py"\nslots = 1\n'


class Attacked(Town):
    """A town in which a user attacks while heartbeats are measured."""

    attacker: "subprocess.Popen[bytes] | None" = None

    async def _disturb(self, client: Any) -> None:
        made = await client.AddUser(pb.AddUserRequest(user="eve"), metadata=self.operator)
        (self.folder / "eve").write_text(made.token)
        address = (self.folder / "state" / "run" / "address").read_text().strip()
        command = [sys.executable, __file__, "--attack", address, str(self.folder)]
        with (self.folder / "eve.log").open("wb") as out:
            self.attacker = subprocess.Popen(command, stdout=out, stderr=out)
        while not (self.folder / "eve.json").exists():
            await asyncio.sleep(0.1)

    def close(self) -> None:
        if self.attacker is not None:
            self.attacker.terminate()
            self.attacker.wait()
            print((self.folder / "eve.json").read_text(), (self.folder / "eve.log").read_text(), flush=True)
        super().close()


def attack(address: str, folder: Path) -> None:
    """Attack until terminated; the counts of answers are printed every second."""
    token = (folder / "eve").read_text()
    counts: Counter[str] = Counter()
    printed = time.monotonic()
    with grpc.insecure_channel(address) as channel:
        for name, call in itertools.cycle(_attacks(channel, token, folder)):
            counts[f"{name}: {_answer(call)}"] += 1
            if time.monotonic() - printed > 1.0:
                printed = time.monotonic()
                (folder / "eve.json").write_text(json.dumps(counts, indent=1))


def _attacks(channel: grpc.Channel, token: str, folder: Path) -> list[tuple[str, Callable[[], object]]]:
    client, masters = rpc.ClientProtocolStub(channel), rpc.ApplicationMasterProtocolStub(channel)
    mine: Any = (("authorization", f"Bearer {token}"),)
    forged: Iterator[Any] = ((("authorization", f"Bearer app:app-0:{number}:00"),) for number in itertools.count())

    def submit(weight: str) -> object:
        text = APP.format(weight=weight)
        return client.Submit(pb.SubmitRequest(app_file=text, folder=str(folder), user="eve"), metadata=mine, timeout=30)

    bid = pb.AllocateRequest(app="app-0", attempt=1, bid=pb.Bid(offer=1))
    return [
        ("weight of a million", lambda: submit("1000000")),
        ("10,000 apps", lambda: submit("1")),
        ("cancel of another's app", lambda: client.Cancel(pb.CancelRequest(app="app-0"), metadata=mine, timeout=30)),
        ("explain of another's app", lambda: client.Explain(pb.ExplainRequest(job="app-0"), metadata=mine, timeout=30)),
        ("list", lambda: client.List(pb.ListRequest(ended=True, jobs=True, slots=True), metadata=mine, timeout=30)),
        ("a method of the operator", lambda: client.Resume(pb.ResumeRequest(), metadata=mine, timeout=30)),
        ("bid with a user's token", lambda: masters.Allocate(bid, metadata=mine, timeout=30)),
        ("bid with a forged token", lambda: masters.Allocate(bid, metadata=next(forged), timeout=30)),
    ]


def _answer(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def main() -> None:
    """Measure without an attack, and under it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--masters", type=int, default=50)
    options.add_argument("--seconds", type=float, default=15.0, help="measured, after a warm-up")
    options.add_argument("--attack", nargs=2, metavar=("ADDRESS", "FOLDER"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.attack:
        attack(chosen.attack[0], Path(chosen.attack[1]))
        return
    print(f"| | {' | '.join(HEADERS)} |")
    print("|---" * (len(HEADERS) + 1) + "|", flush=True)
    for name, kind in (("undisturbed", Town), ("attacked", Attacked), ("undisturbed again", Town)):
        with tempfile.TemporaryDirectory(prefix="eunomia-users-") as folder, contextlib.ExitStack() as stack:
            town = kind(Path(folder), chosen.masters, durable=True)
            stack.callback(town.close)
            print(f"| {name} {asyncio.run(town.run(chosen.seconds))}", flush=True)


if __name__ == "__main__":
    main()
