"""A small script with everything that makes a resume hard: dropout, BatchNorm, momentum, two schedulers, own states.

At numbered points it can tell the launcher where it is and wait until an order has come, or send itself a SIGTERM.
"""

import argparse
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int)
parser.add_argument("--run-dir")
parser.add_argument("--tell-at", type=int)
parser.add_argument("--term-at", type=int)
parser.add_argument("--kill-at", type=int)
parser.add_argument("--generator", action="store_true")
parser.add_argument("--loader-workers", type=int, default=0)
parser.add_argument("--final", default="final.pt")
args = parser.parse_args()
points = 0


def point() -> None:
    global points
    points += 1
    if points == args.term_at:
        os.kill(os.getpid(), signal.SIGTERM)
    if points == args.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if points == args.tell_at:
        run.announce(point=points)
        while not Path("go").exists():
            time.sleep(0.001)


run = training.attach(args.run_dir)
torch.manual_seed(3)
inputs, targets = torch.randn(22, 5), torch.randn(22, 1)
generator = torch.Generator().manual_seed(11) if args.generator else None
loader = DataLoader(
    TensorDataset(inputs, targets), batch_size=6, shuffle=True, generator=generator, num_workers=args.loader_workers
)
model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
by_epoch = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
model, optimizer, by_epoch, loader = run.prepare(model, optimizer, by_epoch, loader)
by_batch = run.prepare(torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=8))
torch.rand(3)  # what is drawn before the loop must not matter
point()


def train(x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    noise = random.random() + np.random.rand()
    point()
    loss = nn.functional.mse_loss(model(x) * (1 + 0.01 * noise), y)
    loss.backward()
    optimizer.step()
    by_batch.step()
    point()
    run.log({"train/loss": loss})


def evaluate() -> None:
    point()
    by_epoch.step()
    run.state["evaluations"] = run.state.get("evaluations", 0) + 1
    with torch.no_grad():
        model(inputs)  # in training mode: dropout is drawn, BatchNorm's averages move
        point()
        error = nn.functional.mse_loss(model(inputs), targets)
        point()
    run.log({"val/error": error})
    run.state["noise"] = random.random()
    point()


if args.steps is None:
    for _epoch in run.epochs(args.epochs):
        point()
        for x, y in loader:
            train(x, y)
        evaluate()
else:
    for x, y in run.steps(loader, args.steps):
        train(x, y)
        if run.step % 5 == 0:
            evaluate()
if run.is_main:
    inner = model.module if run.world_size > 1 else model
    final = {"model": inner.state_dict(), "optimizer": optimizer.state_dict(), "state": dict(run.state)}
    final |= {"schedulers": [by_epoch.state_dict(), by_batch.state_dict()], "random": torch.rand(2), "step": run.step}
    torch.save(final, args.final)
print("points", points)
