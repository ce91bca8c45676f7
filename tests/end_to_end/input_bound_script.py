"""A training run whose input takes a time by step that is divided by the CPUs that the job has.

SECONDS (first argument) a step on one CPU, STEPS (second) steps. It sleeps, so that its rates are the same on a busy
machine.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

run = training.attach()
seconds, steps = float(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(5)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = run.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True))
for inputs, targets in run.steps(loader, steps):
    time.sleep(seconds / torch.get_num_threads())
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    run.log({"train/loss": loss})
