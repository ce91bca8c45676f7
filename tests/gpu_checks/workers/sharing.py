"""Holds half of a share of the GPU's memory and trains beside others; prints what it got as a JSON object."""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fraction", type=float, required=True)
parser.add_argument("--seconds", type=float, default=5.0)
parser.add_argument("--ready", type=Path, required=True)
parser.add_argument("--go", type=Path, required=True)
args = parser.parse_args()

torch.cuda.set_per_process_memory_fraction(args.fraction)
total = torch.cuda.get_device_properties(0).total_memory
held = torch.empty(int(0.5 * args.fraction * total), dtype=torch.uint8, device="cuda")
try:
    beyond = torch.empty(int(0.6 * args.fraction * total), dtype=torch.uint8, device="cuda")
    refused = False
except torch.cuda.OutOfMemoryError:
    refused = True
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 512, device="cuda")


def step() -> None:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
    torch.cuda.synchronize()


step()
args.ready.touch()
while not args.go.exists():
    time.sleep(0.01)
steps, end = 0, time.monotonic() + args.seconds
while time.monotonic() < end:
    step()
    steps += 1
print(json.dumps({"refused": refused, "steps_per_second": steps / args.seconds, "held_bytes": held.numel()}))
