"""A small training script for live changes, in double precision, with momentum, a schedule and accumulation.

It writes, per worker: the samples of each step that counted, a hash of parameters, buffers and momentum after each
step, and when each step began and ended on the machine's clock.
"""

import argparse
import hashlib
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--epochs", type=int)
parser.add_argument("--samples", type=int, default=50)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--width", type=int, default=6)
parser.add_argument("--seconds", type=float, default=0.0)
parser.add_argument("--micro-batches", type=int, default=1)
parser.add_argument("--micro-batch-size", type=int)
parser.add_argument("--norm", action="store_true")
parser.add_argument("--unused", action="store_true", help="a parameter that no batch uses")
parser.add_argument("--groups", action="store_true", help="two groups of parameters")
parser.add_argument("--adam", action="store_true")
parser.add_argument("--single", action="store_true")
parser.add_argument("--widen-newcomers", action="store_true")
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--loaders", type=int, default=0, help="processes that load data")
parser.add_argument("--dies-in", type=int, help="the step in which rank 1 is killed before it has a gradient")
parser.add_argument("--compile", action="store_true", help="what prepare has returned")
parser.add_argument("--no-hash", action="store_true")
parser.add_argument("--no-average", action="store_true")
args = parser.parse_args()

run = training.attach()
torch.manual_seed(3)
kind = torch.float32 if args.single else torch.float64
inputs, targets = torch.randn(args.samples, args.width, dtype=kind), torch.randn(args.samples, 1, dtype=kind)
numbers = torch.arange(args.samples)
data = TensorDataset(inputs, targets, numbers)
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.loaders)
width = args.width + (args.widen_newcomers and os.environ["EUNOMIA_GENERATION"] != "0")
layers = [nn.Linear(args.width, width), nn.Tanh(), nn.Linear(width, 1)]
if args.norm:
    layers.insert(1, nn.BatchNorm1d(width))
model = nn.Sequential(*layers).to(kind)
if args.unused:
    model.register_parameter("spare", nn.Parameter(torch.ones(2, dtype=kind)))
groups = [{"params": each.parameters(), "lr": 0.05 / number} for number, each in enumerate((model[0], model[-1]), 1)]
if args.groups:
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
elif args.adam:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.8)
averaged = torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1) if args.no_average else model)
scaler = torch.amp.GradScaler("cpu", growth_interval=7, enabled=args.scaler)
model, optimizer, scheduler, averaged, scaler, loader = run.prepare(
    model,
    optimizer,
    scheduler,
    averaged,
    scaler,
    loader,
    micro_batches=args.micro_batches,
    micro_batch_size=args.micro_batch_size,
    ddp={"find_unused_parameters": True} if args.unused else {},
)
plain = getattr(model, "module", model)  # one worker of a fixed size has no wrapper
forward = torch.compile(model, backend="eager") if args.compile else model
log = Path(f"steps.{os.environ['EUNOMIA_CONTAINER_ID'].partition('@')[0]}").open("a", buffering=1)  # noqa: SIM115 - open to the end
seen: list[int] = []
buffers_before = ""


def note_buffers(norm: nn.Module, _: object) -> None:
    """Note a hash of the buffers with which a forward pass begins."""
    global buffers_before
    buffers_before = hashlib.sha256(b"".join(each.numpy().tobytes() for each in norm.buffers())).hexdigest()[:16]


if args.norm:
    plain[1].register_forward_pre_hook(note_buffers)


def state_hash() -> str:
    digest = hashlib.sha256()
    tensors = [*plain.state_dict().values()]
    for values in optimizer.state_dict()["state"].values():
        tensors += [value for value in values.values() if isinstance(value, torch.Tensor)]
    for tensor in tensors:
        digest.update(tensor.detach().numpy().tobytes())
    digest.update(json.dumps([scheduler.last_epoch, optimizer.param_groups[0]["lr"], dict(run.state)]).encode())
    return digest.hexdigest()[:16]


def train(x: torch.Tensor, y: torch.Tensor, chosen: torch.Tensor) -> None:
    began, before = time.monotonic(), run.step
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(forward(x), y)
    seen.extend(chosen.tolist() if run.accumulation.piece.samples else [])
    if run.rank == 1 and run.step + 1 == args.dies_in:
        os.kill(os.getpid(), signal.SIGKILL)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if args.seconds:
        time.sleep(args.seconds)
    if run.step > before:
        if not args.no_average:
            averaged.update_parameters(model)
        run.state["steps"] = run.step
        row = {"step": run.step, "size": run.world_size, "rank": run.rank, "seen": seen[:], "began": began}
        row |= {"buffers": buffers_before}
        row |= {"ended": time.monotonic(), "hash": "" if args.no_hash else state_hash(), "loss": loss.item()}
        row["parameters"] = "" if args.no_hash else float(sum(each.double().sum() for each in model.parameters())).hex()
        log.write(json.dumps(row) + "\n")
        seen.clear()
    elif not run.accumulating:
        seen.clear()  # a torn step: its batch comes again
    run.log({"loss": loss})


if args.epochs is None:
    for batch in run.steps(loader, args.steps):
        train(*batch)
else:
    for _epoch in run.epochs(args.epochs):
        for batch in loader:
            train(*batch)
        with torch.no_grad():
            run.log({"error": nn.functional.mse_loss(model(inputs), targets)})
if run.is_main:
    final = {"model": plain.state_dict(), "step": run.step, "averaged": averaged.state_dict()}
    final["scaler"] = scaler.state_dict()
    torch.save(final | {"optimizer": optimizer.state_dict(), "size": run.world_size}, "final.pt")
