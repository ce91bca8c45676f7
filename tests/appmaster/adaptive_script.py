"""A worker for test_adaptive_batches.py: trains a small network under a rule and prints what it did as JSON.

Not a test. Arguments: the rule, a folder, epochs, and the step at which it sends itself SIGTERM (0: never).
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from eunomia_appmaster import training

rule, folder, epochs, leaves_at = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
RULES = {
    "accordion": training.Accordion(small=8, large=32, every=2),
    "accordion_lowered": training.Accordion(small=8, large=32, every=1, change=1e6),
    "gns": training.Gns(small=8, large=64),
    "gns_fixed": training.Gns(small=16, large=4096, smoothing=0.999),
}
run = training.attach(folder)
torch.manual_seed(3)
inputs = torch.randn(512, 8)
noise = torch.randn(512, 1)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin() + 0.5 * noise)
model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
rate = 0.0 if rule == "gns_fixed" else 0.02
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
model, optimizer, batches = training.adaptive(run, model, optimizer, data, RULES[rule], shuffle=True)
loss_of = nn.functional.mse_loss
sizes, rates = [], []
for epoch in run.epochs(epochs):
    for x, y in batches.of(epoch):
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        if leaves_at and run.step == leaves_at and not run.accumulating:
            os.kill(os.getpid(), signal.SIGTERM)
    sizes.append(batches.batch_size)
    rates.append(optimizer.param_groups[0]["lr"])
    if rule == "accordion_lowered" and epoch == 5:
        for group in optimizer.param_groups:
            group["lr"] /= 10
found = {"sizes": sizes, "rates": rates, "step": run.step, "rank": run.rank}
found["weights"] = [float(each.detach().double().sum()) for each in model.parameters()]
if rule == "gns_fixed":
    found["noise_scale"] = batches.noise_scale()
    whole = torch.zeros(0)
    each = []
    for x, y in zip(inputs, data.tensors[1], strict=True):
        model.zero_grad(set_to_none=True)
        module = model.module if hasattr(model, "module") else model
        loss_of(module(x[None]), y[None]).backward()
        each.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
    gradients = torch.stack(each).double()
    mean = gradients.mean(0)
    found["exact"] = float((gradients - mean).square().sum() / len(gradients) / mean.square().sum())
if run.is_main:
    print(json.dumps(found))
