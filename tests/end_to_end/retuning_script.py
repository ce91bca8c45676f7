"""A training run with a data process that notes, by step, its threads, its process and its samples.

SECONDS (first argument) a step, STEPS (second) steps.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

run = training.attach()
seconds, steps = float(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(5)
data = TensorDataset(torch.arange(256.0).reshape(-1, 1), torch.randn(256, 1))
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
model, optimizer, loader = run.prepare(model, optimizer, DataLoader(data, batch_size=4, shuffle=True))
folder = Path(os.environ["EUNOMIA_RUN_DIR"])
helper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
(folder / f"pids.{run.rank}.{os.getpid()}").write_text(f"{os.getpid()} {helper.pid}")
with (folder / f"samples.{run.rank}").open("a") as noted:
    for inputs, targets in run.steps(loader, steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        time.sleep(seconds)
        named = " ".join(str(int(number)) for number in inputs.flatten().tolist())
        noted.write(f"{run.step} {torch.get_num_threads()} {os.getpid()} {named}\n")
        noted.flush()
helper.communicate()
