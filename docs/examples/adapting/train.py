"""A small training run that doubles its batch size, and announces each new one."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=24)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--double-at", type=int, nargs="*", default=[8, 16], help="epochs that begin with twice the batch")
parser.add_argument("--samples", type=int, default=1024)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()
run = training.attach()
torch.manual_seed(1)
inputs = torch.randn(args.samples, 16)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
model, optimizer = run.prepare(model, optimizer)
# One loader for each batch size, all prepared at the start: a checkpoint holds the same objects at every start.
sizes = [args.batch_size << doublings for doublings in range(len(args.double_at) + 1)]
loaders = [run.prepare(DataLoader(data, batch_size=size, shuffle=True)) for size in sizes]
run.state.setdefault("batch_size", args.batch_size)
for epoch in run.epochs(args.epochs):
    doublings = sum(epoch >= first for first in args.double_at)
    if run.state["batch_size"] != sizes[doublings]:  # after a resume the arbiter knows it already
        run.state["batch_size"] = sizes[doublings]
        run.announce(batch_size=sizes[doublings])
    for x, y in loaders[doublings]:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss})
        time.sleep(0.02 + 0.0005 * len(x))  # stands for a model that uses the device better with more samples at once
    print(f"epoch {epoch}: batch size {sizes[doublings]}, loss {loss.item():.4f}", flush=True)
