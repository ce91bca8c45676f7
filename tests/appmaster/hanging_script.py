"""A data-parallel training script that hangs in its first incarnation, in the way that an argument names."""

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--sleep-in-backward", type=int, default=-1, help="at this step")
parser.add_argument("--stop-rank-1", type=int, default=-1, help="at this step, before its all-reduce")
parser.add_argument("--seconds", type=float, default=0.01, help="of a step")
args = parser.parse_args()
FIRST = os.environ.get("EUNOMIA_INCARNATION") == "1"


class SleepyGrad(torch.autograd.Function):
    """The identity, whose backward pass may take for ever."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        """Return a copy."""
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        """Hang, if this is the step."""
        if FIRST and run.step == args.sleep_in_backward:
            time.sleep(10_000)
        return grads[0]


class Model(nn.Module):
    """One layer behind the sleepy identity."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one number a sample."""
        out: torch.Tensor = SleepyGrad.apply(self.layer(inputs))
        return out


run = training.attach()
torch.manual_seed(1)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model, loader = Model(), DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = run.prepare(model, optimizer, loader)
for inputs, targets in run.steps(loader, 60):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    if FIRST and run.rank == 1 and run.step == args.stop_rank_1:
        os.kill(os.getpid(), signal.SIGSTOP)
    loss.backward()
    optimizer.step()
    run.log({"loss": loss})
    time.sleep(args.seconds)
Path(f"done-{run.rank}").write_text(str(run.step))
