"""Imports nothing of Eunomia: logs to --logdir, saves on SIGTERM and every 500 steps, starts from --ckpt."""

import argparse
import signal
import sys
import threading
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
for name, default in {"lr": 0.05, "width": 64, "momentum": 0.9, "steps": 1600}.items():
    parser.add_argument(f"--{name}", type=type(default), default=default)
parser.add_argument("--logdir", type=Path, required=True)
parser.add_argument("--ckpt", type=Path, required=True)
args = parser.parse_args()

images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
training_rows = (~held_out).nonzero().squeeze(1)
model = nn.Sequential(nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)


def save(step: int) -> None:
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    beside = args.ckpt.with_suffix(".new")
    torch.save(state, beside)
    beside.replace(args.ckpt)  # a reader finds the old file or the new one, never a part


def restore() -> int:
    state = torch.load(args.ckpt)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def train_one_step(step: int) -> float:
    generator = torch.Generator().manual_seed(step)  # the batch follows from the step alone
    rows = training_rows[torch.randint(len(training_rows), (64,), generator=generator)]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
    loss.backward()
    optimizer.step()
    return loss.item()


def accuracy() -> float:
    with torch.no_grad():
        return (model(images[held_out]).argmax(1) == labels[held_out]).float().mean().item()


stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
start = restore() if args.ckpt.exists() else 0
writer = SummaryWriter(args.logdir, purge_step=start, flush_secs=5)
for step in range(start, args.steps):
    writer.add_scalar("train/loss", train_one_step(step), step)
    if step % 23 == 22:
        writer.add_scalar("val/accuracy", accuracy(), step)
    if stop.is_set() or step % 500 == 499:
        save(step + 1)
    if stop.is_set():
        writer.close()
        sys.exit(75)  # any exit within suspend_grace counts as suspended
save(args.steps)
writer.close()
