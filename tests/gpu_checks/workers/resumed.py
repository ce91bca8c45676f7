"""Trains a small network with the helper on the GPU, else the CPU; ``--term-at N`` ends it by SIGTERM at step N."""

import argparse
import os
import random
import signal

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--term-at", type=int)
parser.add_argument("--final", required=True)
args = parser.parse_args()
torch.use_deterministic_algorithms(True)

run = training.attach()
torch.manual_seed(3)
inputs, targets = torch.randn(96, 3, 16, 16), torch.randint(10, (96,))
loader = DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16 * 14 * 14, 10)
).to(run.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer, loader = run.prepare(model, optimizer, loader)
for x, y in run.steps(loader, args.steps):
    optimizer.zero_grad()
    noise = random.random() + np.random.rand() + float(torch.rand(1, device=run.device))
    loss = nn.functional.cross_entropy(model(x) * (1 + 0.01 * noise), y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if run.step == args.term_at:
        os.kill(os.getpid(), signal.SIGTERM)
final = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(2)}
final["device_random"] = torch.rand(2, device=run.device)
torch.save(final, args.final)
print(f"device {run.device}")
